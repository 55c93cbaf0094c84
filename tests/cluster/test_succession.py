"""What one group answers in Standard mode about leaderships, and which of them it follows."""

from mdserver.cluster.group import Group
from mdserver.cluster.messages import (
    AcceptItem,
    BeginItem,
    LedGroup,
    SyncItem,
    SyncRequestItem,
    YieldItem,
)
from mdserver.cluster.replies import Gap
from mdserver.core.message import Entry, Publication
from simulation.cluster import Cluster
from tests.cluster.test_standard import publish, standard

COORDINATOR = "m2:1"
ABOVE, BELOW = "m3:1", "m1:1"


def led(member: str) -> tuple[Cluster, Group]:
    """Return a cluster, and at a member a group with one entry that the middle one coordinates."""
    cluster = standard()
    subject = cluster.subject_of(COORDINATOR)
    cluster.open(COORDINATOR, 1)
    publish(cluster, COORDINATOR, subject, "one")
    group = cluster.members[member].running.groups[cluster.group(subject)]
    cluster.until(lambda: group.log.length == 1)
    return cluster, group


def begun(group: Group, epoch: int) -> BeginItem:
    """Return a leadership that goes on with what the group holds."""
    return BeginItem(group.index, epoch, group.history, group.history, group.log.length)


def test_a_leadership_of_a_higher_rank_is_followed_and_one_of_a_lower_rank_is_not() -> None:
    for member, peer, higher in ((BELOW, ABOVE, True), (ABOVE, BELOW, False)):
        _, group = led(member)
        epoch = group.leadership.epoch
        same_epoch, next_epoch = begun(group, epoch), begun(group, epoch + 1)
        assert group.step(peer, same_epoch) == (same_epoch if higher else None)
        assert group.step(peer, next_epoch) == next_epoch
        assert group.leadership.coordinator == COORDINATOR, "it is followed by the member's order"
        group.succession.follow(peer, next_epoch)
        assert (group.leadership.coordinator, group.log.epoch) == (peer, epoch + 1)


def test_a_coordinator_stops_for_a_leadership_that_prevails() -> None:
    _, group = led(COORDINATOR)
    epoch = group.leadership.epoch
    assert group.step(BELOW, begun(group, epoch)) is None
    assert group.coordinator is not None
    group.step(ABOVE, begun(group, epoch))
    assert group.coordinator is None
    assert not group.leadership.active


def test_a_log_that_is_not_the_same_is_a_gap() -> None:
    _, group = led(BELOW)
    epoch = group.leadership.epoch + 1
    longer = BeginItem(group.index, epoch, group.history, group.history, 2)
    other = BeginItem(group.index, epoch, "f" * 28, "e" * 28, 1)
    assert group.step(ABOVE, longer) == Gap(epoch, 2)
    assert group.step(ABOVE, other) == Gap(epoch, 1)


def test_entries_are_committed_as_they_come_and_what_lies_before_them_is_a_gap() -> None:
    _, group = led(BELOW)
    epoch = group.leadership.epoch

    def accept(start: int, of: int) -> AcceptItem:
        entry = Entry(of, start + 1, Publication("/a", b"x"), start + 1)
        return AcceptItem(group.index, of, start, start + 1, [entry], [])

    assert group.step(ABOVE, accept(1, epoch)) is None
    assert group.step(COORDINATOR, accept(1, epoch + 1)) is None
    assert group.log.length == 1, "neither leadership is the one that is followed"
    assert group.step(COORDINATOR, accept(2, epoch)) == Gap(epoch, 3)
    assert group.step(COORDINATOR, accept(1, epoch)) is None
    assert (group.log.length, group.log.committed) == (2, 2)


def test_a_heartbeat_shows_what_is_missing() -> None:
    _, group = led(BELOW)
    epoch = group.leadership.epoch
    group.leadership.active = False
    assert group.step(COORDINATOR, LedGroup(group.index, epoch, 2, 2)) == Gap(epoch, 2)
    assert not group.leadership.active
    assert group.step(COORDINATOR, LedGroup(group.index, epoch, 1, 1)) is None
    assert group.leadership.active


def test_a_whole_log_that_is_yielded_is_gone_on_with() -> None:
    _, group = led(BELOW)
    epoch = group.leadership.epoch
    whole, shorter = YieldItem(group.index, epoch, 1), YieldItem(group.index, epoch, 2)
    assert group.step(ABOVE, whole) is None, "it does not coordinate the group"
    assert group.step(COORDINATOR, shorter) is None
    assert group.step(COORDINATOR, whole) == begun(group, epoch + 1)


def test_the_coordinator_gives_entries_of_its_history_and_otherwise_a_state() -> None:
    _, group = led(COORDINATOR)
    for history, entries in ((group.history, 1), ("f" * 28, 0)):
        given = group.step(BELOW, SyncRequestItem(group.index, 0, history, 0, False))
        assert isinstance(given, SyncItem)
        assert len(given.entries) == entries
        assert (given.state is None) is bool(entries)
    assert led(BELOW)[1].step(ABOVE, SyncRequestItem(group.index, 0, "", 0, False)) is None
