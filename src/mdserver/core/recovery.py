"""What a subscriber missed, seen from the last position that it knows."""

from collections.abc import Sequence

from attrs import frozen

from mdserver.core.cache import SubjectState
from mdserver.core.message import Entry, Position
from mdserver.core.subjects import group_of


@frozen
class Missed:
    """Everything after the position, in order; empty where nothing was missed."""

    entries: Sequence[Entry]


@frozen
class Lost:
    """What came after the position is not all there any more: `first` to `last` are missing."""

    first: Position
    last: Position


@frozen
class Behind:
    """The subscriber has seen more than this member."""


def recover(
    state: SubjectState | None, entries: Sequence[Entry], after: Position
) -> Missed | Lost | Behind:
    """Compare a position with what is known of a subject, of which `entries` are cached."""
    newest = 0 if state is None else state.seq
    if after.seq > newest:
        if state is not None and forked(state, after):
            return Lost(Position(state.epoch, 1), Position(state.epoch, newest))
        return Behind()
    if state is None or newest == 0:
        return Missed(())
    missed: list[Entry] = []
    at = Position(state.epoch, newest) if after.seq == newest else None
    for entry in reversed(entries):
        if entry.seq <= after.seq:
            at = Position(entry.epoch, entry.seq)
            break
        missed.append(entry)
    # An entry keeps its epoch for ever: another epoch at the same place is another history.
    if at is not None and at.seq == after.seq != 0 and at.epoch != after.epoch:
        return Lost(Position(state.epoch, 1), Position(state.epoch, newest))
    if after.seq < state.floor:
        return Lost(Position(after.epoch, after.seq + 1), Position(state.epoch, newest))
    missed.reverse()
    return Missed(missed)


def forked(state: SubjectState, after: Position) -> bool:
    """Whether a position can never come up: what it is ahead of has a newer epoch already."""
    return after.seq > state.seq and after.epoch < state.epoch


class Histories:
    """The history id of each subject group.

    `current` is the newest one, which clients are told. A group that kept its numbering when
    another began anew has an older id of its own; positions under either are the same. Ids sort by
    their age, so that all servers that know the same ones tell the same one, in whatever order
    they heard of them.
    """

    def __init__(self, history: str, groups: int) -> None:
        self.current = history
        self._of = [history] * groups

    def of(self, subject: str) -> str:
        """The history id under which a subject is numbered."""
        return self._of[self.group(subject)]

    def group(self, subject: str) -> int:
        """The subject group of a subject."""
        return group_of(subject, len(self._of))

    def of_group(self, group: int) -> str:
        """The history id of a subject group."""
        return self._of[group]

    def know(self, subject: str, history: str) -> bool:
        """Whether a position of this history id says something about the subject."""
        return history in (self.of(subject), self.current)

    def begin(self, history: str, groups: Sequence[int]) -> None:
        """These groups are numbered anew."""
        for group in groups:
            self._of[group] = history
        # Ids of earlier versions are shorter, and sort before those of today.
        self.current = max(dict.fromkeys(self._of), key=lambda known: (len(known), known))
