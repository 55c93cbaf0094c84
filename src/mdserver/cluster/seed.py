"""The acceptor: promises epochs and holds the logs that count (docs/cluster.md, "Seed").

One object for all groups of a member that is a seed; each group has a status of its own. Promises
live in the vote record, which the caller stores before it lets the answer out.
"""

import enum
from typing import TYPE_CHECKING

from mdserver.cluster.votes import Vote
from mdserver.errors import LocalProtocolError

if TYPE_CHECKING:
    from mdserver.cluster.log import GroupLog
    from mdserver.cluster.votes import VoteRecord


class Standing(enum.Enum):
    """Whether a seed counts in a group: a NORMAL one does.

    LOST waits for an operator; RETURNING has the operator's word (for this seed, or for a cold
    start with it), and asks the coordinators for an epoch that is elected for its loss.
    """

    NORMAL = "normal"
    RECOVERING = "recovering"
    LOST = "lost"
    RETURNING = "returning"


class Step(enum.Enum):
    """What can happen to a seed in a group."""

    PROMISE = "promise"
    PROMISE_COLD = "promise-cold"
    SYNC = "sync"
    ACCEPT = "accept"
    INSTALL = "install"
    INSTALL_COLD = "install-cold"
    LOSE = "lose"
    READMIT = "readmit"


TRANSITIONS: dict[tuple[Standing, Step], Standing] = {
    (Standing.NORMAL, Step.PROMISE): Standing.NORMAL,
    (Standing.NORMAL, Step.PROMISE_COLD): Standing.NORMAL,
    (Standing.NORMAL, Step.SYNC): Standing.NORMAL,
    (Standing.NORMAL, Step.ACCEPT): Standing.NORMAL,
    (Standing.NORMAL, Step.INSTALL_COLD): Standing.NORMAL,
    (Standing.NORMAL, Step.LOSE): Standing.LOST,
    (Standing.RECOVERING, Step.PROMISE_COLD): Standing.RECOVERING,
    (Standing.RECOVERING, Step.INSTALL): Standing.NORMAL,
    (Standing.RECOVERING, Step.INSTALL_COLD): Standing.NORMAL,
    (Standing.RECOVERING, Step.LOSE): Standing.LOST,
    (Standing.LOST, Step.PROMISE_COLD): Standing.RETURNING,
    (Standing.LOST, Step.LOSE): Standing.LOST,
    (Standing.LOST, Step.READMIT): Standing.RETURNING,
    (Standing.RETURNING, Step.PROMISE_COLD): Standing.RETURNING,
    (Standing.RETURNING, Step.INSTALL): Standing.NORMAL,
    (Standing.RETURNING, Step.INSTALL_COLD): Standing.NORMAL,
    (Standing.RETURNING, Step.LOSE): Standing.RETURNING,
}
"""A missing pair is refused: as a NACK where a candidate or coordinator asked for it."""


STEP_TRACES = {Step.SYNC: "Sync", Step.INSTALL: "Install", Step.INSTALL_COLD: "ColdSync"}
"""What taking a coordinator's log is called in traces."""


class Seed:
    """The votes and standings of one seed. `name` is its peer address.

    `doubted`: the log of a group is as the disk had it, and no coordinator has compared it since.
    It may be an older copy, so who is elected with it waits for everybody in sight.
    """

    __slots__ = ("doubted", "logs", "name", "standing", "votes")

    def __init__(self, name: str, votes: "VoteRecord", logs: "list[GroupLog]") -> None:
        self.name = name
        self.votes = votes
        self.logs = logs
        self.standing = [Standing.RECOVERING] * len(logs)
        self.doubted = [False] * len(logs)

    def may(self, group: int, step: Step) -> bool:
        """Whether the transition table has the step."""
        return (self.standing[group], step) in TRANSITIONS

    def _go(self, group: int, step: Step) -> None:
        target = TRANSITIONS.get((self.standing[group], step))
        if target is None:
            raise LocalProtocolError(f"a {self.standing[group].value} seed does not {step.value}")
        self.standing[group] = target

    def refuses(self, group: int, epoch: int, cold: bool) -> bool:
        """Whether it would refuse a PREPARE of this epoch."""
        step = Step.PROMISE_COLD if cold else Step.PROMISE
        return not self.may(group, step) or epoch <= self.votes.promised[group].epoch

    def promise(self, group: int, epoch: int, candidate: str, cold: bool) -> None:
        """Promise an epoch that it does not refuse; the vote record has to be stored."""
        self._go(group, Step.PROMISE_COLD if cold else Step.PROMISE)
        assert epoch > self.votes.promised[group].epoch, "an epoch is promised once"
        self.votes.promised[group] = Vote(epoch, candidate)

    def takes(self, group: int, epoch: int, register: int, cold: bool) -> Step | None:
        """The step by which it would take a coordinator's log, None if it would not."""
        if epoch < self.votes.promised[group].epoch:
            return None
        if cold and self.may(group, Step.INSTALL_COLD):
            # The promise of this very epoch says that the full attendance included this seed.
            return Step.INSTALL_COLD if epoch == self.votes.promised[group].epoch else None
        if register == self.votes.incarnation and self.may(group, Step.INSTALL):
            return Step.INSTALL
        return Step.SYNC if self.may(group, Step.SYNC) else None

    def take(self, group: int, step: Step, epoch: int, coordinator: str) -> bool:
        """Take a coordinator's log; returns whether the vote record has to be stored first.

        The caller replaces the entries; ACKs wait for the vote record where it changed.
        """
        self._go(group, step)
        self.doubted[group] = False
        if self.votes.promised[group].epoch == epoch:
            return False
        self.votes.promised[group] = Vote(epoch, coordinator)
        return True

    def accepts(self, group: int, epoch: int) -> bool:
        """Whether it takes entries of this epoch: its log is of it, and it promised no newer."""
        return (
            self.standing[group] is Standing.NORMAL  # the only one with `Step.ACCEPT`
            and self.votes.promised[group].epoch == epoch
            and self.logs[group].epoch == epoch
        )

    def lose(self) -> None:
        """Others know more of this seed than its record: it may not vote until readmitted.

        What an operator said of this loss holds for all groups.
        """
        returning = self.returning
        for group in range(len(self.standing)):
            self._go(group, Step.LOSE)
        if returning:
            self.readmit()

    def readmit(self) -> None:
        """An operator takes it back, in the groups where it waits for that."""
        for group, standing in enumerate(self.standing):
            if standing is Standing.LOST:
                self._go(group, Step.READMIT)

    @property
    def away(self) -> list[int]:
        """The groups in which it does not vote."""
        return [g for g, standing in enumerate(self.standing) if standing is not Standing.NORMAL]

    @property
    def lost(self) -> bool:
        """Whether it waits for an operator."""
        return Standing.LOST in self.standing

    @property
    def returning(self) -> bool:
        """Whether an operator takes it back, and it does not vote everywhere yet."""
        return Standing.RETURNING in self.standing
