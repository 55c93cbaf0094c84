"""The write-ahead log of a seed: its group logs on its disk, so that they outlive a restart.

Without it a group's log lies in the memory of its seeds alone, and a seed that starts again has to
be given its log anew by a coordinator before it counts. With it a seed writes down, in the order in
which they happen, the three things that change a group log: it was replaced from a place on
(`WalLog`), entries came at its end (`WalAppended`), and so many are committed (`WalCommitted`).
Replayed in that order (`mdserver.cluster.wal_replay`) they give the same log. The entries of all
groups stand in one stream, because a disk takes one sequential write far better than a hundred.

What the order has to guarantee is little. `WalCommitted` may lag (once a second is enough):
entries beyond it are learned anew from the coordinator, and a commit can be deduced again. It must
never run ahead of the entries that it counts, and does not, because it is written behind them.
Entries of a group before its first `WalLog` that says all of its log mean nothing, so older parts
of the stream can go as soon as every group has been written whole once more (`Checkpoint`, answered
by a `WalImage` a group).

Whether acks wait for the disk is a setting (`acks_wait`): if they do, what a majority acked is on
a majority of disks (`JournalFsync = commit`), and `StableStorage` holds them back until the driver
says `WalSynced`. `WalBegun` and `WalEnded` are the driver's, which decides by them whether what it
found can be relied on (docs/operations.md).
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from attrs import frozen

from mdserver.cluster.log import LogSlice, Run
from mdserver.cluster.messages import ForwardItem, State
from mdserver.core.images import GroupImage
from mdserver.core.message import Entry
from mdserver.core.outputs import ClusterOutput
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    from mdserver.cluster.group import Group

NOTE_COMMITTED_EVERY = NS_PER_S


class WalEntry(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of the entries of the stream that are no parts of logs (those are `WalSlice`)."""


class WalBegun(WalEntry, frozen=True, tag=1):
    """A member started to write.

    `boot` names the run of its machine; `synced`: acks waited for the disk. `seeds` are those of
    the cluster, in their order; earlier versions left them out.
    """

    member: str
    cluster: str
    groups: int
    incarnation: int
    boot: str
    synced: bool
    seeds: list[str] = []


class WalEnded(WalEntry, frozen=True, tag=2):
    """The writer stopped, and all that it had written was on the disk."""


class WalRenamed(WalEntry, frozen=True, tag=3):
    """All groups have this history id from here on, and keep what they hold."""

    history: str


class WalSlice(LogSlice, frozen=True):
    """Base of the entries that hold part of a log; `normal`: the seed votes in the group."""

    normal: bool


class WalLog(WalSlice, frozen=True, tag=4):
    """The log of a group from `start` on, after `state` or after what stood there already."""

    state: State | None


class UnencodedState(msgspec.Struct, frozen=True, array_like=True):
    """A `State` whose cache is not encoded yet; its objects do not change any more."""

    tables: msgspec.Raw
    cache: GroupImage


class WalImage(WalSlice, frozen=True, tag=4):
    """A `WalLog` whose state may be long, so that the driver encodes it piece by piece."""

    state: UnencodedState


class WalAppended(WalEntry, frozen=True, tag=5):
    """Entries were added to a group's log at its end, `start`."""

    group: int
    start: int
    entries: list[Entry]
    runs: list[Run]


class WalCommitted(WalEntry, frozen=True, tag=6):
    """So many entries of a group are committed, and every one of them was handed on."""

    group: int
    length: int


class WalResumed(WalEntry, frozen=True, tag=9):
    """Entries were left out before this one.

    Those of a group that follow mean nothing until its next `WalLog` that says all of its log.
    """


AnyWalEntry = WalBegun | WalEnded | WalRenamed | WalLog | WalAppended | WalCommitted | WalResumed


@frozen
class WriteWal(ClusterOutput):
    """Write these entries in order; answered by `WalSynced`."""

    request: int
    entries: Sequence[AnyWalEntry | WalImage]


@frozen
class WalSynced:
    """The entries of this request, and of all before it, are on the disk."""

    request: int


@frozen
class Checkpoint:
    """Write down all that is held of these groups, so that older entries of them can go."""

    groups: Sequence[int]


@frozen
class ConcludeWal:
    """The member ends: write down how much is committed by now."""


class WalBuffer:
    """The entries that the step under way writes, and how much of all that was written is on disk.

    `enabled` is False for members that write nothing: they are no seeds, or are configured not to.
    `acks_wait`: acks name only what is on the disk. `synced` is the last request that is on it.
    `held_back` are the publications, with their contacts, that coordinators here take once fewer
    bytes are on their way to the disk. Bytes are those of contents, which are most of what a slow
    disk makes a member hold.
    """

    __slots__ = (
        "_bytes",
        "_committed",
        "_next_note",
        "_requested",
        "_unsynced",
        "_unsynced_bytes",
        "acks_wait",
        "enabled",
        "entries",
        "held_back",
        "synced",
    )

    def __init__(self, *, enabled: bool, acks_wait: bool) -> None:
        self.enabled = enabled
        self.acks_wait = acks_wait
        self.synced = 0
        self.held_back: deque[tuple[str, ForwardItem]] = deque()
        self.entries: list[AnyWalEntry | WalImage] = []
        self._bytes = 0
        self._requested = 0
        self._unsynced: deque[tuple[int, int]] = deque()
        """Requests that are not on the disk yet, with the bytes of content of each."""
        self._unsynced_bytes = 0
        self._committed: dict[int, int] = {}
        """Groups -> how much is committed, if that is not written down yet."""
        self._next_note = 0

    # What changes a group's log

    def replaced(
        self,
        group: "Group",
        start: int,
        entries: list[Entry],
        runs: list[Run],
        state: State | None,
    ) -> None:
        """Note that the log of a group has these entries from `start` on, after `state`.

        The entry says how much was committed before this: whatever is committed by the same message
        is noted behind it (`committed`), so the note never runs ahead of its entries.
        """
        if not self.enabled:
            return
        self._bytes += _content_bytes(entries)
        self._bytes += 0 if state is None else len(bytes(state.cache))
        log = group.log
        self.entries.append(
            WalLog(
                group.index,
                log.epoch,
                group.history,
                start,
                entries,
                runs,
                log.committed,
                group.votes_here,
                state,
            )
        )

    def appended(self, group: "Group", start: int, runs: list[Run]) -> None:
        """Note the entries of a group from `start` on, which came at the end of its log."""
        if self.enabled:
            entries = group.log.since(start)
            self.entries.append(WalAppended(group.index, start, entries, runs))
            self._bytes += _content_bytes(entries)

    def checkpoint(self, group: "Group") -> None:
        """Note all that is held of a group, so that older entries of it can be deleted.

        The image stands for the committed part, the entries for the tail. The cache is encoded by
        the driver, piece by piece: a large one would hold up the step.
        """
        if not self.enabled:
            return
        log = group.log
        start = log.committed
        tables = msgspec.Raw(msgspec.msgpack.encode(log.tables()))
        self.entries.append(
            WalImage(
                group.index,
                log.epoch,
                group.history,
                start,
                log.since(start),
                log.runs_since(start),
                start,
                group.votes_here,
                UnencodedState(tables, group.state.image()),
            )
        )

    def committed(self, group: int, length: int) -> None:
        """Remember how much of a group is committed, for the next `note_committed`."""
        self._committed[group] = length

    def note_committed(self, now: int, *, at_once: bool = False) -> None:
        """Note, once a second, how much is committed of each group in which that changed.

        Nothing depends on a note being early: what lies between the last one and a crash is
        committed again by the coordinator.
        """
        if now < self._next_note and not at_once:
            return
        self._next_note = now + NOTE_COMMITTED_EVERY
        self.entries += [WalCommitted(group, length) for group, length in self._committed.items()]
        self._committed.clear()

    # Requests

    @property
    def needed(self) -> int:
        """Return the request that brings everything noted so far to the disk.

        It is the next one if this step noted something, since a step is written as a whole.
        """
        return self._requested + bool(self.entries)

    @property
    def unsynced_bytes(self) -> int:
        """Return the bytes of content that are not on the disk yet."""
        return self._unsynced_bytes + self._bytes

    def write(self) -> WriteWal:
        """Return the request that writes what was noted, and begin the next one."""
        self._requested += 1
        request = WriteWal(self._requested, self.entries)
        self._unsynced.append((self._requested, self._bytes))
        self._unsynced_bytes += self._bytes
        self.entries = []
        self._bytes = 0
        return request

    def on_synced(self, request: int) -> None:
        """Take note that a request is on the disk, and all before it."""
        self.synced = max(self.synced, request)
        while self._unsynced and self._unsynced[0][0] <= request:
            self._unsynced_bytes -= self._unsynced.popleft()[1]


def _content_bytes(entries: list[Entry]) -> int:
    return sum([len(entry.publication.content) for entry in entries])
