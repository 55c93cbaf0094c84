"""How a group's log is asked for, given and taken as a whole."""

from mdserver.cluster.group import Group
from mdserver.cluster.messages import LedGroup, NackItem, SyncItem, SyncRequest, SyncRequestItem
from mdserver.cluster.replies import Consequence, Gap, Unregistered
from mdserver.cluster.transfer import SYNC_REQUESTED_FOR
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

SUBJECT = "/a/b"


def groups() -> tuple[Cluster, Group, Group]:
    """Return a cluster with two entries, their group at its coordinator, and at another seed."""
    cluster = Cluster(3)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    index = cluster.group(SUBJECT)
    cluster.open("m1:1", 1)
    for content in ("one", "two"):
        cluster.publish("m1:1", 1, SUBJECT, content)
        cluster.run(S)
    coordinator = cluster.coordinator(index)
    seed = next(name for name in cluster.names if name != coordinator)
    held = [cluster.members[str(name)].running.groups[index] for name in (coordinator, seed)]
    return cluster, held[0], held[1]


def request(group: Group, **changes: int) -> tuple[SyncRequestItem, SyncRequest]:
    """Return what a seed asks for that voted all the time, and the message around it."""
    log = group.log
    values = {"promised": 0, "committed": log.committed, "length": log.length} | changes
    item = SyncRequestItem(
        group.index,
        values["committed"],
        group.history,
        values["promised"],
        bool(changes.get("recovering")),
        log.epoch,
        values["length"],
    )
    return item, SyncRequest(1, True, False, [item])


def test_what_is_missing_is_asked_for_once_in_a_while_or_of_a_newer_epoch() -> None:
    cluster, _, group = groups()
    outgoing = cluster.members[group._settings.me].running.outgoing
    transfer = group.transfer
    outgoing.now += SYNC_REQUESTED_FOR
    assert transfer.may_request(3)
    assert not transfer.may_request(3)
    assert not transfer.may_request(2)
    assert transfer.may_request(4), "a new coordinator may give what the last one could not"
    outgoing.now += SYNC_REQUESTED_FOR
    item = transfer.request(4)
    assert item is not None
    assert (item.committed, item.length, item.recovering) == (2, 2, False)


def test_a_heartbeat_shows_a_gap_or_an_epoch_that_is_over() -> None:
    _, here, seed = groups()
    coordinator, epoch, index = here._settings.me, here.log.epoch, here.index
    assert seed.step(coordinator, LedGroup(index, epoch, 2, 2)) is None
    assert seed.step(coordinator, LedGroup(index, epoch, 5, 4)) == Gap(epoch, 4)
    assert seed.step(coordinator, LedGroup(index, epoch + 1, 2, 2)) == Gap(epoch + 1, 2)
    over = NackItem(index, epoch - 1, epoch, coordinator)
    assert seed.step(coordinator, LedGroup(index, epoch - 1, 2, 2)) == over


def test_a_heartbeat_of_an_epoch_below_the_promise_is_refused() -> None:
    """Its candidate may be gone, and the coordinator not know: it can commit nothing any more."""
    _, here, seed = groups()
    coordinator, epoch, index = here._settings.me, here.log.epoch, here.index
    acceptor = seed.acceptor
    assert acceptor is not None
    acceptor.promise(epoch + 2, "m9:1", cold=False)
    seed.ballots.no_vote_until = (now := seed._outgoing.now) + 1
    assert seed.step(coordinator, LedGroup(index, epoch, 2, 2)) is None, "m9 may be at work"
    seed.ballots.no_vote_until = now
    over = NackItem(index, epoch, epoch + 2, "m9:1")
    assert seed.step(coordinator, LedGroup(index, epoch, 2, 2)) == over
    assert seed.step(coordinator, LedGroup(index, epoch + 2, 2, 2)) == Gap(epoch + 2, 2)


def test_a_member_gets_what_it_lacks() -> None:
    _, here, seed = groups()
    given = here.step(seed._settings.me, *request(seed, committed=1))
    assert isinstance(given, SyncItem)
    assert (given.start, len(given.entries), given.committed, given.active) == (1, 1, 2, True)
    assert seed.step(seed._settings.me, *request(seed)) is None, "only a coordinator gives its log"


def test_what_a_member_says_may_call_for_an_election() -> None:
    _, here, seed = groups()
    peer, newer = seed._settings.me, here.log.epoch + 3
    assert here.step(peer, *request(seed, promised=newer)) is Consequence.STAND
    assert here.ballots.newest_epoch == newer
    assert here.step(peer, *request(seed, committed=7, length=7)) is Consequence.RENEW


def test_a_seed_that_holds_less_than_it_acked_does_not_count() -> None:
    _, here, seed = groups()
    item, message = request(seed, committed=0, length=0)
    again = SyncRequest(9, True, False, message.items)
    assert here.step(seed._settings.me, item, again) == Unregistered(10)


def test_a_log_with_a_gap_is_not_taken_but_asked_for() -> None:
    cluster, here, seed = groups()
    outgoing = cluster.members[seed._settings.me].running.outgoing
    outgoing.now += SYNC_REQUESTED_FOR
    coordinator = here._settings.me
    given = here.transfer.synced(here.coordinator, 1)  # type: ignore[arg-type]
    assert not given.state
    seed.clear()
    asked = seed.step(coordinator, given)
    assert isinstance(asked, SyncRequestItem)
    assert (asked.committed, asked.length) == (0, 0)
    assert seed.step(coordinator, here.transfer.synced(here.coordinator, 0)) is None  # type: ignore[arg-type]
    assert seed.log.length == 2
