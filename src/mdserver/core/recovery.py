"""What a subscriber missed of a subject since a position, or that some of it is lost."""

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from mdserver.core.cache import SubjectState
from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Position


@frozen
class Missed:
    """Everything after the position, in order; empty if nothing was missed."""

    entries: Sequence[Entry]


@frozen
class Lost:
    """What came after the position is not all there any more: `first` to `last` are missing."""

    first: Position
    last: Position


def recover_since(
    state: SubjectState | None, entries: Sequence[Entry], place: int
) -> Missed | Lost:
    """Compare a place in the log of a group with what is known of a subject of it.

    Nobody knows which message was the last one before that place, so what is lost begins with the
    first one of all.
    """
    if state is None or state.seq == 0:
        return Missed(())
    if state.dropped > place:
        return Lost(Position(state.epoch, 1), Position(state.epoch, state.seq))
    missed = 0
    for entry in reversed(entries):
        if entry.place <= place:
            break
        missed += 1
    return Missed(entries[len(entries) - missed :])


@frozen
class Ahead:
    """The subscriber has seen more than this member."""


def recover(
    state: SubjectState | None, entries: Sequence[Entry], after: Position
) -> Missed | Lost | Ahead:
    """Compare a position with what is known of a subject, of which `entries` are cached.

    Returns what was missed, or that a part of it is gone, or that the position is ahead.
    """
    newest = 0 if state is None else state.seq
    if after.seq > newest:
        if state is not None and forked(state, after):
            return Lost(Position(state.epoch, 1), Position(state.epoch, newest))
        return Ahead()
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
    """Return whether this member, behind the position in a newer epoch, never reaches it."""
    return after.seq > state.seq and after.epoch < state.epoch


def deliveries(
    entries: Iterable[Entry],
    type: MessageType,  # noqa: A002 - the name on the wire
    match: str | None = None,
    before: Position | None = None,
) -> Iterator[Delivery]:
    """Yield cached messages for one reader, in order.

    `before` is the position before the first one. A message whose number does not follow the one
    before it says which one that was.
    """
    for entry in entries:
        gap = before is not None and before.seq and entry.seq != before.seq + 1
        yield Delivery(entry, type, match, before if gap else None)
        before = Position(entry.epoch, entry.seq)
