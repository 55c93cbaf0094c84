"""A member's logs and cache as its records say that they were (`mdserver.cluster.records`)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mdserver.cluster.learner import runs_from
from mdserver.cluster.log import FORGET
from mdserver.cluster.records import Added, AnyRecord, Begun, Held, Learned, Renewed, Resumed
from mdserver.cluster.seed import Standing
from mdserver.errors import MdserverError

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground


class RecordsError(MdserverError):
    """Records that do not follow each other; the message says where."""


def restore(ground: "Ground", records: Iterable[AnyRecord], now: int) -> list[int]:
    """Take over what the records say; returns the groups that they hold.

    A seed votes at once in groups in which it did when the last record of the log was written.
    Raises RecordsError; then the ground is of no use any more.
    """
    ground.now = now
    restoring = Restoring(ground)
    for number, record in enumerate(records):
        try:
            restoring.take(record)
        except RecordsError as error:
            raise RecordsError(f"record {number} ({type(record).__name__}) {error}") from None
    for group in restoring.groups:
        view = ground.views[group]
        view.epoch = ground.logs[group].epoch
        view.stale = True
        restoring.seed.doubted[group] = ground.durable
    return list(restoring.groups)


class Restoring:
    """Takes the records one by one. `groups` are those that are held by now.

    `_torn` are those of which records were left out, until the next that says all of their log.
    """

    def __init__(self, ground: "Ground") -> None:
        assert ground.seed is not None, "only seeds write records"
        self.ground = ground
        self.seed = ground.seed
        self.groups: dict[int, None] = {}
        self._torn: dict[int, None] = {}
        self._incarnation = 0

    def take(self, record: AnyRecord) -> None:
        """Take one record; RecordsError where it does not follow those before it."""
        match record:
            case Held():
                self._held(record)
            case Added():
                self._added(record)
            case Learned():
                if self._follows(record.group):
                    self._commit(record.group, record.length)
            case Begun():
                if record.incarnation != self._incarnation:
                    self._incarnation = record.incarnation
                    self._torn.clear()  # it goes on from what it found, as is found here
            case Resumed():
                self._torn = dict(self.groups)
            case Renewed():
                self.ground.rename(record.history, list(range(len(self.ground.logs))))
            case _:
                pass

    def _follows(self, group: int) -> bool:
        """Whether all that a record of the group goes on from is held."""
        return group in self.groups and group not in self._torn

    def _held(self, held: Held) -> None:
        ground, group = self.ground, held.group
        log, view = ground.logs[group], ground.views[group]
        if not self._follows(group) and held.state is None and held.start:
            return  # what it goes on from stood in segments that are gone: a picture follows
        self._torn.pop(group, None)
        if held.history != view.history:
            log.clear()
            view.history = held.history
            self._tell(group, held.history)
        if held.state is not None and held.start > log.committed:
            log.install(held.start, held.state.tables)
            ground.import_cache(group, held.state.cache)
        keep = max(log.committed, held.start)
        if keep > log.length:
            raise RecordsError(f"starts at {held.start}, but the log ends at {log.length}")
        log.truncate(keep)
        log.append(held.entries[keep - held.start :], runs_from(held.runs, keep))
        log.epoch = held.epoch
        self.seed.standing[group] = Standing.NORMAL if held.normal else Standing.RECOVERING
        self.groups[group] = None
        self._commit(group, held.committed)

    def _tell(self, group: int, history: str) -> None:
        """Have the broker know the history id, all groups at a time if none was known before."""
        ground = self.ground
        if not self.groups:
            ground.broker.reset(history, None, ground.now, ground.out)
        elif ground.broker.history_of(group) != history:
            ground.broker.reset(history, (group,), ground.now, ground.out)

    def _added(self, added: Added) -> None:
        log = self.ground.logs[added.group]
        if not self._follows(added.group):
            return
        if added.start != log.length:
            raise RecordsError(f"starts at {added.start}, but the log ends at {log.length}")
        log.append(added.entries, added.runs)

    def _commit(self, group: int, length: int) -> None:
        """Commit up to a length. Nobody is told: what is known of it here was told before."""
        ground, log = self.ground, self.ground.logs[group]
        if length <= log.committed:
            return
        entries, _ = log.commit(min(length, log.length))
        shown = [entry for entry in entries if entry.publication.subject != FORGET]
        ground.broker.committed(group, shown, ground.now, ground.out)
        ground.broker.reached(group, log.committed, ground.now, ground.out)
