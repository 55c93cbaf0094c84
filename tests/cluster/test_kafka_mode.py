"""Members that share nothing but a log: what publishers and subscribers see of it."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import Factory, define
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.cluster import kafka_waiting
from mdserver.cluster.kafka_messages import (
    Reachability,
    RecordsRead,
)
from mdserver.cluster.kafka_records import murmur2
from mdserver.cluster.mode import Mode, Sequencer
from mdserver.core.commands import PositionAfter
from mdserver.core.events import Connected, Reset, StatusName
from mdserver.core.inputs import Closed, TimerDue
from mdserver.core.message import MessageType, Position
from mdserver.core.replica import EXPIRE_TIMER
from mdserver.core.settings import BrokerSettings
from simulation.kafka_log import CLIENT, PARTITIONS, SimulatedLog, SimulatedMember

SUBJECT, KEY = "/t/k", b"k"
HOME = (murmur2(KEY) & 0x7FFFFFFF) % PARTITIONS
PUBLISHER: list[str | None] = []
"""Identity and key of the publisher of these tests, once a member gave them."""
Statuses = list[tuple[StatusName, str | None]]


@pytest.fixture
def log() -> SimulatedLog:
    made = SimulatedLog()
    made.create("t")
    return made


def ready(log: SimulatedLog, *, numbers: bool = False, **settings: Any) -> SimulatedMember:
    """Return a member that has read the log, with a connected client.

    With `numbers` the client is a publisher, the same one at all members.
    """
    member = SimulatedMember(log, **settings)
    member.read()
    member.connect(publisher="me" if numbers else None)
    if numbers:
        connected = member.sent[0]
        assert isinstance(connected, Connected)
        if not PUBLISHER:
            PUBLISHER.extend([connected.publisher, connected.publisher_key])
        member.step(Closed(CLIENT, "again under the identity that all members know"))
        member.connect(CLIENT, *PUBLISHER)
    return member


def results(member: SimulatedMember) -> Statuses:
    return [(one.status, one.closure) for one in member.statuses if one.closure is not None]


def after(member: SimulatedMember, seq: int) -> dict[str, PositionAfter]:
    return {SUBJECT: PositionAfter(member.node.history, 1, seq)}


def test_it_has_all_that_a_mode_has(log: SimulatedLog) -> None:
    mode: Any = SimulatedMember(log).node.mode
    for protocol, part in ((Mode, mode), (Sequencer, mode.sequencer)):
        assert all(hasattr(part, name) for name in vars(protocol) if not name.startswith("_"))
    for call in (mode.greeted, mode.outdated, mode.heartbeat):
        call("m2", None)
    mode.link_lost("m2")
    mode.member_unreachable()
    mode.rebalance()
    assert mode.handlers == {}


# Publications


def test_what_one_member_publishes_all_members_deliver(log: SimulatedLog) -> None:
    here, there = ready(log), ready(log)
    there.subscribe(SUBJECT)
    here.publish(SUBJECT, "1", fields={"unit": "km/h"})
    assert results(here) == []
    here.deliver()
    assert results(here) == [(StatusName.PUBLISH_OK, "1")]
    assert (here.statuses[-1].epoch, here.statuses[-1].seq) == (1, 1)
    there.read()
    [delivery] = there.delivered
    assert delivery.entry.publication.fields == {"unit": "km/h"}
    assert (delivery.entry.epoch, delivery.entry.seq) == (1, 1)


def test_a_repeat_at_another_member_is_taken_once(log: SimulatedLog) -> None:
    here, there = ready(log, numbers=True), ready(log, numbers=True)
    there.subscribe(SUBJECT)
    here.publish(SUBJECT, "1", number=1)
    here.deliver(report=False)  # the member dies before it hears of it
    there.publish(SUBJECT, "1", number=1)  # and this one has not read it yet
    there.deliver()
    assert results(there) == []  # nobody knows yet whether it is a repeat
    there.read()
    assert there.contents == ["1"]
    [status] = [one for one in there.statuses if one.closure == "1"]
    assert (status.status, status.seq) == (StatusName.PUBLISH_OK, 1)
    assert there.node.mode.counts().repeats == 1
    there.publish(SUBJECT, "1", number=1)  # now it has
    assert there.produced == []
    assert there.statuses[-1].seq == 1


def test_a_retry_of_the_producer_is_taken_once(log: SimulatedLog) -> None:
    here = ready(log, numbers=True)
    here.subscribe(SUBJECT)
    here.publish(SUBJECT, "1", number=1)
    here.deliver(again=True)
    here.read()
    assert here.contents == ["1"]
    assert here.node.mode.counts().repeats == 1


def test_without_kafka_publications_are_refused_and_subscribers_served(log: SimulatedLog) -> None:
    here = ready(log)
    log.append("t", HOME, KEY, b"cached")
    here.read()
    here.step(Reachability("Kafka cannot be reached"))
    here.publish(SUBJECT, "1")
    here.publish(SUBJECT, "2", qos="STANDARD")
    assert [one.reason for one in here.statuses[-2:]] == ["Kafka cannot be reached"] * 2
    here.subscribe(SUBJECT)
    assert here.contents == ["cached"]
    here.step(Reachability(None))
    here.publish(SUBJECT, "3")
    here.deliver()
    assert results(here)[-1] == (StatusName.PUBLISH_OK, "3")
    names = [line.name for line in here.logged]
    assert [name for name in names if name.startswith("kafka")] == [
        "kafka away",
        "kafka back",
    ]


def test_publications_held_while_kafka_is_away_are_acknowledged_when_it_is_back(
    log: SimulatedLog,
) -> None:
    here = ready(log, numbers=True, holds=True)
    here.subscribe(SUBJECT)
    here.step(Reachability("Kafka cannot be reached"))
    here.publish(SUBJECT, "1", number=1)
    here.publish(SUBJECT, "2")
    here.publish(SUBJECT, "3", qos="STANDARD")
    assert results(here) == []
    assert here.node.broker.publications.refusing is None
    assert here.node.away() == "Kafka cannot be reached"
    assert here.node.unready() is None  # clients stay
    here.step(Reachability(None))
    assert here.node.away() is None
    here.deliver()
    here.read()
    assert here.contents == ["1", "2", "3"]
    assert sorted(results(here)) == [(StatusName.PUBLISH_OK, one) for one in ("1", "2", "3")]


def test_a_held_number_that_ended_as_uncertain_and_is_repeated_is_taken_once(
    log: SimulatedLog,
) -> None:
    here = ready(log, numbers=True, holds=True)
    here.subscribe(SUBJECT)
    here.step(Reachability("Kafka cannot be reached"))
    here.publish(SUBJECT, "1", number=1)
    here.tick(11)
    assert here.statuses[-1].certain is False
    here.publish(SUBJECT, "1", number=1)
    here.step(Reachability(None))
    here.deliver()  # the producer had kept the first record, so both are written
    here.read()
    assert here.contents == ["1"]
    assert results(here)[1:] == [(StatusName.PUBLISH_OK, "1")]
    assert here.node.mode.counts().repeats == 1


def test_beyond_the_bound_publications_are_refused_for_certain_while_kafka_is_away(
    log: SimulatedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_waiting, "KAFKA_PENDING_MAX", 2)
    here = ready(log, holds=True)
    here.step(Reachability("Kafka cannot be reached"))
    for content in ("1", "2", "3"):
        here.publish(SUBJECT, content)
    assert results(here) == [(StatusName.PUBLISH_FAILED, "3")]
    assert here.statuses[-1].reason == "too many publications wait for Kafka here"
    assert here.statuses[-1].certain is True
    here.tick(11)  # those that ended as uncertain are still with the producer
    here.publish(SUBJECT, "4")
    assert here.statuses[-1].certain is True
    here.step(Reachability(None))
    here.deliver()
    here.publish(SUBJECT, "5")
    here.deliver()
    assert results(here)[-1] == (StatusName.PUBLISH_OK, "5")


def test_nothing_is_held_before_the_topics_are_known() -> None:
    here = SimulatedMember(SimulatedLog(), holds=True)
    here.step(Reachability("Kafka cannot be reached"))
    assert here.node.broker.publications.refusing == "Kafka cannot be reached"
    assert here.node.away() == here.node.unready() == "Kafka cannot be reached"


# Records


def test_records_of_others_are_messages(log: SimulatedLog) -> None:
    here = ready(log)
    here.subscribe(SUBJECT, "/t/*")
    log.append("t", HOME, KEY, b"1", [("unit", b"km/h")])
    log.append("t", HOME, b"a//b", b"poison")
    log.append("t", 1 - HOME, KEY, b"stray")
    here.read()
    assert here.contents == ["1", "stray"]
    assert [one.entry.seq for one in here.delivered] == [1, 0]
    counts = here.node.mode.counts()
    assert (counts.records, counts.poison, counts.strays) == (3, 1, 1)
    assert {"poison record", "stray record"} < {line.name for line in here.logged}


def test_a_tombstone_deletes_the_snapshot(log: SimulatedLog) -> None:
    here = ready(log)
    here.subscribe(SUBJECT)
    log.append("t", HOME, KEY, b"1")
    log.append("t", HOME, KEY, None)
    here.read()
    assert here.contents == ["1", ""]
    here.connect(2)
    here.subscribe(SUBJECT, session=2)
    assert here.contents == ["1", ""]
    log.append("t", HOME, KEY, b"2")
    here.read()
    here.connect(3)
    here.subscribe(SUBJECT, session=3)
    assert here.delivered[-1].type is MessageType.SNAPSHOT
    assert here.contents[-1] == "2"


def test_a_gap_between_offsets_names_the_position_before(log: SimulatedLog) -> None:
    here = ready(log)
    here.subscribe(SUBJECT)
    log.append("t", HOME, KEY, b"1")
    log.append("t", HOME, b"another", b"-")
    log.append("t", HOME, KEY, b"2")
    here.read()
    assert [(one.entry.seq, one.prev) for one in here.delivered] == [
        (1, None),
        (3, Position(1, 1)),
    ]


def test_records_come_once_if_they_are_read_twice(log: SimulatedLog) -> None:
    here = ready(log)
    here.subscribe(SUBJECT)
    log.append("t", HOME, KEY, b"1")
    here.read()
    here.step(RecordsRead(log.records["t", HOME], {}))
    assert here.contents == ["1"]


# Recovery


def test_a_client_moves_without_a_loss(log: SimulatedLog) -> None:
    here, there = ready(log), ready(log)
    here.subscribe(SUBJECT)
    for number in range(3):
        log.append("t", HOME, KEY, str(number).encode())
    here.read()
    log.append("t", HOME, KEY, b"3")
    there.read()
    there.subscribe(SUBJECT, positions=after(here, 3))
    assert there.contents == ["3"]
    assert there.delivered[0].type is MessageType.RECOVERED


def test_a_client_that_is_ahead_waits_for_the_member(log: SimulatedLog) -> None:
    there = ready(log)
    for number in range(3):
        log.append("t", HOME, KEY, str(number).encode())
    there.subscribe(SUBJECT, positions=after(there, 2))
    assert there.statuses == []
    there.read(2)
    there.read()
    assert there.contents == ["2"]


def test_retention_beyond_a_position_is_told(log: SimulatedLog) -> None:
    for number in range(9):
        log.append("t", HOME, KEY, str(number).encode())
    log.append("t", HOME, b"another", b"-")
    log.retain(("t", HOME), 9)
    there = ready(log)
    there.subscribe(SUBJECT, positions=after(there, 4))
    [status] = there.statuses
    assert status.status is StatusName.DATA_RESYNC
    assert status.missing is not None
    assert (status.missing.first.seq, status.missing.last.seq) == (5, 9)


def test_a_position_at_the_end_is_no_loss_though_its_record_is_gone(log: SimulatedLog) -> None:
    for number in range(9):
        log.append("t", HOME, KEY, str(number).encode())
    log.retain(("t", HOME), 9)
    there = ready(log)
    there.subscribe(SUBJECT, positions=after(there, 9))
    assert [one.status for one in there.statuses] == [StatusName.DATA_SYNC]
    log.append("t", HOME, b"another", b"-")
    log.append("t", HOME, KEY, b"next")
    there.read()
    assert there.delivered[-1].prev == Position(1, 9)


def test_a_client_cannot_spoil_what_others_recover(log: SimulatedLog) -> None:
    there = ready(log)
    log.append("t", HOME, KEY, b"1")
    log.append("t", HOME, b"another", b"-")
    there.read()
    there.subscribe(SUBJECT, positions=after(there, 2))
    there.connect(2)
    there.subscribe(SUBJECT, session=2, positions=after(there, 0))
    assert there.contents == ["1"]


def test_subscribers_learn_what_retention_removed_before_it_was_read(log: SimulatedLog) -> None:
    here = ready(log)
    log.append("t", HOME, KEY, b"0")
    here.read()
    here.subscribe(SUBJECT)
    for number in range(1, 9):
        log.append("t", HOME, KEY, str(number).encode())
    log.retain(("t", HOME), 7)
    here.read()
    missing = here.statuses[-1].missing
    assert missing is not None
    assert (missing.first.seq, missing.last.seq) == (2, 7)
    assert here.contents[-2:] == ["7", "8"]
    here.sweep()
    assert len(here.statuses) == 1


def home_of(key: str) -> int:
    return (murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.parametrize("partial_looks", [0, 1, 3])
def test_what_brokers_lost_is_told_by_a_new_history(log: SimulatedLog, partial_looks: int) -> None:
    """Brokers that just started may not know all topics: the loss is told once they do."""
    log.create("other")
    members = [ready(log), ready(log)]
    for number in range(6):
        log.append("t", HOME, KEY, str(number).encode())
    for member in members:
        member.read()
        member.subscribe(SUBJECT)
    before = members[0].node.history
    log.lose(("t", HOME), 3)
    for number in range(2):
        log.append("t", HOME, KEY, f"new {number}".encode())
    for member in members:
        member.read()
        for _ in range(partial_looks):
            member.look(without=["t"])
            member.read()
        member.look()
        member.read()
    assert members[0].node.history == members[1].node.history != before
    for member in members:
        assert [event.history for event in member.sent if isinstance(event, Reset)] == [
            member.node.history
        ]
        assert member.contents[-2:] == ["new 0", "new 1"]
        assert member.node.unready() is None
        assert "records lost" in [line.name for line in member.logged]
    members[0].look()
    assert len([event for event in members[0].sent if isinstance(event, Reset)]) == 1


def test_a_topic_created_again_is_no_loss(log: SimulatedLog) -> None:
    here = ready(log)
    for number in range(6):
        log.append("t", HOME, KEY, str(number).encode())
    here.read()
    log.create("t", "again")
    log.append("t", HOME, KEY, b"new")
    here.read()
    here.look()
    here.read()
    assert "records lost" not in [line.name for line in here.logged]
    assert here.node.history == ready(log).node.history


# Subjects that are too many


def test_records_of_ever_new_keys_take_no_more_room_than_subjects_may(log: SimulatedLog) -> None:
    here = ready(log, subjects_max=100)
    for number in range(1000):
        log.append("t", home_of(str(number)), str(number).encode(), b"1")
        here.read()
    assert len(here.node.broker.statistics().cache.subjects) <= 100
    assert "subjects forgotten" in [line.name for line in here.logged]
    here.publish("/t/a-further-one", "1")
    assert len(here.produced) == 1


def test_a_client_that_comes_with_a_forgotten_subject_is_told(log: SimulatedLog) -> None:
    here = ready(log, subjects_max=40)
    log.append("t", HOME, KEY, b"1")
    log.append("t", HOME, KEY, b"2")
    here.read()
    for number in range(100):
        log.append("t", home_of(str(number)), str(number).encode(), b"1")
        here.read()
    here.subscribe(SUBJECT, positions=after(here, 1))
    [status] = here.statuses
    assert status.status is StatusName.DATA_RESYNC
    assert status.missing is not None
    assert status.missing.first.seq == 2


def test_nothing_is_kept_of_a_subject_without_messages(log: SimulatedLog) -> None:
    here = ready(log)
    log.append("t", HOME, KEY, b"1")
    log.append("t", HOME, KEY, None)
    here.read()
    here.tick()
    assert here.node.broker.subject_statistics(SUBJECT) is not None  # its messages may be recovered
    here.now += BrokerSettings().cache_expire
    here.step(TimerDue(EXPIRE_TIMER))
    here.tick()
    assert here.node.broker.subject_statistics(SUBJECT) is None
    here.subscribe(SUBJECT, positions=after(here, 2))
    assert [one.status for one in here.statuses] == [StatusName.DATA_SYNC]


def test_positions_that_clients_claim_do_not_spoil_those_of_others(log: SimulatedLog) -> None:
    here = ready(log)
    for _ in range(9):
        log.append("t", HOME, KEY, b"1")
    here.read()
    other = next(f"{n}" for n in range(9) if home_of(str(n)) == HOME)
    position = PositionAfter(here.node.history, 1, 9)
    here.subscribe(f"/t/{other}", positions={f"/t/{other}": position})
    here.tick()
    third = next(f"{n}" for n in range(9, 99) if home_of(str(n)) == HOME)
    position = PositionAfter(here.node.history, 1, 1)
    here.subscribe(f"/t/{third}", positions={f"/t/{third}": position})
    assert here.statuses[-1].status is StatusName.DATA_SYNC


def test_a_member_that_starts_reads_before_it_serves(log: SimulatedLog) -> None:
    for number in range(4):
        log.append("t", HOME, KEY, str(number).encode())
    member = SimulatedMember(log)
    assert "4 records are missing" in str(member.node.unready())
    member.connect()
    assert member.statuses == []
    member.read(2)
    assert member.node.unready() is not None
    member.read()
    assert member.node.unready() is None


# Topics


def test_without_its_topics_a_member_is_not_ready() -> None:
    log = SimulatedLog()
    member = SimulatedMember(log)
    member.look("t")
    assert member.node.unready() == "there is no topic t: create it, or correct `topics`"
    log.create("t")
    member.look()
    member.read()
    assert member.node.unready() is None


def test_a_further_topic_is_read_from_its_beginning(log: SimulatedLog) -> None:
    here = ready(log)
    log.append("t", HOME, KEY, b"1")
    here.read()
    here.subscribe(SUBJECT, "/u/*")
    log.create("u", "second", 1)
    log.append("u", 0, b"k", b"u1")
    here.look()
    here.read()
    resets = [event for event in here.sent if isinstance(event, Reset)]
    assert [reset.history for reset in resets] == [here.node.history]
    assert here.contents[-1] == "u1"
    assert here.node.history == ready(log).node.history
    assert here.node.unready() is None


@pytest.mark.parametrize(
    "renumbering",
    [lambda log: log.create("t", "again"), lambda log: log.create("t", partitions=PARTITIONS + 3)],
    ids=["created again", "more partitions"],
)
def test_a_topic_that_is_renumbered_begins_a_new_history(
    log: SimulatedLog, renumbering: Callable[[SimulatedLog], None]
) -> None:
    here = ready(log, numbers=True)
    here.subscribe(SUBJECT)
    here.publish(SUBJECT, "1", number=1)
    here.deliver()
    here.read()
    before = here.node.history
    here.publish(SUBJECT, "2", number=2)
    renumbering(log)
    here.look()
    assert here.statuses[-1].certain is False  # of the one in flight nobody knows
    here.read()
    assert here.node.history != before
    assert here.node.unready() is None
    assert [event.history for event in here.sent if isinstance(event, Reset)] == [here.node.history]
    fresh = ready(log)
    assert fresh.node.history == here.node.history
    fresh.subscribe(SUBJECT, positions={SUBJECT: PositionAfter(before, 1, 1)})
    assert any(isinstance(event, Reset) for event in fresh.sent)


# Everything together

SUBJECTS = [b"k", b"l", b"m/n", None]


@define
class Run:
    """Members under one log, and what was published to them."""

    data: st.DataObject
    log: SimulatedLog
    members: list[SimulatedMember] = Factory(list)
    published: list[tuple[str, int]] = Factory(list)

    def start(self) -> None:
        member = ready(self.log, numbers=True)
        member.subscribe("/t", "/t/**")
        self.members.append(member)

    def one(self) -> SimulatedMember:
        return self.data.draw(st.sampled_from(self.members))

    def publish(self) -> None:
        key = self.data.draw(st.sampled_from(SUBJECTS))
        subject = "/t" if key is None else f"/t/{key.decode()}"
        number = len(self.published) + 1
        self.published.append((subject, number))
        member = self.one()
        member.publish(subject, str(number), number=number)
        member.deliver(report=self.data.draw(st.booleans()), again=self.data.draw(st.booleans()))

    def repeat(self) -> None:
        if self.published:
            subject, number = self.data.draw(st.sampled_from(self.published))
            member = self.one()
            member.publish(subject, str(number), number=number)
            member.deliver()

    def other(self) -> None:
        self.log.append("t", self.data.draw(st.integers(0, 1)), b"k", b"other")

    def read(self) -> None:
        self.one().read(self.data.draw(st.integers(1, 5)))

    def look(self) -> None:
        self.one().look(without=self.data.draw(st.sampled_from([[], ["t"]])))

    def remove(self) -> None:
        at = "t", self.data.draw(st.integers(0, 1))
        if self.data.draw(st.booleans()):
            self.log.compact(at)
        else:
            self.log.retain(at, self.data.draw(st.integers(0, self.log.ends[at])))


def in_order_and_once(member: SimulatedMember, known: dict[tuple[str, Position], bytes]) -> None:
    """Check what one member delivered; `known` is what stands at each position."""
    last: dict[str, int] = {}
    taken: dict[tuple[str, int], None] = {}
    for delivery in member.delivered:
        entry, published = delivery.entry, delivery.entry.publication
        if not entry.seq:
            continue
        place = published.subject, Position(entry.epoch, entry.seq)
        assert known.setdefault(place, published.content) == published.content
        if delivery.type is MessageType.UPDATE:
            assert entry.seq > last.get(published.subject, 0)
            last[published.subject] = entry.seq
            if published.number:
                assert (published.subject, published.number) not in taken
                taken[published.subject, published.number] = None


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_members_agree_whatever_the_log_goes_through(data: st.DataObject) -> None:
    """Retention, compaction, retries, lost results, members that start late and lag."""
    log = SimulatedLog()
    log.create("t")
    run = Run(data, log)
    run.start()
    run.start()
    actions = [run.publish, run.publish, run.repeat, run.other, run.read, run.remove, run.start]
    actions.append(run.look)
    for action in data.draw(st.lists(st.sampled_from(actions), max_size=25)):
        action()
    known: dict[tuple[str, Position], bytes] = {}
    for member in run.members:
        member.read()
        in_order_and_once(member, known)
        member.tick(11)
        assert member.node.mode.counts().waiting == 0


def test_a_client_that_goes_back_and_forth_misses_nothing(log: SimulatedLog) -> None:
    members = [ready(log), ready(log)]
    last, got = 0, []
    for turn in range(20):
        for number in range(turn % 4):
            log.append("t", HOME, KEY, f"{turn}.{number}".encode())
        member = members[turn % 2]
        member.read()
        member.delivered.clear()
        member.connect(CLIENT + 1 + turn)
        member.subscribe(SUBJECT, session=CLIENT + 1 + turn, positions=after(member, last))
        for one in member.delivered:
            assert one.entry.seq > last
            last = one.entry.seq
            got.append(one.entry.publication.content.decode())
    assert got == [f"{turn}.{number}" for turn in range(20) for number in range(turn % 4)]
