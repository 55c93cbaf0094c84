"""Overlapping subscriptions of one client: each gets each matching message once, come what may.

The client without its transport talks to the real broker; what is on its way between them waits in
queues, so that subscriptions begin and end, connections break and rights go at any moment.
"""

import random
from collections import Counter, deque
from typing import Any

import msgspec
from attrs import define, field
from hypothesis import Phase as SearchPhase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.phases import Phase
from mdserver.client.core.values import ClientSettings
from mdserver.client.message import Message
from mdserver.client.sharing import SharedSubscriptions
from mdserver.client.subscription import Subscription
from mdserver.client.waiting import ClientStanding
from mdserver.codec.encoding import message_event
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.core.entitlement import Policy
from mdserver.core.events import Delivery
from mdserver.core.inputs import Authorized, Denied, Grants
from mdserver.core.message import Entry, MessageType, Publication
from mdserver.core.outputs import Authorize, Deliver, Disconnect, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import parse_interest, segments_of
from mdserver.limits import NS_PER_S
from tests.core.one_seed import OneSeed

MS = 1_000_000
SUBJECTS = ["/a/1", "/a/2", "/a/3", "/b/1"]
INTERESTS = [*SUBJECTS, "/a/*", "/*/1", "/**", "/a/**"]
SETTINGS = BrokerSettings(
    groups=2,
    cached_messages_per_subject=1_000,
    cache_expire=3600 * 24 * NS_PER_S,
    brought_at_once=2,
    work_at_once=4,
    policy=Policy.ASK,
    ask_each=True,
)
ROUNDS_MAX = 2_000
"""Steps until all is quiet; many more than it takes."""


def covers(interests: list[str], subject: str) -> bool:
    parsed = [(text, parse_interest(text)) for text in interests]
    return any(
        text == subject if pattern is None else pattern.matches(segments_of(subject))
        for text, pattern in parsed
    )


@define
class Reader:
    """One subscription and what it got; `owed` is what has to come first at the latest.

    That is known from its confirmation on, and not where something came between before the client
    had seen anything of a subject: it then begins with the newest message.
    """

    subscription: Subscription
    got: dict[str, list[int]] = field(factory=dict)
    owed: dict[str, int] = field(factory=dict)
    unseen: dict[str, None] = field(factory=dict)
    confirmed: bool = False


class SharingMachine(RuleBasedStateMachine):
    """Both sides, what is on its way between them, and what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = OneSeed(SETTINGS)
        self.count = dict.fromkeys(SUBJECTS, 0)
        self.places: Counter[int] = Counter()
        self.session = 0
        self.live = False
        self.now = 0
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.asked: deque[int] = deque()
        self.slow_rights = False
        self.attempt = 0
        self.timers: dict[str, int] = {}
        self.core = ClientCore(["a:1"], ClientSettings(), JsonClient, random.Random(7))
        self.shared = SharedSubscriptions(
            self.core, self.perform, ClientStanding(), lambda: self.now
        )
        self.interruptions = 0
        self.join_again = False
        self.readers: list[Reader] = []
        self.perform(self.core.connect(self.now))

    # The two sides

    def perform(self, outputs: list[out.Output]) -> None:
        for output in outputs:
            if not self.tell(output):
                self.transport(output)
        if self.join_again and self.core.phase is Phase.UP:
            self.join_again = False
            self.shared.go_on()

    def transport(self, output: out.Output) -> None:
        match output:
            case out.OpenTransport(attempt, _, _):
                self.attempt = attempt
            case out.CloseTransport():
                self.drop()
            case out.Transmit(_, frame):
                self.to_server.append(frame)
            case out.SetTimer(timer, at):
                self.timers[timer] = at
            case out.CancelTimer(timer):
                del self.timers[timer]

    def tell(self, output: out.Output) -> bool:
        """Hand an output to the subscriptions, if it is for them."""
        match output:
            case out.DeliverMessages():
                self.shared.deliver(output)
            case out.Subscribed():
                self.shared.subscribed(output)
            case out.Refused():
                self.shared.refused(output)
            case out.Reported(mark):
                self.shared.reported(-mark)
            case out.Connected():
                self.join_again = self.shared.connected()
            case _:
                return False
        return True

    def serve(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(session, Delivery() as delivery) if session == self.session:
                    self.to_client.append(msgspec.json.encode(message_event(delivery)))
                case Send(session, event) if session == self.session:
                    self.to_client.append(JSON.event(event))
                case Deliver(delivery, sessions) if self.session in sessions:
                    self.to_client.append(msgspec.json.encode(message_event(delivery)))
                case Authorize(request, _, action) if action in ("connect", "token"):
                    rights = Grants(subscribe=("/**",))
                    self.serve(self.seed.decide(Authorized(request, rights)))
                case Authorize(request, _, "subscribe") if self.slow_rights:
                    self.asked.append(request)
                case Authorize(request, _, "subscribe"):
                    self.serve(self.seed.decide(Authorized(request, None)))
                case Disconnect():
                    raise AssertionError(f"the server leaves: {output}")

    def drop(self) -> None:
        """Lose what is on its way, and the session."""
        self.to_server.clear()
        self.to_client.clear()
        self.asked.clear()
        if self.live:
            self.live = False
            self.serve(self.seed.close(self.session, "gone"))

    def settle_books(self) -> None:
        """After each rule: take messages, and note what is owed from now on."""
        if self.interruptions != self.shared.interruptions or self.core.paused:
            self.interruptions = self.shared.interruptions
            for reader in self.readers:
                for subject in SUBJECTS:
                    if self.core.positions.get(subject) is None:
                        reader.owed.pop(subject, None)
                        reader.unseen[subject] = None
        for reader in self.readers:
            if not reader.confirmed and not reader.subscription._unconfirmed:
                reader.confirmed = True
                if self.live and self.busy():
                    continue  # what is published now may come as one snapshot
                reader.owed = {s: count + 1 for s, count in self.count.items()}

    def take(self, reader: Reader) -> None:
        items = reader.subscription._mailbox._items
        while items:
            message = items.popleft()
            if isinstance(message, Message):
                assert message.position is not None
                got = reader.got.setdefault(message.subject, [])
                seq = message.position.seq
                assert not got or seq > got[-1], f"{message.subject} {seq} after {got}"
                assert message.content == str(seq)
                if message.type is MessageType.SNAPSHOT and message.subject in reader.unseen:
                    got.clear()
                    del reader.unseen[message.subject]
                got.append(seq)
        reader.subscription._make_room()

    # What happens

    @initialize(slow_rights=st.booleans(), connected=st.booleans(), patterns=st.booleans())
    def begin(self, slow_rights: bool, connected: bool, patterns: bool) -> None:
        self.slow_rights = slow_rights
        if patterns:
            self.subscribe(["/**"], 0, 1_000)
        if connected:
            self.connect()
            self.exchange()

    @precondition(lambda self: self.live)
    @rule()
    def exchange(self) -> None:
        """All that is on its way arrives."""
        while self.to_server or self.to_client:
            if self.to_server:
                self.server_reads(len(self.to_server))
            if self.to_client:
                self.client_hears(len(self.to_client))

    @rule(subject=st.sampled_from(SUBJECTS), times=st.integers(1, 3))
    def publish(self, subject: str, times: int) -> None:
        for _ in range(times):
            self.count[subject] += 1
            seq = self.count[subject]
            publication = Publication(subject, str(seq).encode(), time=self.seed.now)
            group = self.seed.group(Entry(1, seq, publication))
            self.places[group] += 1
            self.serve(self.seed.commit([Entry(1, seq, publication, self.places[group])]))
        self.settle_books()

    @rule(
        interests=st.lists(st.sampled_from(INTERESTS), min_size=1, max_size=2, unique=True),
        history=st.sampled_from([0, 0, 2]),
        room=st.sampled_from([2, 1_000]),
    )
    def subscribe(self, interests: list[str], history: int, room: int) -> None:
        if len(self.readers) < 5:
            subscription = Subscription(self.shared, interests, room)
            self.readers.append(Reader(subscription))
            self.shared.add(subscription, history, 0)
            self.settle_books()

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), whole=st.booleans())
    def end(self, data: Any, whole: bool) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        subjects = reader.subscription.subjects
        if subjects:
            self.shared.remove(reader.subscription, list(subjects) if whole else subjects[:1])
        self.settle_books()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def read(self, data: Any) -> None:
        self.take(data.draw(st.sampled_from(self.readers)))
        self.settle_books()

    @precondition(lambda self: self.to_server)
    @rule(frames=st.integers(1, 6))
    def server_reads(self, frames: int) -> None:
        for _ in range(min(frames, len(self.to_server))):
            commands = JSON.commands(self.to_server.popleft())
            self.serve(self.seed.receive(self.session, commands))
        self.settle_books()

    @precondition(lambda self: self.to_client)
    @rule(frames=st.integers(1, 6))
    def client_hears(self, frames: int) -> None:
        for _ in range(min(frames, len(self.to_client))):
            payload = self.to_client.popleft()
            self.perform(self.core.received(self.attempt, payload, self.now))
        self.settle_books()

    @rule()
    def server_goes_on(self) -> None:
        self.now += MS
        self.serve(self.seed.pass_time(self.now))
        self.settle_books()

    @precondition(lambda self: self.live)
    @rule(writable=st.booleans())
    def congested(self, writable: bool) -> None:
        self.serve(self.seed.writability(self.session, writable=writable))
        self.settle_books()

    @precondition(lambda self: self.asked)
    @rule(allowed=st.sampled_from([True, True, False]))
    def decide(self, allowed: bool) -> None:
        verdict = None if allowed else Denied("Not for you.")
        self.serve(self.seed.decide(Authorized(self.asked.popleft(), verdict)))
        self.settle_books()

    @precondition(lambda self: self.core.phase is Phase.UP)
    @rule()
    def renew_token(self) -> None:
        self.perform(self.core.set_token("t", self.now))
        self.settle_books()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        if paused:
            self.perform(self.core.pause())
            self.shared.interrupt()
        else:
            self.perform(self.core.resume())
            self.shared.go_on()
        self.settle_books()

    @precondition(lambda self: self.live)
    @rule()
    def lose(self) -> None:
        self.drop()
        self.perform(self.core.closed(self.attempt, 1006, "gone", self.now))
        self.settle_books()

    @precondition(lambda self: not self.live)
    @rule()
    def connect(self) -> None:
        if "attempt" in self.timers:
            self.now = max(self.now, self.timers.pop("attempt"))
            self.seed.pass_time(self.now)
            self.perform(self.core.due("attempt", self.now))
        self.session += 1
        self.live = True
        self.serve(self.seed.open(self.session))
        self.perform(self.core.opened(self.attempt, self.now))
        self.settle_books()

    def teardown(self) -> None:
        """Let all come to rest; then nobody may lack anything."""
        self.pause(paused=False)
        for _ in range(ROUNDS_MAX):
            if not self.live:
                self.connect()
            while self.asked:
                self.decide(allowed=True)
            self.congested(writable=True)
            before = bool(self.to_server or self.to_client) or self.busy()
            if self.to_server:
                self.server_reads(1_000)
            if self.to_client:
                self.client_hears(1_000)
            for reader in self.readers:
                self.take(reader)
            self.server_goes_on()
            if not before and not (self.to_server or self.to_client or self.asked):
                break
        else:
            raise AssertionError("it never comes to rest")
        for reader in self.readers:
            for subject in SUBJECTS:
                if covers(reader.subscription.subjects, subject):
                    self.check(reader, subject)

    def busy(self) -> bool:
        session = self.seed.broker.session_statistics(self.session)
        assert session is not None
        return session.busy

    def check(self, reader: Reader, subject: str) -> None:
        got, newest = reader.got.get(subject, []), self.count[subject]
        told = f"{reader.subscription.subjects}: {subject} {got} of {newest}"
        if newest:
            assert got, f"{told}: nothing"
            assert got == list(range(got[0], newest + 1)), f"{told}: gaps"
            assert got[0] <= min(reader.owed.get(subject, newest), newest), f"{told}: late"


TestSharing = SharingMachine.TestCase
TestSharing.settings = hypothesis_settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[SearchPhase.explicit, SearchPhase.generate],  # making an example smaller takes minutes
)
