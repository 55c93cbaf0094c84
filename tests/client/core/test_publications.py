"""Lines of publications: numbers, and what a repeat's failure says."""

from mdserver.client.core.publications import PublicationLines
from mdserver.core.commands import Publish
from mdserver.core.events import Connected, Status, StatusName
from mdserver.core.message import Qos

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

    result = lines.answered(Status(StatusName.PUBLISH_DENIED, id=again.id))

    assert result is not None
    assert result.certain is False, "the first attempt may have been taken"
    assert sent(lines).number == 2, "its number may be taken"


def test_the_failure_of_a_first_attempt_is_certain() -> None:
    lines = opened()

    result = lines.answered(Status(StatusName.PUBLISH_DENIED, id=sent(lines).id))

    assert result is not None
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


def test_a_gap_before_all_that_waits_has_it_numbered_anew() -> None:
    """The server has forgotten the publisher."""
    lines = opened()
    lines.answered(ok(sent(lines)))
    for _ in range(3):
        sent(lines)
    repeats = repeated(lines)
    assert [command.number for command in repeats] == [2, 3, 4]
    for command in repeats:
        lines.answered(gap(command, 1))
    assert [command.number for command in lines.ready()] == [1, 2, 3]
