"""What a member tells its clients of subjects that were forgotten: the floor stands for them."""

import msgspec
import pytest

from mdserver.core.commands import Connect, Ping, PositionAfter, Publish, Resume, Subscribe
from mdserver.core.events import Delivery, Mark, Reset, Status, StatusName
from mdserver.core.images import GroupImage, SubjectImage
from mdserver.core.message import Entry, GroupFloor, Publication
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_S, RESERVATION_S
from tests.core.one_seed import OneSeed

FLOOR = GroupFloor(1, 5, 5)


def seed(**settings: int) -> OneSeed:
    one = OneSeed(BrokerSettings(groups=1, **settings))  # type: ignore[arg-type]
    for session in (1, 2):
        one.open(session)
        one.receive(session, [Connect()])
    return one


def entry(subject: str, seq: int, place: int | None = None) -> Entry:
    return Entry(1, seq, Publication(subject, b"%d" % seq), seq if place is None else place)


def forget(one: OneSeed, *subjects: str, floor: GroupFloor = FLOOR) -> list[Output]:
    out: list[Output] = []
    one.broker.forget_subjects(0, subjects, floor, one.now, out)
    return out


def told(out: list[Output], session: int = 1) -> list[tuple[str, str, int, int] | tuple[str, int]]:
    """What a session gets: ranges that may be missing by subject, and messages."""
    found: list[tuple[str, str, int, int] | tuple[str, int]] = []
    for output in out:
        if isinstance(output, Deliver):
            if session in output.sessions:
                found.append(("UPDATE", output.delivery.entry.seq))
        elif not isinstance(output, Send) or output.session != session:
            continue
        elif isinstance(output.event, Delivery):
            found.append((output.event.type.value, output.event.entry.seq))
        elif isinstance(output.event, Status) and output.event.missing is not None:
            missing = output.event.missing
            assert output.event.status is StatusName.DATA_RESYNC
            found.append(("lost", output.event.subject, missing.first.seq, missing.last.seq))
    return found


@pytest.mark.parametrize("exported", [True, False])
def test_a_subject_that_is_only_reserved_elsewhere_was_forgotten_there(*, exported: bool) -> None:
    """The image of a member of an earlier version has reserved subjects, with seq 0."""
    there, away = seed(), seed()
    away.receive(1, [Subscribe(subjects=["/s/a"])])
    for one, count in ((there, 5), (away, 3)):
        one.commit([entry("/s/a", seq) for seq in range(1, count + 1)])
    forget(there, "/s/a")
    there.down = "nobody coordinates the group"
    there.receive(2, [Publish(subject="/s/a", content="on its way")])
    image = there.broker.export_group(0)
    if not exported:
        image = GroupImage("h1", [SubjectImage("/s/a", 0, 0, 0, [], None)], FLOOR)
    assert told(away.take_over(0, image)) == [("lost", "/s/a", 4, 5)]
    after = {"/s/a": PositionAfter("h1", 1, 3)}
    late = away.receive(2, [Subscribe(subjects=["/s/a"], positions=after)])
    assert told(late, 2) == [("lost", "/s/a", 4, 5)]


def test_an_image_has_no_subject_without_a_message() -> None:
    one = seed()
    one.down = "nobody coordinates the group"
    one.receive(2, [Publish(subject="/s/a", content="on its way")])
    assert one.broker.counts().subjects == 1
    assert one.broker.export_group(0).subjects == []


@pytest.mark.parametrize("by_place", [True, False])
def test_what_is_forgotten_while_a_search_waits_is_told_when_it_ends(*, by_place: bool) -> None:
    one = seed()
    one.commit([entry("/a/b", 1, 1)])
    one.writability(1, writable=False)
    command = (
        Resume(subjects=["/s/*"], known="h1", places=[1])
        if by_place
        else Subscribe(subjects=["/s/*"], positions={"/s/*": PositionAfter("h1", 0, 0)})
    )
    assert told(one.receive(1, [command])) == []
    one.commit([entry("/s/a", seq) for seq in range(2, 6)])
    forget(one, "/s/a")
    one.writability(1, writable=True)
    assert told(one.settle()) == [("lost", "/s/*", 1, 5)]


def test_what_is_forgotten_before_a_search_reaches_it_is_told_when_the_search_ends() -> None:
    one = seed(work_at_once=5)
    for number in range(20):
        one.commit([entry(f"/a/{number}", 1, number + 1)])
    one.commit([entry("/a/last", 1, 21)])
    command = Resume(subjects=["/a/*"], known="h1", places=[20])
    assert told(one.receive(1, [command])) == []
    forget(one, "/a/last", floor=GroupFloor(1, 1, 21))
    assert told(one.settle()) == [("lost", "/a/*", 1, 1)]
    assert told(one.commit([entry("/a/last", 2, 22)])) == [("UPDATE", 2)]


def test_a_subject_that_is_new_above_the_floor_is_recovered_after_an_absence() -> None:
    """Of what was forgotten nothing stands behind the floor's place, so nothing is missing."""
    one = seed()
    one.commit([entry("/s/a", seq) for seq in range(1, 6)])
    forget(one, "/s/a")
    one.commit([entry("/b/c", 6, 9)])
    one.commit([entry("/s/b", 6, 10), entry("/s/b", 7, 11)])
    command = Resume(subjects=["/s/*"], known="h1", places=[8])
    assert told(one.receive(1, [command])) == [("RECOVERED", 6), ("RECOVERED", 7)]


def test_a_subject_that_is_new_above_the_floor_is_recovered_at_a_member_that_took_it_over() -> None:
    there, here = seed(), seed()
    there.commit([entry("/s/a", seq) for seq in range(1, 6)])
    forget(there, "/s/a")
    there.commit([entry("/s/b", 6, 10), entry("/s/b", 7, 11)])
    here.take_over(0, there.broker.export_group(0))
    here.broker.reached(0, 11, here.now, [])
    command = Resume(subjects=["/s/*"], known="h1", places=[8])
    assert told(here.receive(1, [command])) == [("RECOVERED", 6), ("RECOVERED", 7)]


def test_a_client_from_before_the_floor_is_told_of_a_subject_that_is_new_above_it() -> None:
    one = seed()
    one.commit([entry("/s/a", seq) for seq in range(1, 6)])
    forget(one, "/s/a")
    one.commit([entry("/s/b", 6, 10), entry("/s/b", 7, 11)])
    command = Resume(subjects=["/s/*"], known="h1", places=[4])
    lost = [("lost", "/s/*", 1, 5), ("lost", "/s/b", 1, 7), ("SNAPSHOT", 7)]
    assert told(one.receive(1, [command])) == lost


def test_after_a_reset_an_image_does_not_tell_the_loss_a_second_time() -> None:
    there, here = OneSeed(BrokerSettings(groups=1), "h2"), seed()
    here.receive(1, [Subscribe(subjects=["/s/*"])])
    there.commit([entry("/s/a", seq) for seq in range(1, 6)])
    forget(there, "/s/a")
    out = here.take_over(0, there.broker.export_group(0))
    assert [one.event for one in out if isinstance(one, Send) and one.session == 1] == [
        Reset(history="h2", subjects=["/s/*"])
    ]


def test_a_subject_that_is_reserved_here_has_missed_nothing_below_the_floor() -> None:
    there, here = seed(), seed()
    here.receive(1, [Subscribe(subjects=["/s/*"])])
    for one in (there, here):
        one.commit([entry("/s/a", seq) for seq in range(1, 6)])
        forget(one, "/s/a")
    here.down = "nobody coordinates the group"
    here.receive(2, [Publish(subject="/s/b", content="on its way")])
    there.commit([entry("/s/b", 6, 6)])
    assert told(here.take_over(0, there.broker.export_group(0))) == [("UPDATE", 6)]


def test_a_session_that_a_floor_releases_is_settled() -> None:
    one = seed()
    one.open(3, "sse")
    after = {"/s/a": PositionAfter("h1", 1, 5)}
    one.receive(3, [Subscribe(subjects=["/s/*"], positions=after), Ping(t=msgspec.Raw(b"1"))])
    one.commit([entry("/s/b", 1)])
    sent = [out for out in forget(one, "/s/b") if isinstance(out, Send) and out.session == 3]
    assert [type(output.event) for output in sent] == [Status, Mark]


def test_subjects_that_are_only_reserved_are_dropped_after_a_while() -> None:
    """Publications that were refused or repeated leave them behind, and nothing else drops them."""
    one = seed(expired_at_once=10, cache_expire=NS_PER_S)
    one.commit([entry("/s/a", 1)])
    one.down = "nobody coordinates the group"
    one.receive(2, [Publish(subject=f"/new/{number}", content="x") for number in range(25)])
    one.pass_time((RESERVATION_S - 1) * NS_PER_S)
    assert one.broker.counts().subjects == 26
    one.pass_time((RESERVATION_S + 1) * NS_PER_S)
    assert one.broker.counts().subjects == 1


def test_a_subject_that_is_reserved_takes_the_place_of_one_that_was_never_used() -> None:
    one = seed()
    one.down = "nobody coordinates the group"
    for life in ("first", "second"):
        one.receive(2, [Publish(subject=f"/{life}/{number}", content="x") for number in range(3)])
        one.pass_time(one.now + (RESERVATION_S + 1) * NS_PER_S)
        assert one.broker.counts().subjects == 3
