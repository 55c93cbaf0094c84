"""What the parts of a member stand on: its logs and machines, and what a step has to say.

A step collects what it says about many groups and lets one message a kind out at its end. What a
member says to itself goes through the same handlers, in the same step.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from mdserver.cluster.contact import Contact
from mdserver.cluster.following import Following
from mdserver.cluster.log import FORGET, GroupLog, Run
from mdserver.cluster.membership import Membership
from mdserver.cluster.messages import (
    Accept,
    Ack,
    Acked,
    Agreed,
    Answer,
    Answered,
    AnyPeerMessage,
    Appended,
    Commit,
    Forward,
    Forwarded,
    Hello,
    Persist,
    SendPeer,
    State,
)  # fmt: skip
from mdserver.cluster.records import (
    Added,
    AnyRecord,
    Held,
    Image,
    Learned,
    Record,
    Unencoded,
)
from mdserver.cluster.seed import Seed, Standing
from mdserver.core.broker import Broker
from mdserver.core.cache import GroupImage
from mdserver.core.outputs import Committed, Log, Output, Trace
from mdserver.limits import NS_PER_S

if TYPE_CHECKING:
    import random

    from mdserver.cluster.coordinator import Coordinator
    from mdserver.cluster.settings import ClusterSettings
    from mdserver.cluster.votes import VoteRecord
    from mdserver.core.message import Entry, Publication
    from mdserver.core.proposal import Outcome
    from mdserver.core.settings import BrokerSettings

START_BITS = 52
"""Of the number of a start: exact in every JSON reader, and never the same twice."""

ASK_AGAIN = 2 * NS_PER_S


class View:
    """Who coordinates a group, as far as this member knows.

    `active`: its log is established, and this member follows it. `forwarded`: the epoch to which
    all that waits here was forwarded; 0 when that may have been lost with a link. `stale`: what it
    sent may have been lost with a link, so that the log here may lack entries that it holds.
    `quiet`: until when nobody else should stand (ns). `asked`: until when the coordinator of the
    epoch `asked_of` is not asked again for what is missing (ns). `copied_of`: the newest epoch in
    which another member was asked for a copy, and `copied`: what is held came so, of an epoch that
    is not known. `orphaned`: since when nobody coordinates the group (ns), 0 while somebody does.
    """

    __slots__ = (
        "active",
        "asked",
        "asked_of",
        "coordinator",
        "copied",
        "copied_of",
        "epoch",
        "forwarded",
        "history",
        "orphaned",
        "quiet",
        "stale",
    )  # fmt: skip

    def __init__(self) -> None:
        self.epoch = 0
        self.coordinator = ""
        self.active = False
        self.forwarded = 0
        self.quiet = 0
        self.stale = False
        self.asked = 0
        self.asked_of = 0
        self.copied_of = 0
        self.copied = False
        self.orphaned = 0
        self.history = ""

    def ask(self, epoch: int, now: int) -> bool:
        """Whether it is time to ask for what is missing; if so, it is taken as done."""
        if self.asked > now and self.asked_of >= epoch:
            return False
        self.asked = now + ASK_AGAIN
        self.asked_of = epoch
        return True

    def follow(self, coordinator: str, epoch: int) -> None:
        """Another coordinator, or another epoch of the same: nothing of it is active here yet."""
        self.coordinator, self.epoch, self.active = coordinator, epoch, False
        self.stale = False


class Ground:
    """One member's state, shared by the parts that `Node` is made of."""

    def __init__(
        self,
        settings: "BrokerSettings",
        cluster: "ClusterSettings",
        votes: "VoteRecord",
        rng: "random.Random",
    ) -> None:
        self.settings = cluster
        self.me = cluster.me
        self.tracing = cluster.trace
        self.rng = rng
        self.votes = votes
        self.durable = len(cluster.members) > 1 or not cluster.guaranteed
        self.start = 0
        if self.durable and cluster.guaranteed:
            self.start = 1 + rng.getrandbits(START_BITS)
        self.first_history = "" if self.durable else self.new_history()
        self.broker = Broker(settings, self.first_history, rng)
        self.logs = [
            GroupLog(cluster.log_kept, cluster.numbers_kept) for _ in range(settings.groups)
        ]
        self.views = [View() for _ in range(settings.groups)]
        self.seed = Seed(self.me, votes, self.logs) if self.me in cluster.seeds else None
        self.coordinators: dict[int, Coordinator] = {}
        self.members = Membership(cluster)
        self.following = Following(self)
        self.contact = Contact(self.contact_name(), settings.groups, cluster.numbers_kept)
        self.weight = 1
        self._named_count = 0
        self.joined = False
        self.now = 0
        self.out: list[Output] = []
        self.local: deque[AnyPeerMessage] = deque()
        self._linked: tuple[str, ...] = ()
        self._requests = 0
        self._stored = 0
        self._waiting: deque[tuple[int, int, tuple[str, ...], AnyPeerMessage]] = deque()
        self.recording = cluster.recording and self.seed is not None
        self._records: list[AnyRecord | Image] = []
        self._unwritten: deque[tuple[int, int]] = deque()
        self._unwritten_bytes = 0
        self._records_bytes = 0
        self._learned: dict[int, int] = {}
        self._note_at = 0
        self._record_requests = 0
        self._recorded = 0
        self._storing = 0
        self._admitting = 0 if votes.admitted else None
        self.disk_time = 0
        """How long the vote record last took to be on the disk (ns)."""
        self._accepts: list[Appended] = []
        self._commits: list[Agreed] = []
        self._acks: dict[str, list[Acked]] = {}
        self._forwards: dict[str, list[Forwarded]] = {}
        self._answers: dict[str, list[Answered]] = {}

    def new_history(self, age: int = 0) -> str:
        """A history id that nobody used before; ids of a greater age sort behind (`Histories`)."""
        return f"{age:012x}{self.rng.getrandbits(64):016x}"

    def contact_name(self) -> str:
        """The name under which this incarnation's tickets stand in logs."""
        return f"{self.me}#{self.votes.incarnation}"

    def greeting(self) -> Hello:
        """Who this member is, for a link that is new."""
        votes = self.votes
        return Hello(
            votes.incarnation,
            self.admitted,
            self.settings.client,
            dict(votes.known),
            self._linked,
            self.start,
            self.settings.name,
        )

    # What is said

    def say(self, peers: Iterable[str], message: AnyPeerMessage) -> None:
        """Send a message now; the handler of a message to oneself runs in this step."""
        others = tuple(peer for peer in peers if peer != self.me)
        if self.me in peers:
            self.local.append(message)
        if others:
            self.out.append(SendPeer(others, message))

    def store(self) -> None:
        """Have the vote record stored; what `say_stored` says after it waits for the disk."""
        if self.durable:
            if self._stored == self._requests:
                self._storing = self.now
            self._requests += 1
            if not self.votes.admitted:
                self._admitting = None
            elif self._admitting is None:
                self._admitting = self._requests
            self.out.append(Persist(self._requests, self.votes.encode()))

    def say_stored(self, peer: str, message: AnyPeerMessage) -> None:
        """Send a message once the vote record, and the logs if acks wait for them, are on the disk
        as they are now.
        """
        if self.on_disk:
            self.say((peer,), message)
        else:
            self._waiting.append((self._requests, self._record_needed, (peer,), message))

    @property
    def admitted(self) -> bool:
        """Whether the record says so on the disk: others may know this seed from then on."""
        return self._admitting is not None and self._admitting <= self._stored

    @property
    def on_disk(self) -> bool:
        """Whether the driver stored what has to be stored before this member says more."""
        return self._requests == self._stored and self._record_needed <= self._recorded

    @property
    def _record_needed(self) -> int:
        """The request that brings what was recorded so far to the disk; 0 if nobody waits."""
        if not self.settings.acks_recorded:
            return 0
        return self._record_requests + bool(self._records)

    def stored(self, request: int) -> None:
        """The driver stored the vote record of a request."""
        self._stored = max(self._stored, request)
        if self._stored == self._requests:
            self.disk_time = self.now - self._storing
        self._say_waiting()

    def recorded(self, request: int) -> None:
        """The driver stored the records of a request."""
        self._recorded = max(self._recorded, request)
        while self._unwritten and self._unwritten[0][0] <= request:
            self._unwritten_bytes -= self._unwritten.popleft()[1]
        self._say_waiting()

    def withdraw(self) -> None:
        """Nothing that waits for the disk is said: what it was about is taken back."""
        self._waiting.clear()

    def _say_waiting(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._stored and waiting[0][1] <= self._recorded:
            _, _, peers, message = waiting.popleft()
            if type(message) is Ack and message.incarnation == self.votes.incarnation:
                self._acks.setdefault(peers[0], []).extend(message.items)
            else:
                self.say(peers, message)

    def acks(self, coordinator: str, item: Acked, changed: bool) -> None:
        """Ack a coordinator's log; waits for the disk if the vote record changed with it."""
        if changed:
            self.store()
        if self.on_disk:
            self._acks.setdefault(coordinator, []).append(item)
        else:
            self.say_stored(coordinator, Ack(self.votes.incarnation, [item]))

    def linked(self) -> tuple[str, ...]:
        """The members that can be spoken to, without this one."""
        return self._linked

    def relink(self) -> None:
        """A link came or went."""
        self._linked = self.members.linked()

    def appended(self, item: Appended) -> None:
        """Replicate new entries to all members."""
        if self._linked:
            self._accepts.append(item)

    def agreed(self, item: Agreed) -> None:
        """Tell all members that entries are committed."""
        if self._linked:
            self._commits.append(item)

    def forward(self, coordinator: str, item: Forwarded) -> None:
        """Hand publications to a coordinator, which may be this member."""
        self._forwards.setdefault(coordinator, []).append(item)

    def answer(self, contact: str, item: Answered) -> None:
        """Answer a contact, named by its contact name."""
        self._answers.setdefault(contact.partition("#")[0], []).append(item)

    def flush(self) -> bool:
        """Let out what was collected; False if there was nothing."""
        said = False
        for coordinator, forwards in self._forwards.items():
            self.say((coordinator,), Forward(self.contact.name, forwards))
            said = True
        self._forwards.clear()
        if self._records:
            self._record_requests += 1
            self.out.append(Record(self._record_requests, self._records))
            self._records = []
            self._unwritten.append((self._record_requests, self._records_bytes))
            self._unwritten_bytes += self._records_bytes
            self._records_bytes = 0
        if self._accepts:
            self.say(self._linked, Accept(self._accepts))
            self._accepts = []
        for coordinator, acks in self._acks.items():
            self.say((coordinator,), Ack(self.votes.incarnation, acks))
            said = True
        self._acks.clear()
        if self._commits:
            self.say(self._linked, Commit(self._commits))
            self._commits = []
        for member, answers in self._answers.items():
            self.say((member,), Answer(answers))
            said = True
        self._answers.clear()
        return said

    # What is recorded

    def held(
        self,
        group: int,
        start: int,
        entries: "list[Entry]",
        runs: list[Run],
        state: State | None,
    ) -> None:
        """Record that the log of a group has these entries from `start` on, after `state`."""
        if not self.recording:
            return
        assert self.seed is not None
        log, normal = self.logs[group], self.seed.standing[group] is Standing.NORMAL
        self._records_bytes += sum([len(entry.publication.content) for entry in entries])
        self._records_bytes += 0 if state is None else len(bytes(state.cache))
        self._records.append(
            Held(group, log.epoch, self.views[group].history, start, entries, runs, log.committed,
                 normal, state)
        )  # fmt: skip

    def added(self, group: int, start: int, runs: list[Run]) -> None:
        """Record the entries of a group from `start` on, which were added at the end of its log."""
        if self.recording:
            entries = self.logs[group].since(start)
            self._records.append(Added(group, start, entries, runs))
            self._records_bytes += sum([len(entry.publication.content) for entry in entries])

    @property
    def unwritten_bytes(self) -> int:
        """The content of entries that were recorded, and are not on the disk yet."""
        return self._unwritten_bytes + self._records_bytes

    def picture(self, group: int) -> None:
        """Record all that is held of a group."""
        if not self.recording:
            return
        assert self.seed is not None
        log, normal = self.logs[group], self.seed.standing[group] is Standing.NORMAL
        start = log.committed
        tables = msgspec.Raw(msgspec.msgpack.encode(log.tables()))
        self._records.append(
            Image(group, log.epoch, self.views[group].history, start, log.since(start),
                  log.runs_since(start), start, normal,
                  Unencoded(tables, self.broker.export_group(group)))
        )  # fmt: skip

    def note_learned(self, *, at_once: bool = False) -> None:
        """Record how much is committed now, of the groups where that is news, once a second."""
        if self.now < self._note_at and not at_once:
            return
        self._note_at = self.now + NS_PER_S
        self._records += [Learned(group, length) for group, length in self._learned.items()]
        self._learned.clear()

    def log(self, name: str, **values: str | int | bool | None) -> None:
        """Write to the server log."""
        self.out.append(Log("cluster", name, dict(values)))

    def trace(self, name: str, group: int, epoch: int, **values: str | int | bool) -> None:
        """Say that a step of the specification was taken, with the state after it."""
        if not self.tracing:
            return
        log = self.logs[group]
        state: dict[str, str | int | bool | None] = {
            "node": self.me, "group": group, "epoch": epoch, "accepted": log.epoch,
            "length": log.length, "committed": log.committed,
            "incarnation": self.votes.incarnation,
        }  # fmt: skip
        if self.seed is not None:
            state["promised"] = self.votes.promised[group].epoch
            state["standing"] = self.seed.standing[group].value
        self.out.append(Trace(name, {**state, **values}))

    # What is known of a group

    def led(self, group: int) -> bool:
        """Whether a coordinator is in sight that says it is active."""
        view = self.views[group]
        if view.coordinator == self.me:
            return group in self.coordinators
        if not self.members.alive(view.coordinator, self.now):
            return False
        return group in self.members.peers[view.coordinator].leads

    def learn(self, group: int, length: int) -> None:
        """Commit the log up to a length: subscribers get the entries, this contact its results."""
        log = self.logs[group]
        start = log.committed
        entries, runs = log.commit(length)
        if not entries:
            return
        if self.tracing:
            self.trace("Learn", group, log.epoch)
        if self.recording:
            self._learned[group] = length
        shown: Sequence[Entry] = entries
        if log.forgot:
            shown = [entry for entry in entries if entry.publication.subject != FORGET]
        self.broker.committed(group, shown, self.now, self.out)
        if log.forgot:
            self.broker.reached(group, length, self.now, self.out)
        self.out.append(Committed(group, self.views[group].history, shown))
        name = self.contact.name
        for run in runs:
            if run.contact == name:
                self.outcomes(self.contact.committed(group, start, entries, run))
                self.forward_next(group)

    def outcomes(self, outcomes: "Iterable[Outcome]") -> None:
        """Tell publishers what became of their publications."""
        for outcome in outcomes:
            self.broker.outcome(outcome, self.now, self.out)

    def forward_next(self, group: int) -> None:
        """Forward what waits here for a group, once nothing of it is on its way."""
        if self.views[group].active:
            row = self.contact.unsent(group)
            if row is not None:
                self.forwarded(group, row)

    def forwarded(self, group: int, row: "tuple[int, list[Publication]]") -> None:
        """Forward a row of tickets to the group's coordinator."""
        view = self.views[group]
        self.forward(view.coordinator, Forwarded(group, view.epoch, row[0], row[1]))

    # History and cache

    def renew(self, history: str, groups: list[int]) -> None:
        """Groups have a new history id: all that is held of them here is void."""
        for group in groups:
            self.logs[group].clear()
            self.outcomes(self.contact.unknown(group))
        whole = len(groups) == len(self.logs)
        told = self._named(history, groups)
        self.broker.reset(told, None if whole else groups, self.now, self.out)
        for group in groups:
            self.held(group, 0, [], [], None)

    def rename(self, history: str, groups: list[int]) -> None:
        """Groups have a new history id, and what is held of them here is its beginning."""
        self.broker.rename(self._named(history, groups), groups, self.now, self.out)

    def _named(self, history: str, groups: list[int]) -> str:
        """Note a history id; returns the one that clients are told.

        Without votes members may differ in what a history holds: clients are then told an id of
        this member's own, so that no other member takes it for its own.
        """
        for group in groups:
            self.views[group].history = history
            self.views[group].active = False
        self.log("history", history=history, groups=len(groups))
        if self.settings.guaranteed:
            return history
        self._named_count += 1
        return self.new_history(self._named_count)

    def join(self) -> None:
        """Serve clients from now on, once every group has a coordinator that is followed here."""
        away = self.seed.away if self.seed is not None else []
        if not self.joined and not away and all(view.active for view in self.views):
            self.joined = True
            self.log("joined", groups=len(self.views))

    def joining(self) -> str | None:
        """Why this member does not serve clients yet; None once it joined."""
        if self.joined:
            return None
        missing = sum(not view.active for view in self.views)
        return f"joining: {missing} of {len(self.views)} groups are missing"

    def note(self, incarnations: dict[str, int]) -> bool:
        """Note below which incarnations nothing of a seed counts any more; True if it is news.

        The vote record is stored with it: what is acked after this waits for that.
        """
        known, starts = self.votes.known, self.votes.starts
        news = {
            seed: incarnation for seed, incarnation in incarnations.items()
            if seed != self.me and incarnation > known.get(seed, 0)
        }  # fmt: skip
        known.update(news)
        for seed in news:
            starts.pop(seed, None)  # it is the number of an earlier start
        if news:
            self.store()
        return bool(news)

    @property
    def sure(self) -> bool:
        """Whether this seed knows if others know of it: its record says so, or each of them did.

        Without that it promises no cold start: it would not know afterwards whether they know what
        it is now, or what it was before it lost its record.
        """
        if self.votes.admitted or self.seed is None or self.seed.lost or self.seed.returning:
            return True
        peers = self.members.peers
        return all(peers[seed].greeted for seed in self.settings.seeds if seed != self.me)

    def admit(self) -> bool:
        """Once every group took this seed in, others count on its vote record; True if new."""
        if self.seed is None or self.votes.admitted or self.seed.away:
            return False
        self.votes.admitted = True
        return True

    def export_cache(self, group: int) -> msgspec.Raw:
        """A group's cache as the broker exports it, encoded."""
        return msgspec.Raw(msgspec.msgpack.encode(self.broker.export_group(group)))

    def install(self, group: int, start: int, state: State) -> None:
        """Have a state stand for the first `start` entries of a log, all of them committed."""
        self.outcomes(self.contact.unknown(group))
        self.logs[group].install(start, state.tables)
        self.import_cache(group, state.cache)

    def import_cache(self, group: int, raw: msgspec.Raw) -> None:
        """Put an exported cache in place of a group's."""
        image = msgspec.msgpack.decode(raw, type=GroupImage)
        image = msgspec.structs.replace(image, history=self.broker.history_of(group))
        length = self.logs[group].committed
        self.broker.import_group(group, image, length, self.now, self.out)
