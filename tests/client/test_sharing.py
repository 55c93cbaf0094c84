"""Overlapping subscriptions of one client: each gets each matching message once, come what may.

The client without its transport talks to the real broker; what is on its way between them waits in
queues, so that subscriptions begin and end, connections break and rights go at any moment.
"""

import random
from collections import Counter, deque
from typing import Any

import msgspec
import pytest
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
from mdserver.core.events import Delivery, MessageEvent
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
READERS_MAX = 5
ROUNDS_MAX = 2_000
"""Steps until all is quiet; many more than it takes."""
QUIET_ROUNDS = 4
"""Steps without a word after which nothing comes any more, as no window of conflation is longer."""


def covers(interests: list[str], subject: str) -> bool:
    parsed = [(text, parse_interest(text)) for text in interests]
    return any(
        text == subject if pattern is None else pattern.matches(segments_of(subject))
        for text, pattern in parsed
    )


@define(repr=False)
class Reader:
    """One subscription and what it got; `owed` is what has to come first at the latest.

    That is known from its confirmation on, and not where something came between before the client
    had seen anything of a subject: it then begins with the newest message.
    """

    subscription: Subscription
    got: dict[str, list[int]] = field(factory=dict)
    fields: dict[str, dict[str, str]] = field(factory=dict)
    owed: dict[str, int] = field(factory=dict)
    unseen: dict[str, None] = field(factory=dict)
    confirmed: bool = False
    began: int = 0
    conflated: bool = False

    def __repr__(self) -> str:
        return f"the reader of {self.subscription.subjects}"


class SharingMachine(RuleBasedStateMachine):
    """Both sides, what is on its way between them, and what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = OneSeed(SETTINGS)
        self.count = dict.fromkeys(SUBJECTS, 0)
        self.fields: dict[str, dict[str, str]] = {subject: {} for subject in SUBJECTS}
        self.histories = self.conflating = False
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
        self.booked_session = 0
        self.join_again = False
        self.readers: list[Reader] = []
        self.sent = 0
        self.subscribed: dict[tuple[int, str], int] = {}
        self.denied = 0
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
                self.sent += 1
                command = msgspec.json.decode(frame)
                if command["op"] == "subscribe":
                    self.subscribed[self.attempt, command["id"]] = self.sent
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
            case out.Refused(subjects):
                for reader in self.readers:
                    if any(subject in reader.subscription.subjects for subject in subjects):
                        assert reader.began < self.denied, (
                            f"{reader} is refused what it never asked"
                        )
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
        subscriptions = self.core.subscriptions
        held = any(not subscriptions.is_taken(name) for name in subscriptions)
        if held or self.core.paused or self.booked_session != self.session:
            self.booked_session = self.session
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
                snapshot = message.type is MessageType.SNAPSHOT
                if not (snapshot and got and seq == got[-1]):  # behind what others missed
                    assert not got or seq > got[-1], f"{message.subject} {seq} after {got}"
                assert message.content == str(seq)
                if got[-1:] != [seq]:
                    if snapshot and message.subject in reader.unseen:
                        got.clear()
                        del reader.unseen[message.subject]
                    got.append(seq)
                folded = reader.fields.setdefault(message.subject, {})
                if snapshot:
                    folded.clear()
                folded |= message.fields
        reader.subscription._make_room()

    # What happens

    @initialize(
        slow_rights=st.booleans(),
        connected=st.booleans(),
        patterns=st.booleans(),
        histories=st.booleans(),
        conflating=st.booleans(),
    )
    def begin(
        self,
        slow_rights: bool,
        connected: bool,
        patterns: bool,
        histories: bool,
        conflating: bool,
    ) -> None:
        self.conflating = conflating
        self.slow_rights = slow_rights
        self.histories = histories
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

    @rule(
        subject=st.sampled_from(SUBJECTS),
        names=st.lists(st.sampled_from("xyz"), min_size=1, max_size=3),
    )
    def publish(self, subject: str, names: list[str]) -> None:
        """Publish messages that set one field each."""
        for name in names:
            self.count[subject] += 1
            seq = self.count[subject]
            fields = {name: str(seq)}
            self.fields[subject] |= fields
            publication = Publication(subject, str(seq).encode(), fields=fields, time=self.seed.now)
            group = self.seed.group(Entry(1, seq, publication))
            self.places[group] += 1
            self.serve(self.seed.commit([Entry(1, seq, publication, self.places[group])]))
        self.settle_books()

    @rule(
        interests=st.lists(st.sampled_from(INTERESTS), min_size=1, max_size=2, unique=True),
        history=st.sampled_from([0, 0, 2]),
        room=st.sampled_from([2, 1_000]),
        conflation_ms=st.sampled_from([0, 200]),
    )
    def subscribe(
        self,
        interests: list[str],
        history: int = 0,
        room: int = 1_000,
        conflation_ms: int = 0,
    ) -> None:
        if len(self.readers) < READERS_MAX:
            subscription = Subscription(self.shared, interests, room)
            conflation_ms = conflation_ms if self.conflating else 0
            conflated = conflation_ms > 0
            self.readers.append(Reader(subscription, began=self.sent, conflated=conflated))
            self.shared.add(subscription, history if self.histories else 0, conflation_ms)
            self.settle_books()

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, READERS_MAX - 1), whole=st.booleans())
    def end(self, which: int, whole: bool) -> None:
        reader = self.readers[which % len(self.readers)]
        subjects = reader.subscription.subjects
        if subjects:
            self.shared.remove(reader.subscription, list(subjects) if whole else subjects[:1])
        self.settle_books()

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, READERS_MAX - 1))
    def read(self, which: int) -> None:
        self.take(self.readers[which % len(self.readers)])
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
            event = msgspec.json.decode(payload)
            if event.get("status") == "SUBSCRIBE_DENY":
                self.denied = self.subscribed.get((self.attempt, event.get("id")), self.sent)
            self.perform(self.core.received(self.attempt, payload, self.now))
        self.settle_books()

    @rule()
    def server_goes_on(self) -> None:
        self.now += 100 * MS if self.conflating else MS
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
        quiet = 0
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
            rests = not before and not (self.to_server or self.to_client or self.asked)
            quiet = quiet + 1 if rests else 0
            if quiet == QUIET_ROUNDS:
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
            gaps = not reader.conflated and got != list(range(got[0], newest + 1))
            assert got[-1] == newest, f"{told}: not all"
            assert not gaps, f"{told}: gaps"
            if not self.histories:
                assert reader.fields[subject] == self.fields[subject], f"{told}: fields"
            owed = newest if reader.conflated else min(reader.owed.get(subject, newest), newest)
            assert got[0] <= owed, f"{told}: late"


TestSharing = SharingMachine.TestCase
TestSharing.settings = hypothesis_settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[SearchPhase.explicit, SearchPhase.generate],  # making an example smaller takes minutes
)


def wander(it: SharingMachine, rng: random.Random, steps: int) -> None:
    """Have anything happen; a random walk comes further than what hypothesis draws."""
    it.begin(
        slow_rights=rng.random() < 0.3,
        connected=rng.random() < 0.8,
        patterns=rng.random() < 0.5,
        histories=rng.random() < 0.2,
        conflating=rng.random() < 0.2,
    )
    for _ in range(steps):
        happens = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        happens(it, rng)
    it.teardown()


def when(condition: Any, happens: Any) -> Any:
    """Return what happens only if it can."""
    return lambda it, rng: happens(it, rng) if condition(it) else None


WEIGHTS = {
    lambda it, rng: it.publish(rng.choice(SUBJECTS), rng.choices("xyz", k=rng.randint(1, 3))): 5,
    lambda it, rng: it.subscribe(
        rng.sample(INTERESTS, rng.randint(1, 2)),
        rng.choice([0, 0, 2]),
        rng.choice([2, 1_000]),
        rng.choice([0, 200]),
    ): 4,
    when(lambda it: it.readers, lambda it, rng: it.end(rng.randrange(5), rng.random() < 0.5)): 2,
    when(lambda it: it.readers, lambda it, rng: it.read(rng.randrange(5))): 4,
    when(lambda it: it.to_server, lambda it, rng: it.server_reads(rng.randint(1, 6))): 5,
    when(lambda it: it.to_client, lambda it, rng: it.client_hears(rng.randint(1, 6))): 5,
    when(lambda it: it.live, lambda it, _: it.exchange()): 3,
    lambda it, _: it.server_goes_on(): 2,
    when(lambda it: it.live, lambda it, rng: it.congested(writable=rng.random() < 0.6)): 2,
    when(lambda it: it.asked, lambda it, rng: it.decide(allowed=rng.random() < 0.7)): 3,
    when(lambda it: it.core.phase is Phase.UP, lambda it, _: it.renew_token()): 1,
    lambda it, rng: it.pause(paused=rng.random() < 0.5): 2,
    when(lambda it: it.live, lambda it, _: it.lose()): 1,
    when(lambda it: not it.live, lambda it, _: it.connect()): 2,
}
"""What may happen in a random walk, and how often."""


@pytest.mark.parametrize("first", range(0, 1_000, 250))
def test_wherever_they_wander_nobody_lacks_anything(first: int) -> None:
    for seed in range(first, first + 250):
        wander(SharingMachine(), random.Random(seed), 40)


def machine(
    *, slow_rights: bool = False, everything: bool = True, conflating: bool = False
) -> SharingMachine:
    """Begin with a client that is connected; with `everything` it has read `/**` all the time."""
    it = SharingMachine()
    it.begin(
        slow_rights=slow_rights,
        connected=True,
        patterns=everything,
        histories=False,
        conflating=conflating,
    )
    return it


def test_a_join_gets_its_snapshot_also_behind_what_the_others_missed() -> None:
    it = machine()
    it.exchange()
    it.publish("/a/1", ["x"])
    it.exchange()
    it.pause(paused=True)
    it.publish("/a/1", ["y"])
    it.subscribe(["/a/1"])
    it.teardown()


def test_a_join_loses_nothing_when_what_brings_its_messages_ends() -> None:
    it = machine(slow_rights=True)
    it.decide(allowed=True)
    it.publish("/a/1", ["x"])
    it.subscribe(["/a/1"])
    it.exchange()
    it.end(1, whole=True)
    it.subscribe(["/a/1"])
    it.subscribe(["/a/2", "/a/*"])
    it.end(2, whole=True)
    it.teardown()


def test_a_join_beside_a_full_subscription_waits_for_it() -> None:
    it = machine(everything=False)
    it.publish("/a/1", ["x"])
    it.publish("/a/2", ["x"])
    it.subscribe(["/a/1", "/a/2"], room=2)
    it.exchange()
    it.subscribe(["/a/*"])
    it.publish("/a/1", ["y"])
    it.exchange()
    it.publish("/a/2", ["y"])
    it.teardown()


def test_a_full_subscription_of_which_a_subject_ends_is_held_again() -> None:
    it = machine(everything=False)
    it.subscribe(["/a/1", "/a/2"], room=2)
    it.exchange()
    reader = it.readers[0]
    for times in range(2):
        it.publish("/a/2", ["x"])
        it.publish("/a/2", ["y"])
        it.exchange()
        assert it.shared.held(reader.subscription)
        if not times:
            it.end(0, whole=False)
            it.exchange()
    assert reader.subscription.subjects == ["/a/2"]


@pytest.mark.parametrize("later", ["aaa", "zzz"])
def test_a_join_gets_what_comes_under_another_history_id_whatever_that_is(later: str) -> None:
    it = machine()
    subscription = Subscription(it.shared, ["/a/1"], 10)
    subscription.join(history=5)
    subscription.started = True
    event = MessageEvent(subject="/a/1", type=MessageType.HISTORICAL, epoch=1, seq=7)
    assert subscription.wants(event, "mmm", repeated=True)
    assert not subscription.wants(event, "mmm", repeated=True)
    assert subscription.wants(event, later, repeated=True)
    assert not subscription.wants(event, later, repeated=True)


def test_a_join_is_not_finished_by_the_answer_to_an_earlier_question() -> None:
    it = machine()
    it.subscribe(["/a/1", "/a/*"])
    it.publish("/a/1", ["x"])
    it.exchange()
    it.subscribe(["/a/1"])
    it.teardown()


@pytest.mark.parametrize("conflated", ["/a/1", "/a/*"])
@pytest.mark.parametrize("whole", ["/**", "/a/1"])
@pytest.mark.parametrize("later", [True, False])
def test_what_one_subscription_conflates_another_gets_whole(
    conflated: str, whole: str, later: bool
) -> None:
    it = machine(everything=False, conflating=True)
    wanted = [(conflated, 200), (whole, 0)]
    for interest, conflation_ms in wanted if later else reversed(wanted):
        it.subscribe([interest], conflation_ms=conflation_ms)
        it.exchange()
        it.server_goes_on()
        it.exchange()
    for _ in range(3):
        it.publish("/a/1", ["x", "y"])
    it.teardown()


@pytest.mark.parametrize("paused", [True, False])
def test_a_refusal_ends_only_what_it_answers(paused: bool) -> None:
    it = machine(slow_rights=True)
    it.exchange()
    it.decide(allowed=False)
    if paused:
        it.pause(paused=True)
    it.subscribe(["/a/1", "/**"])
    it.exchange()
    it.teardown()
    assert it.readers[1].subscription.subjects == ["/a/1", "/**"]
