"""What a chaos run knows: what was acknowledged, what it destroyed, and what the archive has."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from attrs import define, evolve, field, frozen
from deltalake import DeltaTable

from mdserver.client import PublishResult, Qos
from mdserver.journal import segments
from mdserver.journal.rows import MessageRow

from .published import Given, number_of, plain

SHOWN = 5


@frozen
class Destroyed:
    """A row of the journal that the run took away: its segment, and whether a later journal is
    another one or an older copy, of which the archive cannot name the holes."""

    segment: int
    position: int
    replaced: bool


@define
class Ledger:
    """All publications by number, and the rows of the journal that were destroyed."""

    given: dict[int, Given] = field(factory=dict)
    acknowledged: dict[int, Given] = field(factory=dict)
    destroyed: dict[int, list[Destroyed]] = field(factory=dict)
    done: Counter[str] = field(factory=Counter)

    def acknowledge(self, given: Given, result: PublishResult) -> None:
        """Note that the server took a publication, and its place if it tells that."""
        self.acknowledged[given.number] = evolve(given, epoch=result.epoch, seq=result.seq)

    @property
    def promised(self) -> list[int]:
        """The acknowledged messages that are in the journal; those with STANDARD are not."""
        return [n for n, given in self.acknowledged.items() if given.qos is Qos.GUARANTEED]

    def destroy(self, stream: Path, paths: list[Path], *, replaced: bool) -> None:
        """Note the rows of segments that are about to be deleted."""
        position = segments.positions(stream).get("archive", 0)
        for path in paths:
            for line in path.read_bytes().splitlines():
                row = _row(line)
                if row is not None:
                    number = number_of(row)
                    gone = Destroyed(int(path.name[4:16]), position, replaced)
                    self.destroyed.setdefault(number, []).append(gone)

    def replace(self) -> None:
        """Note that the journal is another one: the archive names no more holes of the old one."""
        for number, found in self.destroyed.items():
            self.destroyed[number] = [evolve(each, replaced=True) for each in found]


@frozen
class Verdict:
    """What the archive lacks, has twice, or has otherwise; and what was rightly lost."""

    archived: int
    lost: int
    holes: int
    problems: list[str]


def judged(ledger: Ledger, tables: Path) -> Verdict:
    """Compare the archive with what was acknowledged, property by property."""
    archived: dict[int, dict[str, Any]] = {}
    problems: list[str] = []
    twice: Counter[int] = Counter()
    for row in _rows(tables, "messages"):
        content = plain(row["content"], compressed=row["compressed"])
        number = number_of(content)
        twice[number] += 1
        archived[number] = row | {"content": content, "fields": dict(row["fields"] or ()) or None}
    problems += _told("archived more than once", [n for n, count in twice.items() if count > 1])
    problems += _told("archived, and never published", set(archived) - set(ledger.given))
    problems += _different(ledger, archived)
    holes = _holes(tables)
    missing = [number for number in ledger.promised if number not in archived]
    unexplained = [n for n in missing if not _explained(ledger.destroyed.get(n, ()), holes)]
    problems += _told("acknowledged, and neither archived nor in a named hole", unexplained)
    aside = [row for row in _rows(tables, "quarantine") if row["line"] is not None]
    problems += [f"set aside: {row['stream']}: {row['reason']}" for row in aside[:SHOWN]]
    return Verdict(
        sum(number in archived for number in ledger.promised),
        len(missing) - len(unexplained),
        len(holes),
        problems,
    )


def _different(ledger: Ledger, archived: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    shown = 0
    for number, row in archived.items():
        given = ledger.acknowledged.get(number)
        wanted = (given or ledger.given[number]).row() if number in ledger.given else {}
        if given is None or not given.seq:  # the place was not told
            wanted.pop("epoch", None)
            wanted.pop("seq", None)
        wrong = {name: (row[name], value) for name, value in wanted.items() if row[name] != value}
        if wrong and shown < SHOWN:
            shown += 1
            yield f"message {number} differs: {wrong}"


def _explained(destroyed: Any, holes: list[range]) -> bool:
    """Whether a message was destroyed before the archive had it, and where that can be, named."""
    return any(
        each.segment > each.position
        and (each.replaced or any(each.segment in hole for hole in holes))
        for each in destroyed
    )


def _holes(tables: Path) -> list[range]:
    return [
        range(row["src_partition"], row["src_pos"] + 1)
        for row in _rows(tables, "quarantine")
        if row["line"] is None and row["stream"] == "messages"
    ]


def _rows(tables: Path, name: str) -> Iterator[dict[str, Any]]:
    for batch in DeltaTable(tables / name).to_pyarrow_dataset().to_batches():
        yield from batch.to_pylist()


def _row(line: bytes) -> bytes | None:
    """The content of a line as it was given, None for half a line."""
    try:
        row = msgspec.json.decode(line, type=MessageRow)
    except msgspec.DecodeError:
        return None
    content = row.content.encode() if row.content is not None else row.content_base64 or b""
    return plain(content, compressed=row.compressed)


def _told(what: str, numbers: Any) -> list[str]:
    found = sorted(numbers)
    return [f"{len(found)} {what}: {found[:SHOWN]}"] if found else []
