"""The cache: what a member holds of each subject, its newest messages and its snapshot.

The messages of a subject are bounded by count and by age, those of all subjects together by bytes,
the subjects by number. The messages of one subject leave in order, oldest first, so `entries` never
has a hole: everything after `floor` is there.

One queue of all subjects (`_order`) has an item for each cached message, oldest first, so the
limits on age and bytes are kept by looking at its head. It holds the subjects, not the messages:
the oldest message of the subject at the head is the one that the item stands for. When a message
leaves because its own subject has too many, its item is somewhere within the queue, where removing
it would take long. So the subject's counter `stale` is raised instead: its next `stale` items in
the queue stand for nothing. They are dropped when they reach the head, or all at once when those of
all subjects outnumber the other items.

The age counts from when this member learned of a message, by its own clock: clocks of members
differ, and a wrong one must not empty a cache. Snapshots that expire are in a queue of their own,
in the order of their latest messages.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice

from mdserver.core.images import SubjectImage
from mdserver.core.message import NO_FLOOR, Entry, GroupFloor, Position, Publication
from mdserver.core.settings import BrokerSettings
from mdserver.core.snapshot import Bounds, ProposedFields, Snapshot, fields_bytes
from mdserver.core.statistics import CacheStatistics, SubjectStatistics
from mdserver.core.subject_tree import SubjectTree
from mdserver.core.subjects import Pattern, group_of, shown
from mdserver.limits import (
    ENTRY_OVERHEAD_BYTES,
    NS_PER_S,
    RESERVATION_S,
    SNAPSHOT_FIELDS_MESSAGES_MAX,
    SUBJECTS_COMPARED,
)

_STALE_SLACK = 1024
"""This many stale items are always tolerated: a short queue is not worth compacting."""


class SubjectState:
    """One subject: `entries` has all messages after the seq `floor`, up to the newest position.

    `epoch` and `seq` are that position; both are 0 while a first publication is on its way.
    `dropped` is the place in the group's log up to which entries of the subject may be missing, 0
    if none is. `since` is when the subject was first heard of (ns). `ahead` exists while
    publications with fields have no result yet. `stale` counts the items of `Cache._order` that
    stand for nothing any more.
    """

    __slots__ = (
        "ahead",
        "dropped",
        "entries",
        "epoch",
        "floor",
        "seq",
        "since",
        "snapshot",
        "stale",
        "subject",
    )

    def __init__(self, subject: str, since: int) -> None:
        self.subject = subject
        self.since = since
        self.epoch = 0
        self.seq = 0
        self.floor = 0
        self.dropped = 0
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.ahead: ProposedFields | None = None
        self.stale = 0

    def statistics(self) -> SubjectStatistics:
        """Return the state of this subject as a snapshot."""
        snapshot = self.snapshot
        return SubjectStatistics(
            subject=self.subject,
            epoch=self.epoch,
            seq=self.seq,
            floor=self.floor,
            entries=tuple(self.entries),
            snapshot=None if snapshot is None else snapshot.entry(),
            snapshot_bytes=0 if snapshot is None else snapshot.bytes,
        )


def entry_bytes(entry: Entry) -> int:
    """Return what a cached message counts for: its own size and that of the objects around it."""
    publication = entry.publication
    size = ENTRY_OVERHEAD_BYTES + len(publication.content)
    return size if publication.fields is None else size + fields_bytes(publication.fields)


class Dropped:
    """The messages and bytes that left the cache for one reason since the last call of `taken`."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def taken(self) -> tuple[int, int]:
        """Return the messages and the bytes, and start counting again from 0."""
        counted = self.messages, self.bytes
        self.messages = self.bytes = 0
        return counted


class Cache:
    """The subjects of one member. `bytes` is the memory that their messages and snapshots take."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._subjects: dict[str, SubjectState] = {}
        self._unused: dict[str, SubjectState] = {}
        """Subjects of which nothing has been committed yet, oldest first."""
        self._order: deque[SubjectState] = deque()
        self._learned: deque[int] = deque()  # when, beside `_order`
        self._aging: OrderedDict[SubjectState, int] = OrderedDict()
        """The snapshots that expire -> when their latest message was learned, oldest first."""
        self._looked_at = -1
        self._bounds = Bounds(
            settings.snapshot_fields_max, SNAPSHOT_FIELDS_MESSAGES_MAX * settings.message_bytes_max
        )
        self._stale = 0
        self._tree = SubjectTree()
        self.newcomers: list[str] | None = None
        """Subjects that were added since this was set to a list, for searches (`search`)."""
        self._groups: list[dict[SubjectState, None]] | None = None
        """The subjects of each group; made when a group is first asked for."""
        self._indexed = 0
        """How often `_groups` was made."""
        self.floors = [NO_FLOOR] * settings.groups
        """By group: what is known of its forgotten subjects together."""
        self.bytes = 0
        self.expired = Dropped()
        self.evicted = Dropped()

    def __len__(self) -> int:
        return len(self._subjects)

    @property
    def messages(self) -> int:
        """The number of cached messages."""
        return len(self._order) - self._stale

    def statistics(self) -> CacheStatistics:
        """Return the state of the cache as a snapshot."""
        return CacheStatistics(
            subjects=tuple(self._subjects),
            bytes=self.bytes,
            queued=len(self._order),
            stale=self._stale,
            branches=self._tree.branches,
            indexed=self._indexed,
            noting=self.newcomers is not None,
        )

    def find(self, subject: str) -> SubjectState | None:
        """Return what is known of a subject, None if nothing is."""
        return self._subjects.get(subject)

    def names(self) -> list[str]:
        """Return all subjects."""
        return list(self._subjects)

    def make_room(self, publication: Publication, now: int) -> str | None:
        """Make room for a publication that is about to be proposed.

        Returns why there is no room, None if there is. In that case the caller calls `landed` when
        a publication that is retained and has fields gets its result.
        """
        if publication.subject not in self._subjects and not self._reserve(
            publication.subject, now
        ):
            return f"The limit of {self._settings.subjects_max} subjects is reached."
        if self.bytes >= self._settings.cache_bytes_max and self._full(now):
            return "The snapshots of all subjects take all the memory that they may."
        if publication.fields is None or not publication.retained:
            return None
        broken = self._propose_fields(publication.subject, publication.fields, now)
        return broken and (
            f"The snapshot of {shown(publication.subject)} would have {broken}. Use fewer names, "
            "or publish with `retained` false."
        )

    def _reserve(self, subject: str, now: int) -> bool:
        """Make room for a subject that is new; return False if there is none."""
        # One goes for each that comes, also while nothing is committed that would start the timer.
        self._drop_unused(now)
        if len(self._subjects) >= self._settings.subjects_max:
            return False
        self._unused[subject] = self._add(subject, now)
        return True

    def _full(self, now: int) -> bool:
        """Return whether snapshots alone take all the room, even without those that expired.

        Messages do not count, because the oldest ones give way to new ones (`apply`).
        """
        if self._order:
            return False
        self.expire(now)
        return self.bytes >= self._settings.cache_bytes_max

    def _propose_fields(self, subject: str, fields: dict[str, str], now: int) -> str | None:
        """Count the fields of a publication in, or return which bound the snapshot would break."""
        state = self._subjects[subject]
        ahead = state.ahead
        if ahead is None:
            ahead = ProposedFields(self.snapshot(state, now))
        broken = ahead.take(fields, self._bounds)
        if broken is None:
            state.ahead = ahead
        return broken

    def landed(self, subject: str) -> None:
        """Note the result of a publication whose fields were counted in by `make_room`."""
        state = self._subjects.get(subject)
        if state is not None and state.ahead is not None:
            state.ahead.count -= 1
            if state.ahead.count <= 0:
                state.ahead = None

    def floor_of(self, subject: str) -> GroupFloor:
        """Return the floor of a subject's group."""
        return self.floors[group_of(subject, len(self.floors))]

    def unused(self, subject: str, seq: int, place: int, now: int) -> bool:
        """Return whether nothing is cached of a subject, nor on its way.

        Its last message has to be the one of `seq`, and not to be behind a place in the log.
        """
        state = self._subjects.get(subject)
        return (
            state is not None
            and not state.entries
            and 0 < state.seq == seq
            and 0 < state.dropped <= place
            and state.ahead is None
            and self.snapshot(state, now) is None
        )

    def state(self, subject: str, now: int) -> SubjectState:
        """Return what is known of a subject, which is added if nothing is."""
        return self._subjects.get(subject) or self._add(subject, now)

    def apply(self, state: SubjectState, entry: Entry, now: int) -> None:
        """Cache the next committed entry of a subject, and drop what exceeds the limits for it."""
        if state.seq == 0:
            # The first entry that this member sees need not be the first of the subject.
            state.floor = entry.seq - 1
            state.dropped = self._dropped_before(entry) if state.floor else 0
            self._unused.pop(state.subject, None)
        state.epoch = entry.epoch
        state.seq = entry.seq
        self.bytes += entry_bytes(entry)
        if entry.publication.retained:
            self._apply_snapshot(state, entry, now)
        entries = state.entries
        entries.append(entry)
        self._order.append(state)
        self._learned.append(now)
        settings = self._settings
        if len(entries) > settings.cached_messages_per_subject:
            self._drop_first(state)
            state.stale += 1
            self._stale += 1
            if self._stale > len(self._order) // 2 + _STALE_SLACK:
                self._compact()
        while self.bytes > settings.cache_bytes_max and self._order:
            self._drop_oldest(self.evicted)

    def _dropped_before(self, first: Entry) -> int:
        """Return up to which place entries may be missing before the first one of a subject.

        A subject that begins right above the floor of its group is new, or was forgotten.
        """
        floor = self.floor_of(first.publication.subject)
        before = max(0, first.place - 1)
        return min(before, floor.place) if first.seq == floor.seq + 1 else before

    def _apply_snapshot(self, state: SubjectState, entry: Entry, now: int) -> None:
        """Add a retained entry to the snapshot of its subject."""
        if state.ahead is not None and entry.publication.fields is not None:
            state.ahead.note(entry.publication.fields)
        snapshot = state.snapshot
        if self._settings.snapshot_expire is not None:
            snapshot = self.snapshot(state, now)
            self._aging[state] = now
            self._aging.move_to_end(state)
        if snapshot is None:
            state.snapshot = snapshot = Snapshot(entry)
            self.bytes += snapshot.bytes
            return
        self.bytes -= snapshot.bytes
        snapshot.apply(entry, self._bounds)
        self.bytes += snapshot.bytes

    def advance(self, subject: str, at: Position, floor: int, now: int) -> SubjectState | None:
        """Note that a subject has reached a position by messages that are not to be had any more.

        Between `floor` and the position nothing is missing. A subject that is further already stays
        as it is. Returns its state; None if it is unknown and the limit of subjects is reached.
        """
        state = self._subjects.get(subject)
        if state is None:
            if len(self._subjects) >= self._settings.subjects_max:
                return None
            state = self._add(subject, now)
        if state.seq < at.seq:
            self._unused.pop(subject, None)
            state.epoch, state.seq, state.floor = at.epoch, at.seq, floor
        return state

    def forget_snapshot(self, subject: str) -> None:
        """Drop the snapshot of a subject, whose messages stay."""
        state = self._subjects.get(subject)
        if state is not None:
            self._drop_snapshot(state)

    def snapshot(self, state: SubjectState, now: int) -> Snapshot | None:
        """Return the snapshot of a subject; None if there is none, or if it has expired."""
        snapshot = state.snapshot
        if snapshot is None:
            return None
        expire = self._settings.snapshot_expire
        if expire is None or self._aging[state] + expire > now:
            return snapshot
        self._drop_snapshot(state)
        return None

    def _drop_snapshot(self, state: SubjectState) -> None:
        """Drop the snapshot of a subject, and count its bytes off."""
        self._aging.pop(state, None)
        if state.snapshot is not None:
            self.bytes -= state.snapshot.bytes
            state.snapshot = None

    def entries(self, state: SubjectState, now: int) -> Sequence[Entry]:
        """Return the cached messages of a subject, oldest first; the caller does not change them.

        Messages that expired are dropped before, as far as one step does that.
        """
        if now != self._looked_at:  # Once a step, since a step may read very many subjects.
            self._looked_at = now
            self.expire(now)
        return state.entries

    def expire(self, now: int) -> int | None:
        """Drop messages and snapshots that are too old, at most `expired_at_once` of them.

        Returns when the next one expires (ns), which is not after `now` if some had to be left;
        None if nothing is cached that expires.
        """
        left = self._settings.expired_at_once
        dues: list[int] = []
        order, learned = self._order, self._learned
        kept = self._settings.cache_expire
        while order:
            if left == 0 or (not order[0].stale and learned[0] + kept > now):
                dues.append(learned[0] + kept)
                break
            left -= 1
            self._drop_oldest(self.expired)
        expire = self._settings.snapshot_expire
        while expire is not None and self._aging:
            state, since = next(iter(self._aging.items()))
            if left == 0 or since + expire > now:
                dues.append(since + expire)
                break
            left -= 1
            self._drop_snapshot(state)
        return min(dues, default=None)

    def _drop_oldest(self, dropped: Dropped) -> None:
        """Drop the oldest message of all subjects, and add it to what was dropped."""
        state = self._order.popleft()
        self._learned.popleft()
        if state.stale:
            state.stale -= 1
            self._stale -= 1
            return
        before = self.bytes
        self._drop_first(state)
        dropped.messages += 1
        dropped.bytes += before - self.bytes

    def _drop_first(self, state: SubjectState) -> None:
        """Drop the oldest message of a subject; its place is the new floor."""
        # `entries` is a list, because an empty deque takes 600 bytes, and taking the first item of
        # a list of 1,000 costs only 0.1 us.
        entry = state.entries.pop(0)
        state.floor, state.dropped = entry.seq, entry.place
        self.bytes -= entry_bytes(entry)

    def _compact(self) -> None:
        """Remove all stale items from the queue: the first ones of each subject are the stale."""
        kept: deque[SubjectState] = deque()
        learned: deque[int] = deque()
        for state, since in zip(self._order, self._learned, strict=True):
            if state.stale:
                state.stale -= 1
            else:
                kept.append(state)
                learned.append(since)
        self._order, self._learned = kept, learned
        self._stale = 0

    def _add(self, subject: str, now: int) -> SubjectState:
        """Make the state of a subject that was unknown."""
        state = self._subjects[subject] = SubjectState(subject, now)
        self._tree.add(subject)
        if self.newcomers is not None:
            self.newcomers.append(subject)
        if self._groups is not None:
            self._groups[group_of(subject, len(self._groups))][state] = None
        return state

    def _remove(self, state: SubjectState) -> None:
        """Drop a subject with all that is held of it."""
        del self._subjects[state.subject]
        self._unused.pop(state.subject, None)
        while state.entries:
            self._drop_first(state)
            state.stale += 1
            self._stale += 1
        self._drop_snapshot(state)
        self._tree.remove(state.subject)
        if self._groups is not None:
            del self._groups[group_of(state.subject, len(self._groups))][state]

    def _drop_unused(self, now: int) -> bool:
        """Drop the oldest unused subject, and return whether there was one.

        A subject is kept for RESERVATION_S, because its first publication may still be committed.
        """
        state = next(iter(self._unused.values()), None)
        if state is None or state.since > now - RESERVATION_S * NS_PER_S:
            return False
        self._remove(state)
        return True

    def drop_reserved(self, now: int) -> int | None:
        """Drop subjects that were reserved and never used, at most `expired_at_once` of them.

        Returns when the next one is due (ns), None if there is none.
        """
        for _ in range(self._settings.expired_at_once):
            if not self._drop_unused(now):
                break
        oldest = next(iter(self._unused.values()), None)
        return None if oldest is None else oldest.since + RESERVATION_S * NS_PER_S

    def forget(self, subject: str) -> None:
        """Forget everything about a subject."""
        state = self._subjects.get(subject)
        if state is not None:
            self._remove(state)

    def forget_absent(self, subject: str) -> None:
        """Forget a subject of which no message or snapshot is cached."""
        state = self._subjects.get(subject)
        if state is not None and not state.entries and state.snapshot is None:
            self._remove(state)

    def forget_idle(self, look_at: int) -> list[tuple[str, Position]]:
        """Look at the next `look_at` subjects; forget those without any message or snapshot.

        Returns the subjects with the positions of their last messages.
        """
        idle = [one for one in self._next_subjects(look_at) if not one.entries and not one.snapshot]
        return self._forgotten(idle)

    def forget_oldest(self, most: int) -> list[tuple[str, Position]]:
        """Forget the subjects beyond `most`, and return them with their last positions.

        Those whose newest message is oldest go first, of SUBJECTS_COMPARED that are looked at: the
        oldest ones of all would have to be searched for with each new subject.
        """
        excess = len(self._subjects) - most
        if excess <= 0:
            return []
        found = self._next_subjects(max(2 * excess, SUBJECTS_COMPARED))
        found.sort(key=lambda one: one.entries[-1].publication.time if one.entries else 0)
        return self._forgotten(found[:excess])

    def _next_subjects(self, count: int) -> list[SubjectState]:
        """Return the next subjects that have a position, in turn."""
        found = list(islice(self._subjects.values(), count))
        for state in found:
            self._subjects[state.subject] = self._subjects.pop(state.subject)
        return [state for state in found if state.seq]

    def _forgotten(self, states: Sequence[SubjectState]) -> list[tuple[str, Position]]:
        """Remove subjects; return each with the position up to which it was known."""
        # Behind the floor of a subject without messages nothing came, whatever its position is.
        found = [
            (one.subject, Position(one.epoch, one.seq if one.entries else one.floor))
            for one in states
        ]
        for state in states:
            self._remove(state)
        return found

    def search(self, pattern: Pattern) -> Iterator[str | None]:
        """Yield the subjects of a pattern, and None for each other branch that is looked at.

        The cache may change between two items. Subjects that are added meanwhile may be left out:
        they are in `newcomers`.
        """
        return self._tree.search(pattern)

    def group(self, number: int) -> Sequence[SubjectState]:
        """Return the subjects of a subject group."""
        if self._groups is None:
            self._indexed += 1
            self._groups = [{} for _ in range(self._settings.groups)]
            for state in self._subjects.values():
                self._groups[group_of(state.subject, self._settings.groups)][state] = None
        return list(self._groups[number])

    def drop_group(self, number: int) -> None:
        """Drop the subjects of a group, those that were forgotten as well."""
        self.floors[number] = NO_FLOOR
        for state in self.group(number):
            self._remove(state)

    def image(self, number: int) -> list[SubjectImage]:
        """Return the subjects of a group that have a message, for another member."""
        return [
            SubjectImage(
                state.subject,
                state.epoch,
                state.seq,
                state.floor,
                list(state.entries),
                None if state.snapshot is None else state.snapshot.entry(),
                state.dropped,
            )
            for state in self.group(number)
            if state.seq
        ]

    def restore(self, image: SubjectImage, now: int) -> SubjectState:
        """Replace what is known of a subject by what another member sent.

        The age of its messages counts from now, when this member learns of them.
        """
        known = self._subjects.get(image.subject)
        if known is not None:
            self._remove(known)
        state = self._add(image.subject, now)
        state.seq, state.floor, state.dropped = image.floor, image.floor, image.dropped
        for entry in image.entries:
            self.apply(state, entry, now)
        state.epoch, state.seq, state.floor = image.epoch, image.seq, max(image.floor, state.floor)
        state.dropped = max(image.dropped, state.dropped)
        self._drop_snapshot(state)
        if image.snapshot is not None:
            state.snapshot = Snapshot(image.snapshot)
            self.bytes += state.snapshot.bytes
            if self._settings.snapshot_expire is not None:
                self._aging[state] = now
        return state
