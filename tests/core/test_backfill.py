"""What a client is sent of one subject to make up for messages that it did not get live."""

import pytest

from mdserver.core.backfill import Backfill
from mdserver.core.cache import Cache
from mdserver.core.commands import Fetch
from mdserver.core.events import Delivery, Status
from mdserver.core.histories import Histories
from mdserver.core.inputs import Opened
from mdserver.core.interest import Interest
from mdserver.core.message import Entry, GroupFloor, Position, Publication
from mdserver.core.outputs import Output, Send
from mdserver.core.recovery import Lost
from mdserver.core.session import CatchUpRequest, KnownPositions, Session, Subscription
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import parse_interest

Told = list[tuple[str, int] | tuple[str, int, int]]
"""The type and seq of each message; the name of each status, with the ends of what is missing."""


def told(out: list[Output]) -> Told:
    found: Told = []
    for output in out:
        assert isinstance(output, Send)
        event = output.event
        if isinstance(event, Delivery):
            found.append((event.type.value, event.entry.seq))
        else:
            assert isinstance(event, Status)
            missing = event.missing
            ends = (missing.first.seq, missing.last.seq) if missing else (0, 0)
            found.append((event.status.value, *ends))
    return found


class Member:
    """A cache with the messages 1 to `count` of a subject, of which it keeps the last three."""

    def __init__(self, count: int = 5, **settings: bool) -> None:
        given = BrokerSettings(
            groups=1,
            cached_messages_per_subject=3,
            **settings,  # type: ignore[arg-type]
        )
        self.cache = Cache(given)
        self.interest = Interest()
        self.backfill = Backfill(given, self.cache, self.interest, Histories("h1", 1))
        for seq in range(1, count + 1):
            entry = Entry(1, seq, Publication("/a/b", b"x"), place=10 * seq)
            self.cache.apply(self.cache.state("/a/b", 0), entry, 0)

    def subscription(self, subject: str = "/a/b") -> Subscription:
        session = Session(Opened(7, "::1"))
        return Subscription(session, subject, parse_interest(subject, 1, 9), 0, 0)

    def latest(self, history: int) -> Told:
        out: list[Output] = []
        self.backfill.send_latest(self.subscription(), "/a/b", history, 0, out)
        return told(out)

    def after(self, seq: int) -> Told | None:
        out: list[Output] = []
        sent = self.backfill.send_after(self.subscription(), "/a/b", Position(1, seq), 0, out)
        return told(out) if sent or out else None

    def since(self, place: int) -> Told:
        out: list[Output] = []
        self.backfill.send_since(self.subscription(), "/a/b", place, 0, out)
        return told(out)


def test_without_a_position_come_the_last_messages_or_the_snapshot() -> None:
    assert Member().latest(2) == [("HISTORICAL", 4), ("HISTORICAL", 5)]
    assert Member().latest(9) == [("HISTORICAL", seq) for seq in (3, 4, 5)]
    assert Member().latest(0) == [("SNAPSHOT", 5)]
    assert Member(publish_snapshot=False).latest(0) == []
    assert Member(count=0).latest(2) == []


def test_after_a_position_comes_what_was_missed() -> None:
    assert Member().after(5) == [("DATA_SYNC", 0, 0)]
    assert Member().after(3) == [("DATA_SYNC", 0, 0), ("RECOVERED", 4), ("RECOVERED", 5)]


def test_what_is_not_cached_any_more_is_named_and_the_snapshot_stands_for_it() -> None:
    assert Member().after(1) == [("DATA_RESYNC", 2, 5), ("SNAPSHOT", 5)]
    assert Member(publish_snapshot=False).after(1) == [("DATA_RESYNC", 2, 5)]


def test_nothing_is_sent_to_a_client_that_has_seen_more() -> None:
    assert Member().after(6) is None
    assert Member(count=0).after(1) is None


def test_behind_a_place_comes_what_was_missed_and_no_status_without_that() -> None:
    assert Member().since(50) == []
    assert Member().since(40) == [("DATA_SYNC", 0, 0), ("RECOVERED", 5)]
    assert Member().since(10) == [("DATA_RESYNC", 1, 5), ("SNAPSHOT", 5)]


def test_subscribers_get_a_state_that_was_taken_over() -> None:
    member, out = Member(), list[Output]()
    subscription = member.subscription()
    subscription.session.subscriptions["/a/b"] = subscription
    member.interest.add(subscription)
    lost = Lost(Position(1, 2), Position(1, 5))
    state = member.cache.find("/a/b")
    assert state is not None
    member.backfill.taken_over(state, lost, 0, out)
    assert told(out) == [("DATA_RESYNC", 2, 5), ("SNAPSHOT", 5)]


def test_a_subject_stands_at_its_newest_message_or_at_the_floor_of_its_group() -> None:
    member = Member()
    assert member.backfill.newest("/a/b") == Position(1, 5)
    assert member.backfill.newest("/a/c") == Position(0, 0)
    member.cache.floors[0] = GroupFloor(2, 8, 80)
    assert member.backfill.newest("/a/c") == Position(2, 8)
    assert Member(numbers_are_places=True).backfill.newest("/a/c") is None


@pytest.mark.parametrize(
    ("after", "place", "expected"),
    [
        (None, None, []),  # it does not go on from anything
        (Position(1, 3), None, [("DATA_RESYNC", 4, 8)]),
        (Position(1, 8), None, []),
        (None, 79, [("DATA_RESYNC", 1, 8)]),
        (None, 80, []),
        (None, -1, []),
    ],
)
def test_a_pattern_is_told_what_was_forgotten_since(
    after: Position | None, place: int | None, expected: Told
) -> None:
    member, out = Member(), list[Output]()
    known = KnownPositions()
    known.positions = {} if after is None else {"/a/*": after}
    known.places = None if place is None else [place]
    request = CatchUpRequest(member.subscription("/a/*"), known, 0)
    member.backfill.tell_forgotten(request, out)
    assert out == []  # nothing is forgotten yet
    member.cache.floors[0] = GroupFloor(2, 8, 80)
    member.backfill.tell_forgotten(request, out)
    assert told(out) == expected


def test_subscriptions_are_told_of_forgotten_subjects_from_where_this_member_was() -> None:
    member, out = Member(), list[Output]()
    held = [member.subscription(subject) for subject in ("/a/b", "/a/c", "/a/*")]
    known = {"/a/b": Position(1, 5)}
    member.backfill.lost_unknown(held, known, Position(1, 2), Position(2, 8), out)
    assert told(out) == [("DATA_RESYNC", 6, 8), ("DATA_RESYNC", 3, 8), ("DATA_RESYNC", 3, 8)]


def test_a_read_finds_what_a_subscription_would() -> None:
    member = Member()

    def fetched(**asked: object) -> tuple[list[int], tuple[int, int] | None]:
        found = member.backfill.fetched(Fetch(subject="/a/b", **asked), 0)  # type: ignore[arg-type]
        missing = found.missing
        ends = None if missing is None else (missing.first.seq, missing.last.seq)
        return [one.entry.seq for one in found.deliveries], ends

    assert fetched() == ([5], None)
    assert fetched(history=2) == ([4, 5], None)
    assert fetched(history=0) == ([], None)
    assert fetched(after=Position(1, 3)) == ([4, 5], None)
    assert fetched(after=Position(1, 1)) == ([5], (2, 5))
    assert fetched(after=Position(1, 9)) == ([], None)
