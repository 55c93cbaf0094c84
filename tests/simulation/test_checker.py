"""The history checker accepts a good history and finds each class of bad one."""

import pytest

from mdserver.core.commands import PositionAfter
from simulation.checker import CLASSES, Checker, check
from simulation.history import (
    Acked,
    Confirmed,
    Delivered,
    Event,
    Gap,
    Published,
    Refused,
    Reset,
    Settled,
    Subscribed,
    event_of,
    line_of,
)
from simulation.recording import Recorder


def published(at: int, name: str, number: int = 0) -> Published:
    return Published(at, name, "/a/b", "pub" if number else "", number)


def acked(at: int, name: str, seq: int, epoch: int = 1) -> Acked:
    return Acked(at, name, "/a/b", "h", epoch, seq)


def delivered(at: int, name: str, seq: int, epoch: int = 1, history: str = "h") -> Delivered:
    return Delivered(at, "c", name, "/a/b", history, epoch, seq)


GOOD: list[Event] = [
    Subscribed(0, "c", "/a/b"),
    published(1, "p1", 1),
    published(2, "p2", 2),
    acked(3, "p1", 1),
    delivered(4, "p1", 1),
    acked(5, "p2", 2),
    delivered(6, "p2", 2),
    published(7, "p3", 3),
    delivered(8, "p3", 3, 4),
    acked(9, "p3", 3, 4),
    published(10, "p4", 4),
    Refused(11, "p4", True),
    Settled(12, "c", "/a/b"),
]

BAD: dict[str, list[list[Event]]] = {
    "phantom": [
        [delivered(1, "ghost", 1)],
        [published(1, "p"), Refused(2, "p", True), delivered(3, "p", 1)],
    ],
    "fork": [
        [published(1, "p"), published(1, "q"), acked(2, "p", 1), delivered(3, "q", 1)],
        [published(1, "p"), acked(2, "p", 1, 1), delivered(3, "p", 1, 2)],
    ],
    "duplicate": [
        [published(1, "p"), delivered(2, "p", 1), delivered(3, "p", 2)],
        [published(1, "p"), delivered(2, "p", 1), delivered(3, "p", 1)],
    ],
    "order": [
        [published(1, "p"), published(1, "q"), delivered(2, "q", 2), delivered(3, "p", 1)],
        [published(1, "p"), published(1, "q"), delivered(2, "q", 1), delivered(3, "p", 1, 1, "i")],
    ],
    "skip": [
        [published(1, "p"), published(1, "q"), delivered(2, "p", 1), delivered(3, "q", 3)],
        [
            published(1, "p"),
            delivered(2, "p", 1),
            Delivered(3, "c", "q", "/a/b", "h", 1, 3, snapshot=True),
        ],
        [
            Subscribed(0, "c", "/a/b"),
            Confirmed(1, "c", "/a/b"),
            published(2, "p"),
            published(3, "q"),
            acked(4, "p", 1),
            Delivered(5, "c", "q", "/a/b", "h", 1, 2, snapshot=True),
            acked(6, "q", 2),
        ],
        [
            published(1, "p"),
            acked(2, "p", 4),
            Confirmed(3, "c", "/a/b", "h", 3),
            published(4, "q"),
            delivered(5, "q", 5),
        ],
    ],
    "lost": [
        [published(1, "p"), acked(2, "p", 1), Settled(9, "c", "/a/b")],
        [
            published(1, "p"),
            published(1, "q"),
            acked(2, "p", 1),
            acked(2, "q", 2),
            delivered(3, "p", 1),
            Settled(9, "c", "/a/b"),
        ],
    ],
    "real time": [[published(1, "p"), acked(2, "p", 2), published(3, "q"), acked(4, "q", 1)]],
    "publisher order": [
        [published(1, "p", 1), published(1, "q", 2), acked(2, "q", 1), acked(2, "p", 2)],
    ],
    "disclosed loss": [[Gap(1, "c", "/a/b", 5)], [Reset(1, "c", "/a/b", "i")]],
}


def test_good_history_passes() -> None:
    assert check(GOOD) == []


def test_there_is_a_bad_history_of_each_class() -> None:
    assert tuple(BAD) == CLASSES


@pytest.mark.parametrize(
    ("kind", "events"), [(kind, events) for kind, cases in BAD.items() for events in cases]
)
def test_bad_history_is_named_by_its_class(kind: str, events: list[Event]) -> None:
    assert [violation.kind for violation in check(events)] == [kind]


def test_told_loss_is_no_violation_once_the_majority_was_away() -> None:
    events: list[Event] = [
        published(1, "p"),
        published(1, "q"),
        delivered(2, "p", 3),
        Gap(3, "c", "/a/b", 7),
        delivered(4, "q", 8),
        Reset(5, "c", "/a/b", "i"),
        delivered(6, "p", 1, 9, "i"),
    ]

    assert check(events, majority_kept=False) == []


def test_a_gap_is_no_violation_if_caches_cannot_hold_so_much_but_a_reset_is() -> None:
    checker = Checker(cached=3)
    for event in [published(1, "p"), delivered(2, "p", 3), Gap(3, "c", "/a/b", 7)]:
        checker.see(event)
    assert checker.finish() == []

    checker.see(Reset(4, "c", "/a/b", "i"))

    assert [v.kind for v in checker.violations] == ["disclosed loss"]


def test_a_gap_of_what_a_cache_holds_is_a_violation_however_small_caches_are() -> None:
    checker = Checker(cached=4)
    for event in [published(1, "p"), delivered(2, "p", 3), Gap(3, "c", "/a/b", 7)]:
        checker.see(event)

    assert [v.kind for v in checker.violations] == ["disclosed loss"]


@pytest.mark.parametrize(
    ("after", "kinds"),
    [((5, 8), []), ((8,), []), ((5, 9), ["skip"]), ((9,), ["skip"])],
)
def test_what_was_told_missing_stays_missing_behind_an_older_snapshot(
    after: tuple[int, ...], kinds: list[str]
) -> None:
    checker = Checker(majority_kept=False, gaps_exact=True)
    for event in [published(1, "p"), delivered(2, "p", 3), Gap(3, "c", "/a/b", 7)]:
        checker.see(event)
    for seq in after:
        checker.see(published(4, f"p{seq}"))
        checker.see(
            Delivered(5, "c", f"p{seq}", "/a/b", "h", 1, seq, snapshot=seq == after[0] and seq < 7)
        )

    assert [v.kind for v in checker.finish()] == kinds


def test_snapshot_may_repeat_a_position_and_after_a_gap_jump_but_not_go_back() -> None:
    snapshot = Delivered(3, "c", "q", "/a/b", "h", 1, 5, snapshot=True)
    checker = Checker()
    for event in [published(1, "p"), delivered(2, "p", 5), snapshot]:
        checker.see(event)
    assert checker.finish() == []

    checker.see(Delivered(4, "c", "p", "/a/b", "h", 1, 4, snapshot=True))

    assert [v.kind for v in checker.violations] == ["order"]


def test_subscribing_anew_starts_anywhere() -> None:
    events: list[Event] = [
        published(1, "p"),
        published(1, "q"),
        delivered(2, "p", 3),
        Subscribed(3, "c", "/a/b"),
        delivered(4, "q", 9),
    ]

    assert check(events) == []


CONFIRMED = [
    Confirmed(1, "c", "/a/b", "h", 3),
    published(2, "p"),
    published(2, "q"),
    acked(3, "p", 4),
]


@pytest.mark.parametrize(
    "between",
    [
        [delivered(4, "p", 4)],
        [Gap(4, "c", "/a/b", 4)],
        [Gap(4, "c", "/a/b", 4), Confirmed(5, "c", "/a/b", "h", 3)],
        [Reset(4, "c", "/a/b", "i")],
        [Subscribed(4, "c", "/a/b")],
    ],
    ids=["it came", "a gap", "a gap, confirmed again", "a reset", "subscribed anew"],
)
def test_what_follows_a_confirmation_comes_or_is_told_to_be_missing(between: list[Event]) -> None:
    assert check([*CONFIRMED, *between, delivered(6, "q", 5)], majority_kept=False) == []


def test_a_message_that_conflates_stands_for_those_since_the_confirmation() -> None:
    first = Delivered(6, "c", "q", "/a/b", "h", 1, 5, snapshot=True, conflated=True)

    assert check([*CONFIRMED, first]) == []


def test_a_second_confirmation_does_not_excuse_what_came_before_it() -> None:
    again = Confirmed(4, "c", "/a/b")
    found = check([*CONFIRMED, again, delivered(6, "q", 5)])

    assert [violation.kind for violation in found] == ["skip"]


def test_a_history_that_is_gone_is_a_loss_though_nothing_was_acknowledged_in_it() -> None:
    events = [Confirmed(3, "c", "/a/b", "h", 0), Gap(4, "c", "/a/b", 0)]

    assert [violation.kind for violation in check(events)] == ["disclosed loss"]


@pytest.mark.parametrize(("last", "kinds"), [(6, ["disclosed loss"]), (7, [])])
def test_a_gap_is_measured_from_where_a_confirmed_subject_stood(
    last: int, kinds: list[str]
) -> None:
    checker = Checker(cached=3)
    for event in [Confirmed(1, "c", "/a/b", "h", 3), Gap(2, "c", "/a/b", last)]:
        checker.see(event)

    assert [violation.kind for violation in checker.violations] == kinds


def test_what_was_missing_of_another_history_excuses_nothing() -> None:
    events = [
        Gap(1, "c", "/a/b", 7),
        Gap(2, "c", "/a/b", 0),
        published(3, "p"),
        published(3, "q"),
        delivered(4, "p", 1),
        delivered(5, "q", 3),
    ]

    assert [v.kind for v in check(events, majority_kept=False)] == ["skip"]


def test_only_subjects_without_a_message_are_confirmed_and_no_patterns() -> None:
    seen: list[Event] = []
    recorder = Recorder("c", seen.append, lambda _: None)
    recorder.positions["/a/b"] = ("h", 1, 7)
    known = {"/a/c": PositionAfter("h", 1, 4)}

    recorder.confirmed(5, ["/a/*", "/a/b", "/a/c", "/a/d"], known.get)

    assert seen == [Confirmed(5, "c", "/a/c", "h", 4), Confirmed(5, "c", "/a/d")]


def test_a_history_is_the_same_after_it_was_written_as_lines() -> None:
    events = [
        *GOOD,
        *CONFIRMED,
        Gap(1, "c", "/a/b", 3),
        Reset(2, "c", "/a/b", "h2"),
        Refused(3, "p", False),
    ]
    assert [event_of(line_of(event)) for event in events] == events
    with pytest.raises(ValueError, match="no event of a history"):
        event_of('{"event": "Nothing"}')
    with pytest.raises(ValueError, match="at"):
        event_of('{"event": "Published", "at": "soon", "publication": "p", "subject": "/s"}')


def test_if_subjects_are_forgotten_a_client_is_behind_as_long_as_something_seems_lost() -> None:
    checker = Checker(majority_kept=False, expires=True)
    numbers = range(1, 6)
    for number in numbers:
        checker.see(published(number, f"p{number}", number))
        checker.see(acked(10 + number, f"p{number}", number))

    def behind() -> str | None:
        return checker.behind("c", "h", {}, ["/a/b"])

    assert behind() is None, "it has no position to come back with"
    checker.see(delivered(20, "p3", 3))
    assert behind() == "c ended at 3 of /a/b, p5 at 5 was acked"
    checker.see(Gap(21, "c", "/a/b", 4))
    assert behind() == "c ended at 3 of /a/b, p5 at 5 was acked"
    checker.see(Gap(22, "c", "/a/b", 5))
    assert behind() is None
    checker.see(Gap(23, "c", "/a/b", 0))
    assert behind() is None, "what another id numbered cannot come any more"


def test_of_a_subject_that_went_with_a_majority_nothing_comes() -> None:
    seen = {"/a/b": ("before", 1, 3)}
    checker = Checker(majority_kept=False)
    checker.newest = {("before", "/a/b"): 5}
    assert checker.behind("c", "h", seen, ["/a/b"], unknown=["/a/b"]) is None
    assert checker.behind("c", "before", seen, ["/a/b"], unknown=["/a/b"]) is not None
    checker.majority_kept = True
    assert checker.behind("c", "h", seen, ["/a/b"], unknown=["/a/b"]) is not None
