"""Replay of the write-ahead log: takes over what a member wrote down before it started again.

Entries are replayed in the order in which they were written, into groups that hold nothing yet. No
publisher gets a result and no other member a message: what is committed in the log was answered
before. In each group the replay is in one of three states:

    nothing held --- a log from its beginning, or with a state ---> held
    held --- `WalResumed`: entries were left out before it ---> torn
    torn --- a log from its beginning, or with a state; `WalBegun` of a new incarnation ---> held

Only a group that is held takes `WalAppended` and `WalCommitted`: they go on from what stands before
them, and of the others that is missing. So a part of the stream that was deleted, because its
groups were written anew behind it, does no harm.

The disk may be an older copy than the one with which the member acked, which no member can see by
itself. So each log is *unverified* until a coordinator has compared it (docs/cluster.md, "Older
copies"). The specification knows restarts without memory only (`Crash`): `TraceLog!Restored` says
what a log on the disk adds to them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mdserver.cluster.acceptor import Standing
from mdserver.cluster.wal import (
    AnyWalEntry,
    WalAppended,
    WalBegun,
    WalCommitted,
    WalLog,
    WalRenamed,
    WalResumed,
)
from mdserver.errors import MdserverError

if TYPE_CHECKING:
    from mdserver.cluster.groups import Groups
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.core.broker import Broker


class WalError(MdserverError):
    """Entries that do not follow each other; the message says where."""


def replay(
    entries: Iterable[AnyWalEntry],
    groups: "Groups",
    broker: "Broker",
    outgoing: "Outgoing",
    *,
    unverified: bool,
) -> list[int]:
    """Replay entries into groups; return the groups that are held afterwards.

    A seed votes at once in groups in which it did when the last entry of the log was written: the
    driver replays only logs that hold all that was acked from this disk. `unverified`: the log may
    still be an older copy, so a coordinator has to compare it. Raises WalError if entries do not
    follow each other; the groups must not be used then.
    """
    replaying = _Replay(groups, broker, outgoing)
    for number, entry in enumerate(entries):
        try:
            replaying.take(entry)
        except WalError as error:
            raise WalError(f"entry {number} ({type(entry).__name__}) {error}") from None
    for index in replaying.restored:
        group = groups[index]
        group.leadership.epoch = group.log.epoch
        # The coordinator went on meanwhile: what is committed here may not be all of it.
        group.leadership.maybe_behind = True
        assert group.acceptor is not None, "only seeds write a log"
        group.acceptor.unverified = unverified
        group.trace("Restore", group.log.epoch)
    return list(replaying.restored)


class _Replay:
    """A replay under way, entry by entry.

    `restored` are the groups of which something is held by now; `_torn` are those of which entries
    were left out, until an entry that holds all of their log. `_incarnation` is the one that wrote.
    """

    def __init__(self, groups: "Groups", broker: "Broker", outgoing: "Outgoing") -> None:
        self.restored: dict[int, None] = {}
        self._torn: dict[int, None] = {}
        self._incarnation = 0
        self._groups = groups
        self._broker = broker
        self._outgoing = outgoing

    def take(self, entry: AnyWalEntry) -> None:
        """Take one entry. Raises WalError if it does not follow those before it."""
        match entry:
            case WalLog():
                self._replace(entry)
            case WalAppended():
                self._append(entry)
            case WalCommitted():
                if self._follows(entry.group):
                    self._commit(entry.group, entry.length)
            case WalBegun():
                if entry.incarnation != self._incarnation:
                    self._incarnation = entry.incarnation
                    # That start replayed the same entries before it wrote, so what it wrote goes
                    # on from what is held here.
                    self._torn.clear()
            case WalResumed():
                self._torn = dict(self.restored)
            case WalRenamed():
                self._groups.rename(entry.history, range(len(self._groups)))
            case _:
                pass

    def _follows(self, group: int) -> bool:
        """Return whether everything from which an entry of the group goes on is held."""
        return group in self.restored and group not in self._torn

    def _replace(self, entry: WalLog) -> None:
        """Replace the log of a group from the entry's start on."""
        group = self._groups[entry.group]
        log = group.log
        if not self._follows(entry.group) and entry.state is None and entry.start:
            # What it goes on from stood in segments that are gone. They were deleted because the
            # group was written anew as a whole, so that image follows.
            return
        self._torn.pop(entry.group, None)
        if entry.history != group.history:
            log.clear()
            group.history = entry.history
            self._tell_history(entry.group, entry.history)
        if entry.state is not None and entry.start > log.committed:
            log.install(entry.start, entry.state.tables)
            group.state.import_cache(entry.state.cache)
        if max(log.committed, entry.start) > log.length:
            raise WalError(f"starts at {entry.start}, but the log ends at {log.length}")
        log.take_over(entry.epoch, entry.start, entry.entries, entry.runs)
        assert group.acceptor is not None, "only seeds write a log"
        group.acceptor.standing = Standing.NORMAL if entry.normal else Standing.RECOVERING
        self.restored[entry.group] = None
        self._commit(entry.group, entry.committed)

    def _tell_history(self, group: int, history: str) -> None:
        """Have the broker know the history id, all groups at once if none was known before."""
        now, out = self._outgoing.now, self._outgoing.out
        if not self.restored:
            self._broker.reset(history, None, now, out)
        elif self._broker.history_of(group) != history:
            self._broker.reset(history, (group,), now, out)

    def _append(self, entry: WalAppended) -> None:
        """Add entries at the end of a group's log. Raises WalError if they leave a gap."""
        log = self._groups[entry.group].log
        if not self._follows(entry.group):
            return
        if entry.start != log.length:
            raise WalError(f"starts at {entry.start}, but the log ends at {log.length}")
        log.append(entry.entries, entry.runs)

    def _commit(self, index: int, length: int) -> None:
        """Commit entries of a group, into the cache of the broker; publishers get no result."""
        group = self._groups[index]
        log = group.log
        if length <= log.committed:
            return
        entries, _ = log.commit(min(length, log.length))
        group.show(entries)
        self._broker.reached(index, log.committed, self._outgoing.now, self._outgoing.out)
