"""The log of one subject group, as one member holds it.

A log is a sequence of entries of which the first `committed` never change any more; the rest is a
tail that a later epoch may replace:

    0        base             committed        length
    | dropped | kept, agreed  | may be replaced |
    '- tables and cache -'

- *Places* are counted from 0 and never change their meaning while they are committed. An entry at a
  place is known by (epoch, seq): `epoch` is that of the coordinator that numbered it, `seq` counts
  per subject, without gaps and across epochs. A coordinator appends to one log only, and begins
  with an established one, so an entry decides all that stands before it (invariants I3 and I4, the
  Log Matching of raft): that is why `agrees` compares one entry only.
- *Accepted epoch*: `GroupLog.epoch` says with whose log this one agrees, which is not that of its
  last entry: a new coordinator establishes the entries of the one before. An election takes the log
  of the highest (accepted epoch, length), not the longest: the merely longest may be the tail of a
  coordinator that was replaced (in the specification `NotWorse`).
- *Taking over* a log keeps what is committed and replaces the tail (`take_over`). A log that does
  not hold what is committed here is not taken over; its caller says so (`agrees`).
- *Dropping*: committed entries beyond `kept` go, and the cache and the tables (numbering of
  subjects, publishers) stand for them. The tables follow from the log alone and stand for its end;
  `tables` winds them back to what is committed, for a member that has nothing.

A *run* says which entries came from one contact: entry `start + i` answers its ticket `first + i`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from mdserver.cluster.dedupe import Numbers, Publisher, Publishers
from mdserver.core.message import NO_FLOOR, Entry, GroupFloor, Publication, checksum
from mdserver.limits import PUBLISHER_NUMBERS_KEPT

if TYPE_CHECKING:
    from mdserver.core.proposal import Proposal

MISSING = "acknowledged messages are missing"
"""The event in the server log when an elected log lacks what another member holds as committed."""

FORGET = ""
"""The subject of a log entry that forgets its publisher, or subjects, or nothing. No client can
publish to it.
"""

_SUBJECTS = "subjects"
"""The publisher of an entry that forgets subjects: no identity of a client is so short a word, and
members of earlier versions, which forget no subjects, take it for a publisher that they never knew.
"""

_NOBODY = "nobody"
"""The publisher of an entry that changes nothing: all members take it for one they never knew."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Entries `start` to `start + count` (exclusive) are a contact's tickets from `first` on."""

    start: int
    count: int
    contact: str
    first: int


class Tables(msgspec.Struct, array_like=True):
    """The substitute for a log's dropped beginning: subject -> last seq, publishers, the floor."""

    numbering: dict[str, int]
    publishers: dict[str, Numbers]
    floor: GroupFloor = NO_FLOOR


class Forgotten(msgspec.Struct, frozen=True, array_like=True):
    """The content of an entry that forgets subjects, and the floor of the group from there on."""

    floor: GroupFloor
    subjects: list[str]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Forgotten).decode


def _unseen(publisher: str, content: bytes, now: int) -> Publication:
    """Return a publication for the tables alone: no client's, and for no client."""
    return Publication(FORGET, content, text=False, publisher=publisher, retained=False, time=now)


def forgetting(forgotten: Forgotten, now: int) -> Publication:
    """Return the publication by which all members forget subjects, at the same place."""
    return _unseen(_SUBJECTS, _encode(forgotten), now)


def forgotten_by(entry: Entry) -> Forgotten | None:
    """Return the subjects that an entry forgets; None if it forgets none."""
    publication = entry.publication
    if publication.subject != FORGET or publication.publisher != _SUBJECTS:
        return None
    return _decode(publication.content)


@lru_cache(maxsize=1000)  # each traced step of each member names an entry again
def _digest(subject: str, epoch: int, seq: int, content: bytes) -> str:
    """Return the checksum of an entry (`GroupLog.checksum_at`) as a text."""
    return str(1 + checksum(subject, epoch, seq, content))


class _Removed:
    """What an uncommitted entry took out of the tables, so that it can be taken back.

    A publisher with its numbers; or subjects with theirs, and the floor before.
    """

    __slots__ = ("floor", "known", "numbers", "publisher")

    def __init__(
        self,
        publisher: str,
        known: Publisher | None,
        numbers: dict[str, int],
        floor: GroupFloor | None,
    ) -> None:
        self.publisher = publisher
        self.known = known
        self.numbers = numbers
        self.floor = floor

    def copied(self) -> "_Removed":
        """Return a copy whose publisher does not change with this one's."""
        known = None if self.known is None else self.known.copied()
        return _Removed(self.publisher, known, self.numbers, self.floor)


class LogSlice(msgspec.Struct, frozen=True, array_like=True):
    """The log of a group from `start` on, as it goes to other members and to the disk.

    It is of `epoch` and stands under `history`; its first `committed` entries are committed.
    """

    group: int
    epoch: int
    history: str
    start: int
    entries: list[Entry]
    runs: list[Run]
    committed: int


class GroupLog:
    """The entries of a group that are kept, the tables, and how far the log is committed.

    `epoch` is the newest epoch whose coordinator's log this one is a prefix of: the *accepted
    epoch* of a seed. `kept` bounds the committed entries that stay for members that were away,
    `numbers_kept` the numbers of each publisher whose repeats get their position.
    `forgot`: the last commit had entries that are for the tables alone. `floor` is what subjects
    that `numbering` does not have begin above.
    """

    __slots__ = (
        "_begun",
        "_removed",
        "_told",
        "base",
        "committed",
        "entries",
        "epoch",
        "floor",
        "forgot",
        "kept",
        "length",
        "numbering",
        "numbers_kept",
        "publishers",
        "runs",
    )

    def __init__(self, kept: int, numbers_kept: int = PUBLISHER_NUMBERS_KEPT) -> None:
        self.kept = kept
        self.numbers_kept = numbers_kept
        self.clear()

    def clear(self) -> None:
        """Become the empty log of no epoch."""
        self.epoch = 0
        self.base = 0
        self.committed = 0
        self.length = 0
        self.entries: list[Entry] = []
        self.runs: list[Run] = []
        self.numbering: dict[str, int] = {}
        self.publishers = Publishers(self.numbers_kept)
        self.floor = NO_FLOOR
        self._removed: dict[int, _Removed] = {}
        """Places of uncommitted entries that forget something -> what that was."""
        self._begun: dict[int, None] = {}
        """Places of uncommitted entries that are the first of their subject, above a floor."""
        self._told = 0
        self.forgot = False

    def number(self, epoch: int, publications: Iterable[Publication], run: Run | None) -> None:
        """Append publications under the next sequence numbers of their subjects."""
        numbering, entries, floor = self.numbering, self.entries, self.floor.seq
        for publication in publications:
            if floor and publication.subject not in numbering:
                self._begun[self.length + 1] = None
            # A subject that is not in the table may have been forgotten, so it begins above the
            # floor, which is at least its last number (spec: "a subject begins above the floor").
            seq = numbering.get(publication.subject, floor) + 1
            numbering[publication.subject] = seq
            self.length += 1
            entry = Entry(epoch, seq, publication, self.length)
            entries.append(entry)
            if publication.publisher:
                self._note(entry)
        if run is not None:
            self.runs.append(run)

    def append_committed(self, epoch: int, proposals: "Iterable[Proposal]") -> list[Entry]:
        """Append publications that their publishers did not number; return the entries, committed.

        Everything before them has to be committed. They belong to no run: a run says which tickets
        its entries answer, and these publications have no tickets.
        """
        assert self.committed == self.length, "entries are committed in their order"
        numbering, length, floor = self.numbering, self.length, self.floor.seq
        entries: list[Entry] = []
        for proposal in proposals:
            publication = proposal.publication
            subject = publication.subject
            seq = numbering[subject] = numbering.get(subject, floor) + 1
            length += 1
            entries.append(Entry(epoch, seq, publication, length))
        self.length = self.committed = length
        if self.kept:
            self.entries += entries
            self._drop()
        else:
            self.base = length
        return entries

    def append(self, entries: Sequence[Entry], runs: Iterable[Run]) -> None:
        """Append entries that a coordinator numbered."""
        numbering = self.numbering
        for entry in entries:
            self.length += 1
            if not entry.place:  # a member of an earlier version made it
                entry = msgspec.structs.replace(entry, place=self.length)  # noqa: PLW2901
            self.entries.append(entry)
            subject = entry.publication.subject
            if self.floor.seq and subject not in numbering:
                self._begun[self.length] = None
            numbering[subject] = entry.seq
            if entry.publication.publisher:
                self._note(entry)
        self.runs.extend(runs)

    def _note(self, entry: Entry) -> None:
        """Note the last entry in the table of publishers, and what it takes to undo that."""
        publication = entry.publication
        if publication.subject == FORGET:
            self._removed[self.length] = self._forget(entry)
        elif publication.number:
            self.publishers.apply(entry, self.length)

    def _forget(self, entry: Entry) -> _Removed:
        """Take out of the tables what an entry forgets, and return it."""
        forgotten = forgotten_by(entry)
        if forgotten is None:
            name = entry.publication.publisher
            return _Removed(name, self.publishers.forget(name), {}, None)
        numbering, before = self.numbering, self.floor
        numbers = {one: numbering.pop(one) for one in forgotten.subjects if one in numbering}
        # Of members the coordinator alone decides (spec: "forgetting raises the floor").
        self.floor = forgotten.floor
        return _Removed("", None, numbers, before)

    def forget_subjects(self, epoch: int, subjects: list[str], place: int, now: int) -> None:
        """Append an entry that forgets subjects, which have no entry behind a place."""
        greatest = max(self.numbering.get(subject, 0) for subject in subjects)
        floor = GroupFloor(epoch, max(self.floor.seq, greatest), max(self.floor.place, place))
        self.number(epoch, [forgetting(Forgotten(floor, subjects), now)], None)

    def append_empty(self, epoch: int, now: int) -> None:
        """Append an entry that changes nothing; once it is committed, all before it is."""
        self.number(epoch, [_unseen(_NOBODY, b"", now)], None)

    def forget_publishers(self) -> None:
        """Forget all publishers; all entries have to be committed, so that none is taken back."""
        self.publishers = Publishers(self.numbers_kept)

    def truncate(self, length: int) -> None:
        """Drop the entries from `length` on; they are not committed."""
        assert length >= self.committed, "a committed entry is never dropped"
        while self.length > length:
            at = self.length
            entry = self.entries.pop()
            self.length -= 1
            removed = self._removed.pop(at, None)
            if removed is not None and removed.floor is not None:
                self.floor = removed.floor
            begun = self._begun.pop(at, at) is None
            _take_back(entry, self.numbering, self.publishers, removed, begun=begun)
        self.runs = [run for run in self.runs if run.start < length]
        self._told = min(self._told, len(self.runs))
        if self.runs and self.runs[-1].start + self.runs[-1].count > length:
            last = self.runs[-1]
            self.runs[-1] = msgspec.structs.replace(last, count=length - last.start)

    def take_over(self, epoch: int, start: int, entries: Sequence[Entry], runs: list[Run]) -> None:
        """Become a prefix of another log of this group, of which `entries` are those from `start`.

        What is committed here stays as it is: every log that may be taken over agrees on that. The
        uncommitted tail goes, since a later epoch may have other entries in its place.
        """
        keep = max(self.committed, start)
        self.truncate(keep)
        if keep - start < len(entries):
            self.append(entries[keep - start :], runs_from(runs, keep))
        self.epoch = epoch

    def agrees(self, start: int, entries: Sequence[Entry]) -> bool:
        """Return whether another log, `entries` from `start` on, holds all that is committed here.

        Only the last committed entry is compared: an entry decides all that stands before it. If
        it is not among those that are held at both sides, the lengths alone are compared.
        """
        if start + len(entries) < self.committed:
            return False
        at = self.committed - 1
        if not max(start, self.base) <= at:
            return True
        theirs, ours = entries[at - start], self.entries[at - self.base]
        return (theirs.epoch, theirs.seq) == (ours.epoch, ours.seq) and (
            theirs.publication.subject == ours.publication.subject
            and theirs.publication.content == ours.publication.content
        )

    def uncommitted(self) -> dict[str, int]:
        """Return how many numbers of each publisher are not committed."""
        found: dict[str, int] = {}
        for entry in self.since(self.committed):
            if entry.publication.number:
                name = entry.publication.publisher
                found[name] = found.get(name, 0) + 1
        return found

    def checksum_at(self, place: int) -> int:
        """Return a checksum of the entry at a place, never 0; or 0 if it is not held."""
        if not self.base <= place < self.length:
            return 0
        entry = self.entries[place - self.base]
        publication = entry.publication
        return 1 + checksum(publication.subject, entry.epoch, entry.seq, publication.content)

    def digests(self, most: int) -> str:
        """Return checksums of the last entries that are held, joined by commas."""
        return ",".join(
            [
                _digest(held.publication.subject, held.epoch, held.seq, held.publication.content)
                for held in self.entries[-most:]
            ]
        )

    def since(self, start: int) -> list[Entry]:
        """Return the entries from `start` on, which is not before `base`."""
        return self.entries[start - self.base :]

    def runs_since(self, start: int) -> list[Run]:
        """Return the runs that reach beyond `start`, of entries that are still here."""
        return [run for run in self.runs if run.start + run.count > start]

    def commit(self, length: int) -> tuple[list[Entry], list[Run]]:
        """Commit the entries up to `length`; return the new ones and their runs."""
        assert self.committed <= length <= self.length
        before = self.committed
        entries = self.entries[before - self.base : length - self.base]
        self.committed = length
        told = self._told
        if (
            len(self.runs) - told == 1
            and self.runs[told].start >= before
            and (self.runs[told].start + self.runs[told].count == length)
        ):
            runs, self._told = [self.runs[told]], told + 1  # nearly always, if little goes on
        else:
            runs = self._runs_within(before, length)
        self.forgot = bool(self._removed)
        if self.forgot:
            self._removed = {at: held for at, held in self._removed.items() if at > length}
        if self.publishers.long:
            names = [removed.publisher for removed in self._removed.values()]
            self.publishers.committed(entries, names)
        if self._begun:
            self._begun = {at: None for at in self._begun if at > length}
        if length - self.base > 2 * self.kept:
            self._drop()
        return entries, runs

    def _drop(self) -> None:
        """Drop committed entries with their runs, once there are more than twice those to keep.

        Dropping many at a time makes the cost of each entry constant.
        """
        base = self.committed - self.kept
        if base - self.base <= self.kept:
            return
        del self.entries[: base - self.base]
        self.base = base
        # With nothing kept, a run that was handed on whole is of no more use.
        done = not self.kept and self._told == len(self.runs)
        kept = [] if done else self.runs_since(base)
        self._told -= len(self.runs) - len(kept)
        self.runs = kept

    def _runs_within(self, start: int, end: int) -> list[Run]:
        """Return the runs of the entries from `start` to `end`, cut to them, each entry once."""
        found: list[Run] = []
        while self._told < len(self.runs):
            run = self.runs[self._told]
            first, last = max(run.start, start), min(run.start + run.count, end)
            if first >= end:
                break
            if last - first == run.count:  # nearly always
                found.append(run)
            else:
                skipped = first - run.start
                found.append(Run(first, last - first, run.contact, run.first + skipped))
            if run.start + run.count > end:
                break
            self._told += 1
            if last == end:
                break
        return found

    def tables(self) -> Tables:
        """Return the tables as they are at `committed`, for a member that has none of the log."""
        numbering, publishers = dict(self.numbering), self.publishers.copied()
        floor = self.floor
        for at in range(self.length, self.committed, -1):
            entry = self.entries[at - 1 - self.base]
            removed = self._removed.get(at)
            if removed is not None:
                removed = removed.copied()
                floor = floor if removed.floor is None else removed.floor
            _take_back(entry, numbering, publishers, removed, begun=at in self._begun)
        return Tables(numbering, publishers.told(), floor)

    def install(self, start: int, tables: Tables) -> None:
        """Replace the whole log by tables that stand for its first `start`, committed entries.

        They stay as they are: the caller may write them down later.
        """
        epoch = self.epoch
        self.clear()
        self.epoch = epoch
        self.base = self.committed = self.length = start
        self.numbering = dict(tables.numbering)
        self.publishers.take(tables.publishers, start)
        self.floor = tables.floor


def _take_back(
    entry: Entry,
    numbering: dict[str, int],
    publishers: Publishers,
    removed: _Removed | None,
    *,
    begun: bool,
) -> None:
    """Take the last entry of a log out of tables.

    `removed` is what it forgot, `begun` whether it was the first of its subject above a floor.
    """
    publication = entry.publication
    if entry.seq > 1 and not begun:
        numbering[publication.subject] = entry.seq - 1
    else:
        del numbering[publication.subject]
    if removed is not None:
        numbering |= removed.numbers
        if removed.known is not None:
            publishers.remember(removed.publisher, removed.known)
    elif publication.number:
        publishers.undo(entry)


def runs_from(runs: Iterable[Run], start: int) -> list[Run]:
    """Return the parts of runs that lie at or after a place in the log."""
    found: list[Run] = []
    for run in runs:
        before = min(max(start - run.start, 0), run.count)
        if before < run.count:
            found.append(
                Run(run.start + before, run.count - before, run.contact, run.first + before)
            )
    return found
