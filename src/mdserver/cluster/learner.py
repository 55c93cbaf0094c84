"""What a member does with a coordinator's log: the receiving side of SYNC, ACCEPT and COMMIT.

Every member follows; on a seed the log counts, and is acknowledged. An item that does not fit is
never an error of the sender alone (links are lost, epochs change): a lower epoch is refused, a gap
is asked for.
"""

from typing import TYPE_CHECKING

from mdserver.cluster.copying import Copying, Gaps
from mdserver.cluster.log import Run
from mdserver.cluster.messages import (
    Acked,
    Heartbeat,
    Nack,
    Need,
    Needed,
    Refusal,
    Synced,
)  # fmt: skip
from mdserver.cluster.seed import STEP_TRACES, Step
from mdserver.limits import JOURNAL_BEHIND_BYTES

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground
    from mdserver.cluster.log import GroupLog
    from mdserver.cluster.messages import Accept, Agreed, Appended, Commit, Promised, Sync


MISSING = "acknowledged messages are missing"
"""What the server log says when a log that was elected lacks what another seed holds."""


class Learner:
    """The learner of all groups of one member."""

    __slots__ = ("copying", "ground")

    def __init__(self, ground: "Ground") -> None:
        self.ground = ground
        self.copying = Copying(ground)

    def sync(self, peer: str, sync: "Sync") -> None:
        """A coordinator establishes its log here."""
        self.ground.note(sync.known)
        renewed: dict[str, list[int]] = {}
        taken: list[tuple[Synced, Step | None]] = []
        for item in sync.items:
            view = self.ground.views[item.group]
            if peer == self.ground.me or not self._current(peer, item.group, item.epoch):
                continue
            step: Step | None = None
            if self.ground.seed is not None:
                step = self.ground.seed.takes(item.group, item.epoch, item.register, item.cold)
                if step is None:
                    continue
            if item.history != view.history:
                renewed.setdefault(item.history, []).append(item.group)
            taken.append((item, step))
        for history, groups in renewed.items():
            self.ground.renew(history, groups)
        for item, step in taken:
            self.take(peer, item, step)

    def _current(self, peer: str, group: int, epoch: int) -> bool:
        """Whether an epoch is not below what is known; a seed says so to who comes too late."""
        ground = self.ground
        known = ground.logs[group].epoch
        candidate = ground.views[group].coordinator
        if ground.seed is not None and ground.votes.promised[group].epoch > known:
            known, candidate = (
                ground.votes.promised[group].epoch,
                (ground.votes.promised[group].candidate),
            )
        if epoch < known and ground.seed is not None:
            ground.say((peer,), Nack([Refusal(group, epoch, known, candidate)]))
        return epoch >= known

    def take(self, peer: str, item: Synced, step: Step | None) -> None:
        """Take what a coordinator sent of its log; `step` is what a seed does with it."""
        ground, group = self.ground, item.group
        log = ground.logs[group]
        if item.state is None and item.start > log.committed and not (
            log.epoch == item.epoch and item.start <= log.length
        ):  # fmt: skip
            ground.views[group].asked = 0
            if item.active:
                self.ask(peer, {group: item.epoch})
            # Until it is active it would not answer: its heartbeats then say that it leads.
            return
        if (
            self._compares(step)
            and item.history == ground.views[group].history
            and lacks(item, log)
        ):
            # Its log lacks what a majority held: older copies elected it. It has to hear so.
            ground.views[group].asked = 0
            if item.active:
                self.ask(peer, {group: item.epoch})
            return
        if item.state is not None and item.start > log.committed:
            ground.install(group, item.start, item.state)
        keep = max(log.committed, item.start)
        log.truncate(keep)
        if keep - item.start < len(item.entries):
            self._append_after(item, keep)
        log.epoch = item.epoch
        ground.views[group].copied = False
        changed = False
        if ground.seed is not None and step is not None:
            changed = ground.seed.take(group, step, item.epoch, peer)
            ground.trace(STEP_TRACES[step], group, item.epoch)
            changed = ground.admit() or changed
            ground.held(group, item.start, item.entries, item.runs, item.state)
        view = ground.views[group]
        view.follow(peer, item.epoch)
        view.asked = 0
        view.quiet = ground.now + ground.settings.suspect
        if ground.seed is not None:
            ground.acks(peer, Acked(group, item.epoch, log.length), changed)
        if item.committed > log.committed:
            ground.learn(group, min(item.committed, log.length))
        if item.active:
            self.follow(group)

    def _compares(self, step: Step | None) -> bool:
        """Whether what is committed here has to be in the log that it takes.

        A seed that comes back has to take what it is given. Without votes a log may lack anything.
        """
        if self.ground.seed is None:
            return self.ground.settings.guaranteed
        return step is Step.SYNC

    def _append_after(self, item: Synced, keep: int) -> None:
        self.ground.logs[item.group].append(
            item.entries[keep - item.start :], runs_from(item.runs, keep)
        )

    def follow(self, group: int) -> None:
        """The coordinator is active, and this member holds all it has committed so far."""
        ground = self.ground
        view = ground.views[group]
        view.active = True
        if ground.seed is not None:
            ground.seed.doubted[group] = False
        if view.forwarded != view.epoch:
            view.forwarded = view.epoch
            log = ground.logs[group]
            for row in ground.contact.lost(group, log.runs_since(log.committed)):
                ground.forwarded(group, row)
        ground.forward_next(group)

    def accept(self, peer: str, accept: "Accept") -> None:
        """New entries of a coordinator.

        A seed whose disk is far behind takes none: it asks for what it lacks once the disk is not.
        """
        if self.ground.unwritten_bytes > JOURNAL_BEHIND_BYTES:
            return
        gaps: Gaps = {}
        for item in accept.items:
            log = self.ground.logs[item.group]
            if item.epoch != log.epoch or item.start > log.length:
                if self._current(peer, item.group, item.epoch):
                    gaps[item.group] = item.epoch, item.committed
                continue
            self._extend(peer, item)
        if gaps:
            self._fill(peer, gaps)

    def _extend(self, peer: str, item: "Appended") -> None:
        ground, group = self.ground, item.group
        log, seed = ground.logs[group], ground.seed
        if seed is not None and not seed.accepts(group, item.epoch):
            self._current(peer, group, item.epoch)
            return
        if item.start == log.length:
            log.append(item.entries, item.runs)
            ground.added(group, item.start, item.runs)
        if item.committed > log.committed:
            ground.learn(group, min(item.committed, log.length))
        if seed is not None:
            if ground.tracing:
                ground.trace("Accept", group, item.epoch)
            ground.acks(peer, Acked(group, item.epoch, log.length), False)

    def commit(self, peer: str, commit: "Commit") -> None:
        """A majority holds these."""
        gaps = {
            item.group: (item.epoch, item.length) for item in commit.items if not self._agree(item)
        }
        if gaps:
            self._fill(peer, gaps)

    def _agree(self, item: "Agreed") -> bool:
        ground, group = self.ground, item.group
        log, view = ground.logs[group], ground.views[group]
        if item.epoch < log.epoch:
            return True
        if item.epoch > log.epoch or item.length > log.length:
            return False
        if item.length > log.committed:
            ground.learn(group, item.length)
        if not view.active and not view.stale:
            self.follow(group)
        return True

    def heartbeat(self, peer: str, heartbeat: "Heartbeat") -> None:
        """Compare what a coordinator says of its groups with what is held here."""
        ground = self.ground
        away = ground.seed.away if ground.seed is not None else []
        behind: Gaps = {}
        over: list[Refusal] = []
        for led in heartbeat.leads:
            log, view = ground.logs[led.group], ground.views[led.group]
            if led.epoch < log.epoch:
                # Without publications nobody else would tell it, and nobody is elected meanwhile.
                over.append(Refusal(led.group, led.epoch, log.epoch, view.coordinator))
                continue
            if (
                led.epoch > log.epoch or led.length > log.length or led.group in away
                or self._unlike(led.group, led.length)
            ):  # fmt: skip
                behind[led.group] = led.epoch, led.committed
            elif view.coordinator in (peer, "") and view.epoch == led.epoch:
                view.coordinator = peer  # a log that was restored knows its epoch only
                if led.committed > log.committed:
                    ground.learn(led.group, led.committed)
                view.stale = False
                if not view.active:
                    self.follow(led.group)
        if over:
            ground.say((peer,), Nack(over))
        if behind:
            self._fill(peer, behind)

    def _unlike(self, group: int, length: int) -> bool:
        """Whether it has to ask: its log is as the disk had it, or it holds more than there is."""
        seed = self.ground.seed
        if seed is not None and seed.doubted[group]:
            return True
        return self.ground.logs[group].committed > length

    def _fill(self, peer: str, gaps: Gaps) -> None:
        """Have gaps filled: by a copy of what is committed, or by the coordinator."""
        if self.ground.unwritten_bytes > JOURNAL_BEHIND_BYTES:
            return
        left = self.copying.ask(peer, gaps)
        if left:
            self.ask(peer, left)

    def ask(self, peer: str, groups: dict[int, int]) -> None:
        """Ask a coordinator for what is missing of its groups (-> their epochs), not too often.

        A new coordinator is asked at once: it may give what the last one could not.
        """
        ground = self.ground
        items: list[Needed] = []
        for group, epoch in groups.items():
            view, log = ground.views[group], ground.logs[group]
            if not view.ask(epoch, ground.now):
                continue
            recovering = ground.seed is not None and not ground.seed.may(group, Step.ACCEPT)
            promised = ground.votes.promised[group].epoch if ground.seed is not None else 0
            items.append(
                Needed(group, log.committed, view.history, promised, recovering,
                       0 if view.copied else log.epoch, log.length,
                       log.checksum_at(log.committed - 1))
            )  # fmt: skip
        if items:
            returning = ground.seed is not None and ground.seed.returning
            votes = ground.votes
            ground.say((peer,), Need(votes.incarnation, votes.admitted, returning, items))

    def link_lost(self, peer: str) -> None:
        """What went to this coordinator may not have arrived, and what it sent neither."""
        for view in self.ground.views:
            if view.coordinator == peer:
                view.active = False
                view.stale = True
                view.forwarded = 0
                view.asked = 0
                view.quiet = 0


def lacks(item: "Synced | Promised", log: "GroupLog") -> bool:
    """Whether another member's log lacks what is committed here."""
    if item.start + len(item.entries) < log.committed:
        return True
    at = log.committed - 1
    if not max(item.start, log.base) <= at:
        return False
    theirs, ours = item.entries[at - item.start], log.entries[at - log.base]
    return (theirs.epoch, theirs.seq) != (ours.epoch, ours.seq) or (
        theirs.publication.subject != ours.publication.subject
        or theirs.publication.content != ours.publication.content
    )


def runs_from(runs: list[Run], start: int) -> list[Run]:
    """The parts of runs that lie at or after a place in the log."""
    found: list[Run] = []
    for run in runs:
        before = min(max(start - run.start, 0), run.count)
        if before < run.count:
            found.append(Run(run.start + before, run.count - before, run.contact,
                             run.first + before))  # fmt: skip
    return found
