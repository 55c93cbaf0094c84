"""Standard mode: whose leadership a member follows, and which entries it takes, by messages."""

from typing import Any

from mdserver.cluster.messages import (
    Accept,
    AcceptItem,
    Begin,
    BeginItem,
    Claim,
    Forward,
    ForwardItem,
    PeerReceived,
    SyncRequest,
    Yield,
    YieldItem,
)
from mdserver.core.message import Entry, Publication
from simulation.cluster import Cluster
from tests.cluster.test_rules_of_candidates import told
from tests.cluster.test_standard import publish, standard

SUBJECT = "/a/b"


class Led:
    """A group with one entry, the member that coordinates it, one that follows, and a third."""

    def __init__(self, coordinator: str = "") -> None:
        self.cluster: Cluster = standard()
        names = list(self.cluster.names)
        subject = self.cluster.subject_of(coordinator) if coordinator else SUBJECT
        self.subject = subject
        self.index = self.cluster.group(subject)
        self.coordinator = str(self.cluster.coordinator(self.index))
        names.remove(self.coordinator)
        self.follower, self.third = names
        self.cluster.open("m1:1", 1)
        publish(self.cluster, "m1:1", subject, "one")
        self.cluster.until(lambda: self.group(self.follower).log.length == 1)

    def group(self, name: str) -> Any:
        return self.cluster.members[name].running.groups[self.index]

    @property
    def epoch(self) -> int:
        return int(self.group(self.follower).leadership.epoch)

    def accept(self, start: int, epoch: int = 0) -> Accept:
        epoch = epoch or self.epoch
        entry = Entry(epoch, start + 1, Publication(self.subject, b"x"), start + 1)
        return Accept([AcceptItem(self.index, epoch, start, start + 1, [entry], [])])


def test_entries_come_from_the_coordinator_of_the_epoch_only() -> None:
    led = Led()
    told(led.cluster, led.follower, led.third, led.accept(1))
    told(led.cluster, led.follower, led.coordinator, led.accept(1, led.epoch + 1))
    assert led.group(led.follower).log.length == 1
    told(led.cluster, led.follower, led.coordinator, led.accept(1))
    assert led.group(led.follower).log.length == 2


def test_entries_that_are_here_are_not_taken_again() -> None:
    led = Led()
    told(led.cluster, led.follower, led.coordinator, led.accept(0))
    assert led.group(led.follower).log.length == 1


def test_a_group_is_taken_over_from_its_coordinator_with_its_whole_log() -> None:
    led = Led()

    def begins(peer: str, length: int) -> bool:
        item = YieldItem(led.index, led.epoch, length)
        said = told(led.cluster, led.follower, peer, Yield([item]))
        return any(isinstance(message, Begin) for message in said)

    assert not begins(led.third, 1), "it does not coordinate the group"
    assert not begins(led.coordinator, 2), "an entry was lost with a link"
    assert begins(led.coordinator, 1)


def test_what_was_numbered_leaves_before_the_group_is_yielded() -> None:
    led = Led()
    publication = Publication(led.subject, b"y")
    forward = Forward(f"{led.follower}#1", [ForwardItem(led.index, led.epoch, 9, [publication])])
    said = told(led.cluster, led.coordinator, led.follower, forward, Claim([led.index]))
    kinds = [type(message) for message in said]
    assert kinds.index(Accept) < kinds.index(Yield)
    (yielded,) = next(message for message in said if isinstance(message, Yield)).items
    assert yielded.length == 2


def test_a_log_as_long_of_another_history_is_asked_for() -> None:
    led = Led()
    group = led.group(led.follower)

    def asks(before: str) -> bool:
        item = BeginItem(led.index, led.epoch + 3, "f" * 28, before, 1)
        said = told(led.cluster, led.follower, led.coordinator, Begin([item]))
        return any(isinstance(message, SyncRequest) for message in said)

    assert asks("e" * 28)
    assert group.succession.log_incomplete
    group.transfer.requested_until = 0
    assert not asks(group.history)


def test_of_two_coordinators_of_an_epoch_the_one_of_the_higher_address_stays() -> None:
    led = Led("m2:1")
    for other, follower, stays in (("m1:1", "m3:1", True), ("m3:1", "m1:1", False)):
        group = led.group(follower)
        epoch = group.leadership.epoch
        item = BeginItem(led.index, epoch, group.history, group.history, group.log.length)
        led.cluster.feed(follower, PeerReceived(other, [Begin([item])]))
        assert (group.leadership.coordinator == "m2:1") is stays
