"""Rules of the protocol that hold even if several others would have to fail before it shows."""

from mdserver.cluster.coordinator import Coordinator, CoordinatorState
from mdserver.cluster.log import GroupLog
from mdserver.cluster.messages import (
    AnyPeerMessage,
    CopyReply,
    CopyRequest,
    PeerReceived,
    Prepare,
    PrepareItem,
    PreVote,
    PreVoteGranted,
    PreVoteItem,
    SendPeer,
    SyncRequest,
    SyncRequestItem,
)
from mdserver.core.message import Publication
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SEEDS = ("m1:1", "m2:1", "m3:1")


def active() -> Coordinator:
    """Return the active coordinator of epoch 7, with an empty log."""
    made = Coordinator(0, 7, GroupLog(10), SEEDS, 0)
    made.state = CoordinatorState.SYNCING
    made.adopted()
    made.incarnations = {"m1:1": 1, "m2:1": 1}
    made.ack("m1:1", 1, 0)
    made.ack("m2:1", 1, 0)
    assert made.state is CoordinatorState.ACTIVE
    return made


def numbered(number: int) -> Publication:
    return Publication("/s/0", b"x", publisher="p", number=number)


def test_the_adopted_log_is_of_the_new_epoch() -> None:
    assert active().log.epoch == 7


def test_a_repeat_is_answered_once_it_is_committed_and_not_before() -> None:
    one = active()
    assert one.append([numbered(1)], "m1:1", 1) == []

    assert one.append([numbered(1)], "m2:1", 5) == [], "the entry may still be dropped"
    assert list(one.due()) == []

    one.log.commit(1)
    ((contact, answer),) = one.due()
    assert (contact, answer.seq, answer.duplicate) == ("m2:1", 1, True)
    assert list(one.due()) == [], "once"


def test_a_seed_that_lost_its_record_is_registered_only_in_an_epoch_elected_for_that_loss() -> None:
    one = active()
    one.known = {"m3:1": 4}
    assert not one.may_register("m3:1", 4, admitted=False, known={})
    assert one.may_register("m3:1", 4, admitted=True, known={}), "it has its record"

    one.readmit = {"m3:1": 3}
    assert not one.may_register("m3:1", 4, admitted=False, known={}), "that was an earlier loss"
    one.readmit = {"m3:1": 4}
    assert one.may_register("m3:1", 4, admitted=False, known={})


def test_a_seed_supports_no_candidate_right_after_a_promise() -> None:
    """It expects to hear of the one that it promised, whose epoch would be cut short."""
    cluster = Cluster(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    coordinator = cluster.coordinator(0)
    seed, candidate = (name for name in cluster.names if name != coordinator)
    assert coordinator is not None
    epoch = cluster.statistics(seed).groups[0].epoch
    for name in (coordinator, candidate):
        cluster.disconnect(seed, name)
    cluster.connect(seed, candidate)
    cluster.run(20 * MS)
    prepare = Prepare([PrepareItem(0, epoch + 1, 0, "")], {}, False)
    cluster.feed(seed, PeerReceived(candidate, [prepare]))

    granted = supported(cluster, seed, candidate, epoch + 2)
    assert granted == []

    cluster.loss |= {(candidate, seed), (seed, candidate)}
    cluster.run(3 * S)
    promised = cluster.members[seed].running.groups[0].promised_epoch
    assert supported(cluster, seed, candidate, promised + 1) == [candidate], "later it does"


def supported(cluster: Cluster, seed: str, candidate: str, epoch: int) -> list[str]:
    """Return the candidates that a seed supports when one asks it."""
    asked = PreVoteItem(0, epoch, 0, "")
    outputs = cluster.feed(seed, PeerReceived(candidate, [PreVote([asked])]))
    return [
        peer
        for output in outputs
        if isinstance(output, SendPeer) and isinstance(output.message, PreVoteGranted)
        for peer in output.peers
    ]


class Recorded(Cluster):
    """A cluster that keeps what was sent."""

    def __init__(self, count: int, **settings: object) -> None:
        super().__init__(count, **settings)  # type: ignore[arg-type]
        self.sent_messages: list[tuple[str, str, AnyPeerMessage]] = []

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:
        self.sent_messages.append((sender, receiver, message))
        super().send(sender, receiver, message, data)


def test_an_election_for_a_second_loss_names_the_first_one_as_well() -> None:
    cluster = Recorded(5, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    for lost in ("m4:1", "m5:1"):
        cluster.kill(lost)
        cluster.run(2 * S)
        cluster.lose_votes(lost)
        cluster.start(lost)
        cluster.run(S)
    coordinator = cluster.coordinator(0)
    assert coordinator is not None
    # The first seed says that it returns, and then is not heard until the second one did.
    assert cluster.operate(coordinator, "readmit", "m4:1").refused is None
    elected = readmitting(cluster, "m4:1")
    cluster.until(lambda: readmitting(cluster, "m4:1") > elected)
    cluster.loss |= {("m4:1", name) for name in cluster.names}
    cluster.run(S)
    assert "m4:1" not in registered(cluster)
    assert cluster.operate(coordinator, "readmit", "m5:1").refused is None
    cluster.until(lambda: readmitting(cluster, "m5:1") > 0)

    named = [
        sorted(message.readmit)
        for _, _, message in cluster.sent_messages
        if isinstance(message, Prepare) and "m5:1" in message.readmit
    ]
    assert named[0] == ["m4:1", "m5:1"]


def readmitting(cluster: Recorded, seed: str) -> int:
    """Return how many candidacies named a seed that is taken back."""
    return sum(
        isinstance(message, Prepare) and seed in message.readmit
        for _, _, message in cluster.sent_messages
    )


def registered(cluster: Cluster) -> list[str]:
    """Return the seeds that vote."""
    return [name for name in cluster.members if not cluster.statistics(name).not_voting]


def test_a_member_out_of_sight_is_not_asked_for_a_copy() -> None:
    """Its link stands and nothing comes over it: an answer would be waited for in vain."""
    cluster = Recorded(5, groups=8, seed_count=3, log_kept=2)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.loss.add(("m4:1", "m5:1"))
    cluster.run(3 * S)
    seeds = ("m1:1", "m2:1", "m3:1")
    for seed in seeds:
        cluster.cut.add((seed, "m5:1"))
        cluster.disconnect(seed, "m5:1")
    cluster.open("m1:1", 1)
    for index in range(160):
        cluster.publish("m1:1", 1, f"/a/{index % 16}", f"{index}")
    cluster.run(S)
    cluster.sent_messages.clear()
    cluster.cut.clear()
    for seed in seeds:
        cluster.connect(seed, "m5:1")
    cluster.run(3 * S)

    asked = [to for _, to, message in cluster.sent_messages if isinstance(message, CopyRequest)]
    assert asked, "it lacks more than coordinators keep"
    assert "m4:1" not in asked


def test_a_copy_is_no_log_of_an_epoch_until_a_coordinator_gave_entries() -> None:
    """Whose log the copy is a prefix of is not known, so it proves nothing about an epoch."""
    cluster = Recorded(4, groups=4, log_kept=2)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.partition("m4:1")
    cluster.run(2 * S)
    cluster.kill("m2:1")  # so that its groups go on in a newer epoch than the member knows
    cluster.run(2 * S)
    cluster.start("m2:1")
    cluster.until(lambda: cluster.ready("m1:1", "m2:1", "m3:1"))
    cluster.open("m1:1", 1)
    for index in range(80):
        cluster.publish("m1:1", 1, f"/a/{index % 8}", f"{index}")
    cluster.run(2 * S)
    cluster.sent_messages.clear()
    cluster.heal()
    cluster.until(lambda: any(isinstance(m, CopyReply) for *_, m in cluster.sent_messages))
    cluster.run(2 * S)

    copied = next(
        at for at, (*_, m) in enumerate(cluster.sent_messages) if isinstance(m, CopyReply)
    )
    claimed = {
        item.accepted
        for sender, _, message in cluster.sent_messages[copied:]
        if sender == "m4:1" and isinstance(message, SyncRequest)
        for item in message.items
    }
    assert claimed == {0}


def renewals(cluster: Recorded, member: str) -> list[Prepare]:
    """Return what a coordinator prepares when a member holds more than its log as committed."""
    group = cluster.statistics(member).groups[0]
    more = SyncRequestItem(
        0, group.length + 5, group.history, 0, False, group.log_epoch, group.length + 5, 7
    )
    cluster.sent_messages.clear()
    cluster.feed(member, PeerReceived("m4:1", [SyncRequest(1, True, False, [more])]))
    return [message for *_, message in cluster.sent_messages if isinstance(message, Prepare)]


def test_a_log_is_not_renewed_while_a_seed_that_lost_its_record_is_there() -> None:
    """Its promise would say too little: what it had promised before the loss is not known."""
    cluster = Recorded(4, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.kill("m3:1")
    cluster.run(S)
    cluster.lose_votes("m3:1")
    cluster.start("m3:1")
    cluster.run(2 * S)
    coordinator = cluster.coordinator(0)
    assert coordinator in {"m1:1", "m2:1"}
    assert cluster.statistics("m3:1").record_lost

    assert renewals(cluster, coordinator) == []

    cluster.kill("m3:1")
    cluster.run(50 * MS)
    assert [message.cold for message in renewals(cluster, coordinator)][:1] == [True]
