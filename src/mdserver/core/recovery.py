"""Recovery: what a subscriber missed of a subject since a position.

A cache holds the newest messages of a subject without a gap, from after `floor` to `seq`. So a
position is one of four cases: everything after it is cached (`Missed`); it lies below `floor`, so
the cache lacks some of what follows (`Lost`); the subscriber has seen more than this member, which
will catch up (`Ahead`); or the subscriber has seen messages that are not part of this member's log
and never will be (`forked`, reported as `Lost`).

A subject that is not known may have been forgotten, with any number up to the floor of its group.
So it counts as one of which the floor is both the newest position and `floor` (in the specification
"the floor stands for what is not known").

The epoch tells the last case. In one log each seq of a subject has exactly one epoch, and epochs
never fall as seq rises. Two positions with the same seq and different epochs are therefore of
different logs, and so is a position with a higher seq but a lower epoch than the newest entry.
"""

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from mdserver.core.cache import SubjectState
from mdserver.core.events import Delivery
from mdserver.core.message import NO_FLOOR, Entry, GroupFloor, MessageType, Position


@frozen
class Missed:
    """All entries after the position, in order; empty if nothing was missed."""

    entries: Sequence[Entry]


@frozen
class Lost:
    """The entries after the position are not all cached any more.

    `first` to `last` is the range that the subscriber is to regard as missing, both ends included.
    It reaches to the newest position even if the end of it is cached: a snapshot follows instead.
    """

    first: Position
    last: Position


def recover_since(
    state: SubjectState | None, entries: Sequence[Entry], place: int, floor: GroupFloor = NO_FLOOR
) -> Missed | Lost:
    """Compare a place in the log of a group with what is known of one of its subjects.

    `place` counts the entries of the group's log, `entries` are the cached ones of the subject. A
    place does not say which message of the subject was the last one before it, so a loss is
    reported from the first message on.
    """
    if state is None or state.seq == 0:
        return Lost(Position(floor.epoch, 1), floor.position) if floor.place > place else Missed(())
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
    """The subscriber has seen more of the subject than this member."""


def recover(
    state: SubjectState | None,
    entries: Sequence[Entry],
    after: Position,
    floor: Position = NO_FLOOR.position,
) -> Missed | Lost | Ahead:
    """Compare a position with what is known of a subject, of which `entries` are cached.

    `state` is None if nothing is known of the subject, which then had no message beyond `floor`.
    Returns what was missed, or that a part of it is lost, or that the position is ahead of this
    member.
    """
    if state is None or state.seq == 0:
        return _recover_unknown(after, floor)
    newest = state.seq
    if after.seq > newest:
        lost = Lost(Position(state.epoch, 1), Position(state.epoch, newest))
        return lost if forked(state, after) else Ahead()
    missed: list[Entry] = []
    at = Position(state.epoch, newest) if after.seq == newest else None
    for entry in reversed(entries):
        if entry.seq <= after.seq:
            at = Position(entry.epoch, entry.seq)
            break
        missed.append(entry)
    # An entry never changes its epoch. A client that has this seq under another one has seen a
    # message of a fork, and where the fork began is unknown: everything counts as lost.
    if at is not None and at.seq == after.seq != 0 and at.epoch != after.epoch:
        return Lost(Position(state.epoch, 1), Position(state.epoch, newest))
    if after.seq < state.floor:
        return Lost(Position(after.epoch, after.seq + 1), Position(state.epoch, newest))
    missed.reverse()
    return Missed(missed)


def _recover_unknown(after: Position, floor: Position) -> Missed | Lost | Ahead:
    """Compare a position with a subject of which nothing is known but that it may be forgotten."""
    if after.seq > floor.seq:
        return Ahead()
    if after.seq == floor.seq:
        return Missed(())
    return Lost(Position(after.epoch or floor.epoch, after.seq + 1), floor)


def forked(state: SubjectState, after: Position) -> bool:
    """Return whether a position is of a fork of the log, so that this member never reaches it.

    That is so if the position has the higher seq but the lower epoch: further entries get the
    state's epoch or a higher one.
    """
    return after.seq > state.seq and after.epoch < state.epoch


def deliveries(
    entries: Iterable[Entry],
    type: MessageType,  # noqa: A002 - the name on the wire
    match: str | None = None,
    before: Position | None = None,
) -> Iterator[Delivery]:
    """Yield cached messages for one reader, in order.

    `before` is the position before the first one, None if it is unknown. A delivery whose seq does
    not follow directly on the one before names that position (`Delivery.prev`), so that a client
    does not take the gap in the numbering for a loss.
    """
    for entry in entries:
        gap = before is not None and before.seq and entry.seq != before.seq + 1
        yield Delivery(entry, type, match, before if gap else None)
        before = Position(entry.epoch, entry.seq)
