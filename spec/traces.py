"""Recorded runs checked against `TraceLog.tla`: is each one a behaviour of the specification?

A file holds JSON lines (spec/README.md, "Traces"). Every group of it is a run of its own. Names,
epochs and publications are numbered in the order of their value or first appearance, so that runs
of different clusters fit one TLA+ module and one start of the model checker.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from spec import tlc

Line = dict[str, Any]
ACTIONS = (
    "Start",
    "Restore",
    "Lose",
    "Promise",
    "Elect",
    "Sync",
    "ColdSync",
    "Activate",
    "Publish",
    "Accept",
    "Commit",
    "Register",
    "Readmit",
    "Install",
    "Learn",
    "Forget",
    "Stop",
)
OF_SEEDS = ("Restore", "Lose", "Promise", "Sync", "ColdSync", "Accept", "Install")
"""Actions that only seeds take."""
BEGIN = ("Restore", "Lose", "Install")
"""Those of them by which a seed may begin that was none at the start."""
RUNS_PER_START = 400
TIMEOUT_S = 600


class BadTraceError(Exception):
    """A line cannot be read as a protocol step; the message names file and line."""


@frozen
class Recorded:
    """One group's steps: `lines` are (line number in the file, values), as far as they are judged.

    `left_out` are those from the first on that the module does not know (`first_of_a_list`).
    """

    name: str
    seeds: tuple[str, ...]
    lines: Sequence[tuple[int, Line]]
    left_out: Sequence[tuple[int, Line]] = ()

    @property
    def voters(self) -> tuple[str, ...]:
        """The seeds of all lists: those of the start, and those of which elections tell."""
        told = (*self.lines, *self.left_out)
        elections = [line for _, line in told if line["name"] == "Elect"]
        others = [seat for line in elections for seat in seats_of(line)]
        return tuple(dict.fromkeys((*self.seeds, *others)))


@frozen
class Rejected:
    """The first line that no action explains."""

    name: str
    number: int
    line: Line


@frozen
class Verdict:
    """What became of the runs; `events` counts the lines that were checked."""

    runs: int
    events: int
    seconds: float
    rejected: list[Rejected] = field(factory=list)


def read(path: Path) -> list[Recorded]:
    """The runs of a file, one a group. Raises BadTraceError."""
    return split(str(path), numbered(path))


def numbered(path: Path) -> list[tuple[int, Line]]:
    """The lines of a file with their numbers. Raises BadTraceError."""
    lines: list[tuple[int, Line]] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise BadTraceError(f"{path}:{number}: not JSON: {error}") from None
        if not isinstance(line, dict) or line.get("name") not in ACTIONS or "node" not in line:
            raise BadTraceError(f"{path}:{number}: not a step: wants `name` (an action) and `node`")
        if line["name"] == "Elect" and not ("list" in line and "seats" in line):
            what = "an election without its list of seeds (`list`, `seats`)"
            raise BadTraceError(f"{path}:{number}: {what}")
        lines.append((number, line))
    return lines


def merged(paths: Sequence[Path]) -> list[str]:
    """The lines of several members' files of one run, in the order of their times (`at`).

    A member that starts with an incarnation that it had before lost its vote record: its `Start`
    says so from here on. Raises BadTraceError.
    """
    lines: list[tuple[int, Line]] = []
    for path in paths:
        for number, line in numbered(path):
            if not isinstance(line.get("at"), int):
                raise BadTraceError(f"{path}:{number}: `at` is missing: the time in nanoseconds")
            lines.append((line["at"], line))
    lines.sort(key=lambda timed: timed[0])
    newest: dict[str, int] = {}
    for _, line in lines:
        if line["name"] == "Start":
            line["lost"] = line["lost"] or line["incarnation"] <= newest.get(line["node"], 0)
            newest[line["node"]] = line["incarnation"]
    return [json.dumps(line) + "\n" for _, line in lines]


def split(name: str, lines: Sequence[tuple[int, Line]]) -> list[Recorded]:
    """One run a group; lines without a group belong to each."""
    seeds = first_list(line for _, line in lines)
    groups = dict.fromkeys(v["group"] for _, v in lines if v.get("group") is not None)
    return [of_group(f"{name} group {group}", seeds, lines, group) for group in groups]


def first_list(lines: Iterable[Line]) -> tuple[str, ...]:
    """Return the list of seeds with which a run begins.

    Elections name it. Where there are none, these are the members that start as seeds: one that
    becomes a seed later starts as one as well.
    """
    starting: dict[str, None] = {}
    for line in lines:
        if line["name"] == "Elect" and line["list"] == 1:
            return tuple(seats_of(line))
        if line["name"] == "Start" and line.get("seed"):
            starting[line["node"]] = None
    return tuple(starting)


def of_group(
    name: str, seeds: tuple[str, ...], lines: Sequence[tuple[int, Line]], group: int
) -> Recorded:
    """Return the run of a group."""
    own = [(number, line) for number, line in lines if line.get("group") in {None, group}]
    told = list(steps(own, group))
    until = first_of_a_list(seeds, told)
    return Recorded(name, seeds, told[:until], told[until:])


def first_of_a_list(seeds: tuple[str, ...], lines: Sequence[tuple[int, Line]]) -> int:
    """Return the first line of a change of seeds that `TraceLog` does not know, or their length.

    These are the steps of a seed that no list of the run has, or that no line says was given the
    log, as a coordinator that becomes a seed has it; and the line by which a member is given the
    log that was a seed before, and is none in this list: it may begin anew.
    """
    elections = [line for _, line in lines if line["name"] == "Elect"]
    ever = {*seeds, *(seat for line in elections for seat in seats_of(line))}
    listed = voted = has_log = frozenset(seeds)
    for index, (_, line) in enumerate(lines):
        name, node, given = line["name"], line["node"], line.get("seed")
        if name == "Elect":
            listed = frozenset(seats_of(line))
            voted |= listed
        elif name == "Start" and node not in seeds:
            has_log -= {node}
        elif name in {"Register", "Readmit"}:
            if given not in ever or (given not in listed and given in voted):
                return index
        elif name in OF_SEEDS:
            if node not in ever or (node not in has_log and name not in BEGIN):
                return index
            has_log |= {node}
    return len(lines)


def seats_of(line: Line) -> list[str]:
    """Return the seeds by whose list an epoch was elected."""
    seats: list[str] = line["seats"].split(",")
    return seats


def steps(lines: Sequence[tuple[int, Line]], group: int) -> Iterator[tuple[int, Line]]:
    """Yield a group's lines, one publication each."""
    for number, line in lines:
        if line["name"] == "Start":
            promised = line["promised"][group] if line.get("promised") else 0
            yield number, {**line, "promised": promised}
        elif line["name"] == "Publish":
            names = line["publications"].split(",")
            digests = digests_of(line)
            for length, publication in enumerate(names, line["length"] - len(names) + 1):
                held = ",".join(digests[: max(0, len(digests) - line["length"] + length)])
                one = {"length": length, "publication": publication, "digests": held}
                yield number, {**line, **one}
        else:
            yield number, line


def digests_of(line: Line) -> list[str]:
    """Return the checksums of the last entries of a log, up to its length."""
    return [digest for digest in line.get("digests", "").split(",") if digest]


@frozen
class Written:
    """A run in the terms of the module, with the bounds that it needs."""

    text: str
    first: str
    epochs: int
    publications: int
    members: int


EPOCHS = ("epoch", "accepted", "promised")
NUMBERS = ("length", "committed", "incarnation", "registered")
TEXTS = ("name", "standing")
MEMBERS = ("node", "seed")
FLAGS = ("cold", "lost")
WITH_CONTENTS = ("Publish", "Accept", "Sync", "ColdSync", "Install", "Restore", "Promise", "Learn")
"""Steps whose entries are compared by content."""
NOBODY = '"?"'
"""A candidate of whom a run has no step."""


def write(run: Recorded) -> Written:
    """The run as a TLA+ sequence of records."""
    epochs = {v[key]: None for _, v in run.lines for key in EPOCHS if v.get(key)}
    epoch_of = {0: 0} | {epoch: i for i, epoch in enumerate(sorted(epochs), 1)}
    voters = run.voters
    members = list(dict.fromkeys([*voters, *(v["node"] for _, v in run.lines)]))
    member_of = {member: f'"s{i}"' for i, member in enumerate(members, 1)}
    publications: dict[str, int] = {}
    contents: dict[str, int] = {}
    records: list[str] = []
    for _, values in run.lines:
        record = {key: f'"{values[key]}"' for key in TEXTS if key in values}
        record |= {key: str(int(values[key])) for key in NUMBERS if key in values}
        record |= {key: member_of[values[key]] for key in MEMBERS if values.get(key) in member_of}
        record |= {key: str(epoch_of[values[key]]) for key in EPOCHS if key in values}
        record |= {key: str(bool(values[key])).upper() for key in FLAGS if key in values}
        if values["name"] == "Promise":
            record["candidate"] = member_of.get(values["candidate"], NOBODY)
            record["named"] = named(values["readmit"], member_of)
        if "publication" in values:
            number = publications.setdefault(values["publication"], len(publications) + 1)
            record["publication"] = str(number)
        digests = digests_of(values) if values["name"] in WITH_CONTENTS else []
        if digests and values["name"] == "Learn":
            digests = digests[: max(0, len(digests) - values["length"] + values["committed"])]
        numbers = [str(contents.setdefault(digest, len(contents) + 1)) for digest in digests]
        record["digests"] = f"<<{', '.join(numbers)}>>"
        if "promises" in values:
            record["voters"] = as_set(values["promises"].split(","), member_of)
            record["list"] = str(values["list"])
            record["seats"] = as_set(seats_of(values), member_of)
        if values["name"] == "Start" and values["node"] not in voters:
            record["name"] = '"Forget"'
        records.append("[" + ", ".join(f"{k} |-> {v}" for k, v in record.items()) + "]")
    text = "<<" + ",\n".join(records) + ">>"
    first = as_set(run.seeds, member_of)
    return Written(text, first, len(epochs), len(publications), len(members))


def as_set(names: Iterable[str], member_of: dict[str, str]) -> str:
    """Return members as a TLA+ set."""
    return "{" + ", ".join(sorted(member_of[name] for name in names)) + "}"


def named(readmit: str, member_of: dict[str, str]) -> str:
    """Return the seeds that an election takes back, with their incarnations, as a TLA+ set."""
    pairs = (item.rpartition("=") for item in readmit.split(",") if item)
    return "{" + ", ".join(f"<<{member_of[seed]}, {start}>>" for seed, _, start in pairs) + "}"


def module(runs: Sequence[Written]) -> str:
    """The module `Traces`."""
    members = ", ".join(f'"s{i}"' for i in range(1, max(r.members for r in runs) + 1))
    body = ",\n".join(run.text for run in runs)
    return (
        "---- MODULE Traces ----\nEXTENDS Naturals\n"
        f"Member == {{{members}}}\n"
        f"MostPublications == {max(r.publications for r in runs)}\n"
        f"Firsts == <<{', '.join(run.first for run in runs)}>>\n"
        f"Traces == <<\n{body}\n>>\n====\n"
    )


def config(seeds: int, epochs: int, invariants: Iterable[str]) -> str:
    """The configuration of the trace check."""
    names = ", ".join(f'"s{i}"' for i in range(1, seeds + 1))
    return (
        "SPECIFICATION TraceSpec\nCONSTANTS\n"
        f" Seed = {{{names}}}\n Publication <- AnyPublication\n"
        " Majority <- TraceMajority\n CommitQuorum <- TraceMajority\n"
        f" MaxEpoch = {epochs}\n"
        " MaxCrash = 0\n Numbered = FALSE\n Off = {}\n Symmetry <- NoSymmetry\n"
        "INVARIANTS " + " ".join(invariants) + "\n"
    )


SAFE = ("AgreementInHistory", "SurvivesInHistory")
EXPLAINED = re.compile(r'<<"EXPLAINED", (\d+)>>')
REACHED = re.compile(r'<<"REACHED", (\d+), (\d+)>>')


def check(runs: Sequence[Recorded]) -> Verdict:
    """Check runs, several hundred a start of TLC. Raises TlcUnavailableError, RuntimeError."""
    rejected: list[Rejected] = []
    seconds = 0.0
    by_seeds: dict[int, list[Recorded]] = {}
    for run in runs:
        by_seeds.setdefault(len(run.voters), []).append(run)
    for seeds, alike in by_seeds.items():
        for start in range(0, len(alike), RUNS_PER_START):
            found, took = check_some(alike[start : start + RUNS_PER_START], seeds)
            rejected += found
            seconds += took
    return Verdict(len(runs), sum(len(r.lines) for r in runs), seconds, rejected)


def check_some(runs: Sequence[Recorded], seeds: int) -> tuple[list[Rejected], float]:
    """Check runs that have the same number of seeds."""
    written = [write(run) for run in runs]
    result, reached = tlc_lines(written, seeds, "Explained", EXPLAINED)
    explained = {int(match[0]) for match in reached}
    wrong = [i for i in range(len(runs)) if i + 1 not in explained]
    seconds = result.seconds
    rejected: list[Rejected] = []
    if wrong:
        result, reached = tlc_lines([written[i] for i in wrong], seeds, "Reached", REACHED)
        seconds += result.seconds
        last = [1] * len(wrong)
        for which, line in reached:
            last[int(which) - 1] = max(last[int(which) - 1], int(line))
        for line_index, index in zip(last, wrong, strict=True):
            number, values = runs[index].lines[line_index - 1]
            rejected.append(Rejected(runs[index].name, number, values))
    return rejected, seconds


def tlc_lines(
    written: Sequence[Written], seeds: int, invariant: str, pattern: re.Pattern[str]
) -> tuple[tlc.Run, list[tuple[str, ...]]]:
    """One start of TLC, and the lines it printed about the runs."""
    epochs = max(1, *(w.epochs for w in written)) if written else 1
    result = tlc.check(
        "TraceLog",
        config(seeds, epochs, (invariant, *SAFE)),
        extra={"Traces.tla": module(written)},
        timeout_s=TIMEOUT_S,
        coverage=False,
    )
    if result.verdict not in {"holds", "violated"}:
        raise RuntimeError(f"TLC did not finish ({result.verdict}):\n{result.output[-3000:]}")
    return result, [tuple(match.groups()) for match in pattern.finditer(result.output)]
