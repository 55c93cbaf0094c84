"""Who coordinates a group, as a member sees it: followed first, active once all is there."""

from mdserver.cluster.leadership import Leadership
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster


def test_another_leadership_is_followed_before_it_is_active() -> None:
    leadership = Leadership()
    assert (leadership.coordinator, leadership.epoch, leadership.active) == ("", 0, False)
    leadership.active = leadership.maybe_behind = True
    leadership.follow("b:1", 7)
    assert (leadership.coordinator, leadership.epoch) == ("b:1", 7)
    assert not leadership.active
    assert not leadership.maybe_behind, "what a coordinator sends next is whole"


def test_an_epoch_that_was_seen_before_it_was_active_is_known_to_have_begun_since() -> None:
    leadership = Leadership()
    assert not leadership.seen_inactive
    leadership.follow("b:1", 7, already_active=True)
    assert not leadership.seen_inactive
    leadership.follow("a:1", 8)
    assert leadership.seen_inactive
    leadership.follow("a:1", 8, already_active=True)
    assert leadership.seen_inactive, "its log came a second time"
    leadership.follow("b:1", 9, already_active=True)
    assert not leadership.seen_inactive, "that is another epoch"


def test_a_link_that_broke_is_active_again_once_nothing_is_missing() -> None:
    cluster = Cluster(3, groups=1)
    cluster.start()
    cluster.until(cluster.ready)
    cluster.run(3 * S)
    coordinator = str(cluster.coordinator(0))
    member = next(name for name in cluster.names if name != coordinator)
    leadership = cluster.members[member].running.groups[0].leadership
    epoch = leadership.epoch
    cluster.disconnect(coordinator, member)
    assert (leadership.active, leadership.maybe_behind) == (False, True)
    assert leadership.forwarded_epoch == 0, "what was forwarded may be lost"
    cluster.connect(coordinator, member)
    cluster.run(S)
    assert (leadership.active, leadership.maybe_behind) == (True, False)
    assert (leadership.coordinator, leadership.epoch) == (coordinator, epoch)
