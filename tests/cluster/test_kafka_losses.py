"""Clients that were away while brokers lost records, and come to members that start later."""

from collections.abc import Sequence

from attrs import Factory, define
from hypothesis import example, given
from hypothesis import strategies as st

from mdserver.cluster.kafka_progress import Span
from mdserver.core.commands import PositionAfter
from mdserver.core.events import Reset, StatusName
from mdserver.core.message import MessageType, Position
from mdserver.limits import KAFKA_LEADERS_KEPT
from simulation.kafka_log import PARTITIONS, SimulatedLog
from tests.cluster.test_kafka_mode import home_of, ready

KEYS = ("a", "b", "c", "d")
ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, len(KEYS) - 1)),
    st.tuples(st.just("elect"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("lose"), st.integers(0, 4 * PARTITIONS - 1)),
    st.tuples(st.just("visit"), st.just(0)),
)


@define
class World:
    """A log, and a client that goes from one new member to the next."""

    log: SimulatedLog = Factory(SimulatedLog)
    written: int = 0
    seen: dict[str, tuple[PositionAfter, bytes]] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        self.log.create("t")

    def append(self, number: int) -> None:
        """Append a record of a key."""
        self.written += 1
        key = KEYS[number]
        self.log.append("t", home_of(key), key.encode(), str(self.written).encode())

    def elect(self, partition: int) -> None:
        """Have another broker lead a partition."""
        self.log.elect(("t", partition))

    def lose(self, number: int) -> None:
        """Lose the last records of a partition."""
        at = "t", number % PARTITIONS
        self.log.lose(at, max(0, self.log.ends[at] - 1 - number // PARTITIONS))

    def visit(self, _: int) -> None:
        """Have the client come to a new member, with what it knows, and judge what it gets."""
        member = ready(self.log)
        subjects = [f"/t/{key}" for key in KEYS]
        positions = {subject: position for subject, (position, _) in self.seen.items()}
        member.subscribe(*subjects, positions=positions)
        resets = [event for event in member.sent if isinstance(event, Reset)]
        told = dict.fromkeys(
            [subject for event in resets for subject in event.subjects]
            + [one.subject for one in member.statuses if one.status is StatusName.DATA_RESYNC]
        )
        for key, subject in zip(KEYS, subjects, strict=True):
            got = [one for one in member.delivered if one.entry.publication.subject == subject]
            contents = [one.entry.publication.content for one in got]
            records = [
                one for one in self.log.records["t", home_of(key)] if one.key == key.encode()
            ]
            there = [one.value for one in records]
            if subject in self.seen and subject not in told:
                self._go_on(key, contents, there)
            else:
                assert contents == there[-1:]
                assert all(one.type is MessageType.SNAPSHOT for one in got)
                self.seen.pop(subject, None)
            for one in got:
                position = PositionAfter(member.node.history, one.entry.epoch, one.entry.seq)
                self.seen[subject] = position, one.entry.publication.content

    def _go_on(self, key: str, contents: Sequence[bytes], there: Sequence[bytes | None]) -> None:
        """Judge a client that was told of no loss."""
        position, last = self.seen[f"/t/{key}"]
        if last in there:
            assert contents == there[there.index(last) + 1 :]
            return
        # What it has seen is lost. It waits, as long as nothing was written in that place.
        assert contents == []
        assert all(
            one.offset >= position.seq or one.leader_epoch < position.epoch
            for one in self.log.records["t", home_of(key)]
        )


LOST_UNDER_ANOTHER_KEY = [
    *[("append", 0)] * 2,
    ("visit", 0),
    *[("lose", home_of("a") + PARTITIONS * n) for n in range(2)],
    *[("append", number) for number in (1, 2, 3) for _ in range(3)],
    ("visit", 0),
    ("append", 0),
    ("visit", 0),
]


@example(LOST_UNDER_ANOTHER_KEY)
@given(st.lists(ACTIONS, max_size=40))
def test_who_saw_a_lost_record_is_told_and_nobody_else(actions: list[tuple[str, int]]) -> None:
    world = World()
    for name, number in [*actions, ("visit", 0)]:
        getattr(world, name)(number)


def test_the_example_loses_what_the_client_saw() -> None:
    world = World()
    for name, number in LOST_UNDER_ANOTHER_KEY[:4]:
        getattr(world, name)(number)
    assert world.seen["/t/a"][1] == b"2"
    assert [one.value for one in world.log.records["t", home_of("a")]] == [b"1"]


def test_a_position_is_lost_if_a_later_leader_wrote_up_to_it() -> None:
    span = Span(0, 0, 0)
    assert not span.lost(Position(1, 5))
    for offset, leader in ((2, 0), (10, 3), (20, 5)):
        span.lead(leader, offset)
    kept = [(1, 2), (1, 10), (4, 11), (4, 20), (6, 21), (9, 40), (4, 9)]
    lost = [(1, 11), (3, 11), (4, 21), (1, 40)]
    assert [span.lost(Position(*one)) for one in kept] == [False] * len(kept)
    assert [span.lost(Position(*one)) for one in lost] == [True] * len(lost)


def test_changes_of_leaders_are_bounded() -> None:
    span = Span(0, 0, 0)
    for number in range(2 * KAFKA_LEADERS_KEPT):
        span.lead(number, number)
    assert len(span.leaders) == KAFKA_LEADERS_KEPT
    assert span.leader_of(2 * KAFKA_LEADERS_KEPT) == 2 * KAFKA_LEADERS_KEPT - 1
    assert span.leader_of(0) == -1
