"""True runs made false, so that a check which takes everything does not pass for one that works.

Each change concerns the last election of a run and can be explained by nothing: no later line and
no other order makes up for it.
"""

from collections.abc import Iterable

from attrs import evolve, frozen

from spec.traces import Line, Recorded

Lines = list[tuple[int, Line]]


@frozen
class Spoilt:
    """A false run, and the number of the line at which that must show."""

    run: Recorded
    number: int


def spoilt(runs: Iterable[Recorded]) -> list[Spoilt]:
    """Each run that has an election, changed in one of three ways in turn.

    One in which the seeds change is changed once more, in its last election by a later list.
    """
    found: list[Spoilt] = []
    for run in runs:
        elections = [i for i, (_, line) in enumerate(run.lines) if line["name"] == "Elect"]
        if elections:
            kind, change = CHANGES[len(found) % len(CHANGES)]
            lines, number = change(list(run.lines), elections[-1])
            found.append(Spoilt(evolve(run, name=f"{run.name}, {kind}", lines=lines), number))
        later = [i for i in elections if run.lines[i][1]["list"] > 1]
        if later:
            lines, number = by_an_older_list(list(run.lines), later[-1])
            found.append(
                Spoilt(evolve(run, name=f"{run.name}, an older list", lines=lines), number)
            )
    return found


def promise_of(lines: Lines, elect: int) -> int:
    """Where the vote was given that an election counted first."""
    election = lines[elect][1]
    voter = election["promises"].split(",")[0]
    wanted = ("Promise", voter, election["epoch"])
    return max(
        i
        for i, (_, line) in enumerate(lines[:elect])
        if (line["name"], line["node"], line.get("epoch")) == wanted
    )


def deleted(lines: Lines, elect: int) -> tuple[Lines, int]:
    """Without a vote."""
    number = lines[elect][0]
    del lines[promise_of(lines, elect)]
    return lines, number


def swapped(lines: Lines, elect: int) -> tuple[Lines, int]:
    """The election comes where one of its votes was, and that vote where the election was."""
    vote = promise_of(lines, elect)
    number = lines[elect][0]
    lines[vote], lines[elect] = lines[elect], lines[vote]
    return lines, number


def altered(lines: Lines, elect: int) -> tuple[Lines, int]:
    """The adopted log is said to be longer than any that was promised."""
    number, election = lines[elect]
    lines[elect] = (number, {**election, "length": election["length"] + 1})
    return lines, number


def by_an_older_list(lines: Lines, elect: int) -> tuple[Lines, int]:
    """The same seeds are said to be the list before."""
    number, election = lines[elect]
    lines[elect] = (number, {**election, "list": election["list"] - 1})
    return lines, number


CHANGES = (("a line deleted", deleted), ("two lines swapped", swapped), ("a line altered", altered))
