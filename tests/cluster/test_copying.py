"""A member that is no seed gets its caches from members that do not coordinate them."""

import msgspec

from mdserver.cluster.messages import (
    AnyPeerMessage,
    CopyItem,
    CopyReply,
    CopyRequest,
    PeerReceived,
    Sync,
)
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster, Member


class Watched(Cluster):
    """A cluster that counts who gave a whole state to whom, and by which message."""

    def __init__(self, **settings: object) -> None:
        super().__init__(4, **settings)  # type: ignore[arg-type]
        self.given: list[tuple[type, str, str, int]] = []
        self.asked: list[tuple[str, int]] = []

    def send(self, sender: str, receiver: str, message: AnyPeerMessage, data: bytes) -> None:
        if isinstance(message, Sync | CopyReply):
            self.given += [
                (type(message), sender, receiver, item.group)
                for item in message.items
                if item.state is not None
            ]
        elif isinstance(message, CopyRequest):
            self.asked += [(receiver, group) for group in message.groups]
        super().send(sender, receiver, message, data)


def started(**settings: object) -> Watched:
    """Three seeds with 40 publications in a few groups; the fourth member is not there."""
    cluster = Watched(**settings)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.kill("m4:1")
    cluster.run(2 * S)
    cluster.open("m1:1", 1)
    for index in range(40):
        cluster.publish("m1:1", 1, f"/a/{index % 5}", f"{index}")
    cluster.run(S)
    cluster.given.clear()
    return cluster


def image(member: Member, group: int) -> bytes:
    """What a member has in its cache for a group."""
    return msgspec.msgpack.encode(member.node.broker.export_group(group))


def equal(cluster: Cluster) -> bool:
    """Whether all members hold the same of each group."""
    images = [
        [
            (group.length, group.committed, group.numbering, image(member, group.index))
            for group in member.node.statistics().groups
        ]
        for member in cluster.members.values()
    ]
    return all(image == images[0] for image in images)


def test_a_joining_member_copies_from_others_while_publications_go_on() -> None:
    cluster = started(log_kept=2)
    cluster.start("m4:1")
    for index in range(40, 60):
        cluster.publish("m1:1", 1, f"/a/{index % 5}", f"{index}")
        cluster.run(10 * MS)
    cluster.until(cluster.ready)
    copied = {group: source for kind, source, _, group in cluster.given if kind is CopyReply}
    used = {cluster.group(f"/a/{index}") for index in range(5)}
    assert used & set(copied)
    assert all(cluster.coordinator(group) != source for group, source in copied.items())
    cluster.until(lambda: equal(cluster))


def test_who_keeps_enough_is_asked_for_what_is_missing_only() -> None:
    """After a copy the coordinator gives entries, no state."""
    cluster = started(log_kept=500)
    cluster.start("m4:1")
    cluster.until(cluster.ready)
    assert {kind for kind, *_ in cluster.given} == {CopyReply}
    assert equal(cluster)


def test_a_member_that_was_away_for_long_copies_and_goes_on() -> None:
    cluster = Watched(log_kept=2)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(2 * S)
    cluster.operate("m1:1", "drain", "m4:1")
    cluster.run(2 * S)
    cluster.given.clear()
    cluster.partition("m4:1")
    cluster.open("m1:1", 1)
    for index in range(40):
        cluster.publish("m1:1", 1, "/a/b", f"{index}")
    cluster.run(2 * S)
    cluster.heal()
    cluster.until(lambda: equal(cluster))
    cluster.until(cluster.ready)
    assert {target for kind, _, target, _ in cluster.given if kind is CopyReply} == {"m4:1"}


def test_a_copy_that_never_comes_leaves_it_to_the_coordinator() -> None:
    cluster = started(log_kept=2)
    cluster.start("m4:1")
    cluster.until(lambda: bool(cluster.asked))
    for name in {name for name, _ in cluster.asked}:
        cluster.loss.add((name, "m4:1"))
        cluster.run(300 * MS)
        cluster.loss.clear()
    cluster.until(cluster.ready)
    assert equal(cluster)


def test_a_seed_takes_its_log_from_coordinators_alone() -> None:
    cluster = started(log_kept=2)
    cluster.kill("m2:1")
    cluster.run(2 * S)
    cluster.start("m2:1")
    cluster.until(cluster.ready)
    assert cluster.asked == []


def test_a_copy_of_another_history_is_not_mixed_in() -> None:
    """The member joins with a copy from before a cold start, and begins anew with the rest."""
    cluster = started(log_kept=2)
    cluster.start("m4:1")
    cluster.until(lambda: bool(cluster.asked))
    for name in ("m1:1", "m2:1", "m3:1"):
        cluster.kill(name)
    cluster.start("m1:1", "m2:1", "m3:1")
    cluster.until(cluster.ready)
    assert len({m.node.group_statistics(0).history for m in cluster.members.values()}) == 1
    assert equal(cluster)


def test_a_copy_that_comes_too_late_leaves_the_log_of_a_candidate_alone() -> None:
    """A candidate's adopted log holds more than it knows to be committed."""
    cluster = started(log_kept=2)
    cluster.start("m4:1")
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    subject = cluster.subject_of("m4:1")
    group = cluster.group(subject)
    node = cluster.members["m4:1"].node
    log = node.group_statistics(group)
    donor = cluster.members["m1:1"].node.groups[group]
    late = CopyItem(
        group,
        log.log_epoch,
        donor.history,
        log.committed + 5,
        [],
        [],
        log.committed + 5,
        active=False,
        cold=False,
        register=0,
        state=donor.state.export(),
    )
    cluster.feed("m4:1", PeerReceived("m1:1", [CopyReply([late])]))
    assert node.group_statistics(group) == log
