"""Lines of publications: numbers, and what a repeat's failure says."""

from mdserver.client.core.publications import PublicationLines
from mdserver.core.commands import Publish
from mdserver.core.events import Connected, Status, StatusName
from mdserver.core.message import Qos
from mdserver.limits import PUBLISHER_SERIES_NUMBERS as SERIES

GROUPS = 4


def session() -> Connected:
    return Connected("s1", "m1", 1, "history", GROUPS, 10_000, 1_000, "p", "key")


def opened() -> PublicationLines:
    lines = PublicationLines(numbered=True, publications_max=100)
    lines.connected(session())
    return lines


def sent(lines: PublicationLines, **more: object) -> Publish:
    _, command = lines.add(Publish(subject="/a/b", content="x", **more))  # type: ignore[arg-type]
    assert isinstance(command, Publish)
    return command


def ok(command: Publish) -> Status:
    return Status(StatusName.PUBLISH_OK, id=command.id, epoch=1, seq=command.number)


def repeated(lines: PublicationLines) -> list[Publish]:
    """Lose the session and begin another; return what is sent again."""
    lines.lost()
    lines.connected(session())
    return list(lines.ready())


def test_the_failure_of_a_repeat_says_nothing_of_the_first_attempt() -> None:
    lines = opened()
    first = sent(lines)
    (again,) = repeated(lines)
    assert again.number == first.number == 1

    (result,) = lines.answered(Status(StatusName.PUBLISH_DENIED, id=again.id))

    assert result.certain is False, "the first attempt may have been taken"
    assert sent(lines).number == 2, "its number may be taken"


def test_the_failure_of_a_first_attempt_is_certain() -> None:
    lines = opened()

    (result,) = lines.answered(Status(StatusName.PUBLISH_DENIED, id=sent(lines).id))

    assert result.certain is True
    assert sent(lines).number == 1


def test_a_late_answer_to_an_earlier_number_takes_nothing_back() -> None:
    lines = opened()
    first, second = sent(lines), sent(lines)
    lines.answered(ok(second))
    lines.answered(ok(first))
    (taken,) = lines.numbering.taken.values()
    assert taken == 2


def test_publications_without_a_number_are_no_part_of_the_numbering() -> None:
    lines = opened()
    standard = sent(lines, qos=Qos.STANDARD)
    assert standard.number is None
    lines.answered(ok(standard))
    assert lines.numbering.taken == {}
    lines.answered(ok(sent(lines)))
    assert list(lines.numbering.taken.values()) == [1]


def gap(command: Publish, expected: int) -> Status:
    return Status(StatusName.PUBLISH_FAILED, id=command.id, certain=True, expected=expected)


def test_a_gap_before_a_repeat_does_not_prove_that_earlier_attempts_were_not_taken() -> None:
    """They were still on their way, and are taken before the last repeat is answered."""
    lines = opened()
    for _ in range(3):
        sent(lines)
    first, second, third = repeated(lines)
    lines.answered(Status(StatusName.PUBLISH_FAILED, id=first.id, certain=False))
    lines.answered(gap(second, 1))
    lines.answered(gap(third, 4))
    lines.retry()
    assert [command.number for command in lines.ready()] == [1, 2, 3]


def test_a_server_that_forgot_the_publisher_gets_another_series() -> None:
    """Another member may still know the numbers that were taken, and what they stood for."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    for _ in range(3):
        sent(lines)
    repeats = repeated(lines)
    assert [command.number for command in repeats] == [2, 3, 4]
    for command in repeats:
        lines.answered(gap(command, 1))
    assert numbers(lines) == [SERIES + 1, SERIES + 2, SERIES + 3]


def numbers(lines: PublicationLines) -> list[int | None]:
    """Return the numbers of what is sent again."""
    return [command.number for command in lines.ready()]


def moved(lines: PublicationLines, expected: int) -> list[int | None]:
    """Publish one at a server that expects this number; return the number it gets then."""
    lines.answered(gap(sent(lines), expected))
    (again,) = lines.ready()
    lines.answered(ok(again))
    return [again.number]


def test_no_number_is_given_twice_however_often_a_client_meets_older_logs() -> None:
    lines = opened()
    for _ in range(3):
        lines.answered(ok(sent(lines)))
    assert moved(lines, 3) == [SERIES + 1]
    assert moved(lines, SERIES + 1) == [2 * SERIES + 1]
    assert moved(lines, 4) == [3 * SERIES + 1]
    assert sent(lines).number == 3 * SERIES + 2


def test_the_next_number_that_is_expected_begins_no_series() -> None:
    """What comes after it in the line was refused for the gap alone."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    refused, behind = sent(lines), sent(lines)
    lines.answered(Status(StatusName.PUBLISH_FAILED, id=refused.id, certain=True))
    lines.answered(gap(behind, 2))
    assert numbers(lines) == [2]


def test_a_publication_that_is_refused_with_its_own_number_keeps_it() -> None:
    """There are too many without a result: an earlier attempt of it may be among them."""
    lines = opened()
    sent(lines)
    (again,) = repeated(lines)
    lines.answered(gap(again, 1))
    assert numbers(lines) == [1]


def test_the_number_of_an_uncertain_publication_is_given_to_no_other() -> None:
    """It is told to be numbered anew, and may stand in a log that is not the server's."""
    lines = opened()
    refused, uncertain = sent(lines), sent(lines)
    lines.answered(Status(StatusName.PUBLISH_FAILED, id=refused.id, certain=True))
    lines.answered(Status(StatusName.PUBLISH_FAILED, id=uncertain.id, certain=False))
    lines.retry()
    (again,) = lines.ready()
    lines.answered(gap(again, 1))
    lines.retry()
    assert numbers(lines) == [SERIES + 1]


def test_a_line_goes_over_to_another_series_as_a_whole() -> None:
    """With its old number the second one would leave no gap for the third to be refused for."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    first = sent(lines)
    for _ in range(2):
        sent(lines)
    lines.answered(gap(first, 1))
    again = repeated(lines)
    assert [command.number for command in again] == [SERIES + 1, SERIES + 2, SERIES + 3]


def test_a_server_without_series_gets_the_number_that_it_expects() -> None:
    """It is of an earlier release, and refuses the first number of a series as any other."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    lines.answered(gap(sent(lines), 1))
    (again,) = lines.ready()
    lines.answered(gap(again, 1))
    lines.retry()
    assert numbers(lines) == [1]


def test_a_later_run_goes_on_behind_the_series_that_the_numbering_has() -> None:
    lines = opened()
    lines.answered(ok(sent(lines)))
    assert moved(lines, 1) == [SERIES + 1]
    later = PublicationLines(numbered=True, publications_max=100, resumed=lines.numbering)
    later.connected(session())
    assert moved(later, 2) == [2 * SERIES + 1]


def test_what_may_have_been_taken_gets_no_number_of_a_server_without_series() -> None:
    """The series with the first attempt is known there by no name: a repeat would be taken."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    assert moved(lines, 1) == [SERIES + 1]
    lost = sent(lines)
    (again,) = repeated(lines)
    new = sent(lines)
    assert (again.number, new.number) == (SERIES + 2, SERIES + 3)
    assert [lines.answered(gap(each, 1)) for each in (again, new)] == [[], []]
    first, second = lines.ready()
    assert (first.number, second.number) == (2 * SERIES + 1, 2 * SERIES + 2)
    assert lines.answered(gap(first, 1)) == []
    (result,) = lines.answered(gap(second, 1))
    assert (result.publication, result.certain) == (lost.id, False)
    lines.retry()
    assert [(command.id, command.number) for command in lines.ready()] == [(new.id, 1)]


def test_what_may_have_been_taken_ends_with_the_connection_to_a_server_without_series() -> None:
    lines = opened()
    lines.answered(ok(sent(lines)))
    lost = sent(lines)
    (again,) = repeated(lines)
    behind = sent(lines)
    for command in (again, behind):
        lines.answered(gap(command, 1))
    first, second = lines.ready()
    assert (first.number, second.number) == (SERIES + 1, SERIES + 2)
    assert lines.answered(gap(first, 1)) == []
    (result,) = lines.lost()
    assert (result.publication, result.certain) == (lost.id, False)
    lines.connected(session())
    assert [command.id for command in lines.ready()] == [behind.id]


def test_a_failure_in_another_series_says_nothing_of_the_attempts_before_it() -> None:
    """The server's log is older than the one in which they may stand."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    sent(lines)
    (again,) = repeated(lines)
    lines.answered(gap(again, 1))
    (again,) = lines.ready()
    assert again.number == SERIES + 1
    (result,) = lines.answered(Status(StatusName.PUBLISH_DENIED, id=again.id))
    assert result.certain is False


def test_what_is_behind_one_that_ended_uncertain_is_not_sent_in_another_series() -> None:
    """The first attempts are on a slow way: the one that was denied may still fill the gap."""
    lines = opened()
    for _ in range(3):
        sent(lines)
    denied, *behind = repeated(lines)
    lines.answered(Status(StatusName.PUBLISH_DENIED, id=denied.id))
    new, _ = lines.add(Publish(subject="/a/b", content="x"))
    results = [result for each in behind for result in lines.answered(gap(each, 1))]
    assert [result.publication for result in results] == [each.id for each in behind]
    assert not any(result.certain for result in results)
    assert [(command.id, command.number) for command in lines.ready()] == [(new, SERIES + 1)]


def test_a_repeat_that_was_acknowledged_leaves_nothing_open() -> None:
    lines = opened()
    sent(lines)
    (again,) = repeated(lines)
    lines.answered(ok(again))
    sent(lines)
    (again,) = repeated(lines)
    assert lines.answered(gap(again, 1)) == []
    assert numbers(lines) == [SERIES + 1]
