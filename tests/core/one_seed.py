"""The broker over the smallest log there is: what is proposed has its place at once."""

import random
from collections.abc import Sequence

from mdserver.core.broker import Broker
from mdserver.core.commands import AnyCommand
from mdserver.core.images import GroupImage
from mdserver.core.inputs import Authorized, Closed, Opened, TimerDue, TimerKey, Writability
from mdserver.core.message import Entry, Qos
from mdserver.core.outputs import CancelTimer, Output, SetTimer
from mdserver.core.proposal import Outcome, Proposal
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of


class OneSeed:
    """Gives each subject its own numbers and carries the timers; `now` is in ns."""

    def __init__(self, settings: BrokerSettings, history: str = "h1") -> None:
        self.settings = settings
        self.broker = Broker(settings, history, random.Random(1))
        self.now = 0
        self.epoch = 1
        self.down = ""
        self._seqs: dict[str, int] = {}
        self._lengths: dict[int, int] = {}
        self._timers: dict[TimerKey, int] = {}

    def open(self, session: int, transport: str = "websocket") -> list[Output]:
        return self._done("opened", Opened(session, "127.0.0.1", transport))

    def close(self, session: int, reason: str) -> list[Output]:
        return self._done("closed", Closed(session, reason))

    def writability(self, session: int, *, writable: bool) -> list[Output]:
        return self._done("writability", Writability(session, writable))

    def decide(self, decided: Authorized) -> list[Output]:
        out: list[Output] = []
        proposals = self.broker.authorized(decided, self.now, out)
        return self._finish(out, proposals)

    def receive(self, session: int, commands: Sequence[AnyCommand]) -> list[Output]:
        out: list[Output] = []
        proposals = self.broker.received(session, commands, self.now, out)
        return self._finish(out, proposals)

    def commit(self, entries: Sequence[Entry]) -> list[Output]:
        """Entries that came from elsewhere."""
        out: list[Output] = []
        for entry in entries:
            self.broker.committed(self.group(entry), [entry], self.now, out)
        return self._finish(out)

    def rename(self, history: str, groups: Sequence[int]) -> list[Output]:
        out: list[Output] = []
        self.broker.rename(history, groups, self.now, out)
        return self._finish(out)

    def reset(self, history: str, groups: Sequence[int] | None) -> list[Output]:
        out: list[Output] = []
        self.broker.reset(history, groups, self.now, out)
        for subject in list(self._seqs):
            if groups is None or group_of(subject, self.settings.groups) in groups:
                del self._seqs[subject]
        for group in range(self.settings.groups) if groups is None else groups:
            self._lengths.pop(group, None)
        return self._finish(out)

    def take_over(self, group: int, image: GroupImage) -> list[Output]:
        out: list[Output] = []
        self.broker.import_group(group, image, self._lengths.get(group, 0), self.now, out)
        return self._finish(out)

    def pass_time(self, until: int) -> list[Output]:
        """Let time go by; timers come when they are due."""
        all_out: list[Output] = []
        while due := min(
            ((at, key) for key, at in self._timers.items() if at <= until),
            default=None,
            key=lambda item: item[0],
        ):
            self.now = max(self.now, due[0])
            del self._timers[due[1]]
            all_out += self._done("timer", TimerDue(due[1]))
        self.now = max(self.now, until)
        return all_out

    def settle(self) -> list[Output]:
        """Let the steps go by, in no time, that bring the rest of what subscriptions bring."""
        out: list[Output] = []
        while self._timers.pop(("broker", "catch-up"), None) is not None:
            out += self._done("timer", TimerDue(("broker", "catch-up")))
        return out

    def group(self, entry: Entry) -> int:
        return group_of(entry.publication.subject, self.settings.groups)

    def _done(self, what: str, value: object) -> list[Output]:
        out: list[Output] = []
        getattr(self.broker, what)(value, self.now, out)
        return self._finish(out)

    def _finish(self, out: list[Output], proposals: Sequence[Proposal] = ()) -> list[Output]:
        for proposal in proposals:
            self._commit(proposal, out)
        for output in out:
            if isinstance(output, SetTimer):
                self._timers[output.timer] = output.at
            elif isinstance(output, CancelTimer):
                self._timers.pop(output.timer, None)
        return out

    def _commit(self, proposal: Proposal, out: list[Output]) -> None:
        publication = proposal.publication
        if self.down:
            outcome = Outcome(proposal.origin, reason=self.down, certain=False)
            self.broker.resolve([outcome], self.now, out)
            return
        entry = Entry(0, 0, publication)
        if publication.qos is Qos.GUARANTEED:
            seq = self._seqs[publication.subject] = self._seqs.get(publication.subject, 0) + 1
            group = group_of(publication.subject, self.settings.groups)
            place = self._lengths[group] = self._lengths.get(group, 0) + 1
            entry = Entry(self.epoch, seq, publication, place)
        self.broker.committed(self.group(entry), [entry], self.now, out)
        self.broker.resolve([Outcome(proposal.origin, entry.epoch, entry.seq)], self.now, out)
