"""The broker against a model that keeps every message for ever and looks at all of them each time.

Publications, subscriptions to subjects and patterns, history, recovery after a reconnection, time
and new numberings come in any order; each step has to bring each session exactly what the model
says, in order.
"""

import re
from collections.abc import Iterator, Sequence

from attrs import define, field
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mdserver.core.cache import entry_bytes
from mdserver.core.commands import AnyCommand, PositionAfter, Publish, Subscribe, Unsubscribe
from mdserver.core.events import Connected, Delivery, Reset, Status
from mdserver.core.message import MessageType, Qos
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.replica import ANY_SUBJECT
from mdserver.core.settings import BrokerSettings
from mdserver.limits import NS_PER_S
from tests.core.one_seed import OneSeed

SUBJECTS = ["/a/b", "/a/c", "/a/b/c", "/__mdserver__/pipeline/s"]
PATTERNS = [
    "/**",
    "/*",
    "/a/*",
    "/a/**",
    "/*/c",
    "/*/b/*",
    "/__mdserver__/pipeline/*",
    "/*/*",
    "/*/**",
    "/*/*/*",
    "/a/*/c",
    "/*/b",
    "/*/*/**",
]
KEPT, KEPT_S, SNAPSHOT_S, SNAPSHOT_FIELDS = 3, 50, 120, 3
SETTINGS = BrokerSettings(
    groups=4,
    cached_messages_per_subject=KEPT,
    cache_expire=KEPT_S * NS_PER_S,
    snapshot_expire=SNAPSHOT_S * NS_PER_S,
    snapshot_fields_max=SNAPSHOT_FIELDS,
    brought_at_once=3,
    work_at_once=4,
)
PUBLICATIONS = st.builds(
    Publish,
    subject=st.sampled_from(SUBJECTS),
    content=st.text("ab", max_size=3),
    fields=st.dictionaries(st.sampled_from("vwxyz"), st.sampled_from("0123"), max_size=2),
    retained=st.sampled_from([True, True, False]),
    qos=st.sampled_from([Qos.GUARANTEED, Qos.GUARANTEED, Qos.GUARANTEED, Qos.STANDARD]),
    closure=st.just("c"),
)
Event = tuple[object, ...]


@define
class Message:
    seq: int
    content: str
    fields: dict[str, str]
    retained: bool
    time: int


@define
class Client:
    session: int
    wanted: list[str] = field(factory=list)
    seen: dict[str, tuple[str, int, int]] = field(factory=dict)
    connected: bool = False  # a command connects


def is_match(pattern: str, subject: str) -> bool:
    if subject.startswith("/__mdserver__/") and not pattern.startswith("/__mdserver__/"):
        return False
    parts = [{"*": "[^/]+", "**": ".+"}.get(part, re.escape(part)) for part in pattern.split("/")]
    return re.fullmatch("/".join(parts), subject) is not None


def exactness(pattern: str) -> list[int]:
    return [{"*": 1, "**": 0}.get(part, 2) for part in pattern.split("/")[1:]]


class BrokerMachine(RuleBasedStateMachine):
    """What is observed of a session is (word, subject, seq, content, ...)."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = OneSeed(SETTINGS)
        self.history = "h1"
        self.now = 0
        self.opened = 0
        self.messages: dict[str, list[Message]] = {subject: [] for subject in SUBJECTS}
        self.clients: list[Client] = []
        for _ in range(2):
            self.open()

    # What the model knows.

    def cached(self, subject: str) -> list[Message]:
        return [m for m in self.messages[subject][-KEPT:] if m.time > self.now - KEPT_S]

    def snapshot(self, subject: str) -> Iterator[Event]:
        latest, fields = self.folded(subject)
        if latest is not None:
            yield ("SNAPSHOT", subject, latest.seq, latest.content, fields)

    def folded(self, subject: str) -> tuple[Message | None, dict[str, str]]:
        """Fold all retained messages; a pause longer than the snapshot's life starts it anew."""
        latest: Message | None = None
        fields: dict[str, str] = {}
        for message in self.messages[subject]:
            if message.retained:
                if latest is not None and message.time - latest.time >= SNAPSHOT_S:
                    fields = {}
                latest, fields = message, {**fields, **message.fields}
        if latest is None or self.now - latest.time >= SNAPSHOT_S:
            return None, {}
        return latest, fields

    def is_beyond(self, command: Publish) -> bool:
        """Whether the snapshot would get too many fields."""
        if not command.retained or not command.fields or command.qos is Qos.STANDARD:
            return False
        _, fields = self.folded(command.subject)
        return len({**fields, **command.fields}) > SNAPSHOT_FIELDS

    def way(self, client: Client, subject: str) -> str | None:
        """The one subscription that brings a subject to a client."""
        if subject in client.wanted:
            return subject
        ways = [wanted for wanted in client.wanted if "*" in wanted and is_match(wanted, subject)]
        return max(ways, key=exactness, default=None)

    def first(self, client: Client, wanted: str, history: int, recover: bool) -> Iterator[Event]:
        """What a new subscription brings before the live messages."""
        for subject in SUBJECTS:
            if self.way(client, subject) != wanted:
                continue
            messages = self.messages[subject]
            known, _, seq = client.seen.get(subject, ("", 0, 0))
            if recover and known == self.history:
                if seq < len(messages) - len(self.cached(subject)):
                    yield ("DATA_RESYNC", subject, seq + 1, len(messages))
                    yield from self.snapshot(subject)
                else:
                    yield ("DATA_SYNC", subject)
                    for message in messages[seq:]:
                        yield ("RECOVERED", subject, message.seq, message.content, message.fields)
            elif history and not (recover and known):
                for message in self.cached(subject)[-history:]:
                    yield ("HISTORICAL", subject, message.seq, message.content, message.fields)
            else:
                yield from self.snapshot(subject)

    # What the broker says.

    def observe(self, outputs: list[Output]) -> dict[int, list[Event]]:
        seen: dict[int, list[Event]] = {}
        clients = {client.session: client for client in self.clients}
        for output in outputs:
            if isinstance(output, Deliver):
                for session in output.sessions:
                    self.note(clients[session], output.delivery)
                    seen.setdefault(session, []).append(self.shown(session, output.delivery))
            elif isinstance(output, Send):
                if isinstance(output.event, Delivery):
                    self.note(clients[output.session], output.event)
                event = self.shown(output.session, output.event)
                if event:
                    seen.setdefault(output.session, []).append(event)
        return seen

    def note(self, client: Client, delivery: Delivery) -> None:
        entry = delivery.entry
        subject = entry.publication.subject
        assert delivery.match == (None if subject in client.wanted else self.way(client, subject))
        if entry.seq:
            assert entry.epoch == self.seed.epoch
            known, _, last = client.seen.get(subject, ("", 0, 0))
            if known != self.history:
                last = 0  # seen before the numbering began anew, and not subscribed to since
            assert entry.seq > last or delivery.type is not MessageType.UPDATE
            client.seen[subject] = (self.history, entry.epoch, max(entry.seq, last))

    def shown(self, session: int, event: object) -> Event:
        if isinstance(event, Delivery):
            publication = event.entry.publication
            return (
                event.type.value,
                publication.subject,
                event.entry.seq,
                publication.content.decode(),
                publication.fields or {},
            )
        if isinstance(event, Status):
            missing = event.missing
            if missing is None:
                return (event.status.value, event.subject)
            assert {missing.first.history, missing.last.history} == {self.history}
            return (event.status.value, event.subject, missing.first.seq, missing.last.seq)
        if isinstance(event, Reset):
            assert event.history == self.history
            return ("reset", tuple(sorted(event.subjects)))
        assert isinstance(event, Connected)
        assert event.session == f"mdserver-{session}"
        return ()

    def receive(self, client: Client, commands: Sequence[AnyCommand]) -> list[Output]:
        client.connected = True
        return self.seed.receive(client.session, commands)

    def check(self, outputs: list[Output], expected: dict[int, list[Event]]) -> None:
        observed = self.observe(outputs)
        assert observed == {session: events for session, events in expected.items() if events}

    # What happens.

    @precondition(lambda self: len(self.clients) < 5)
    @rule()
    def open(self) -> None:
        self.opened += 1
        self.clients.append(Client(self.opened))
        self.check(self.seed.open(self.opened), {})

    @precondition(lambda self: len(self.clients) > 3)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.check(self.seed.close(client.session, "left"), {})

    @rule(data=st.data(), publications=st.lists(PUBLICATIONS, min_size=1, max_size=5))
    def publish(self, data: st.DataObject, publications: list[Publish]) -> None:
        publisher = data.draw(st.sampled_from(self.clients))
        for command in publications:
            subject, fields, seq = command.subject, command.fields or {}, 0
            assert command.content is not None
            if self.is_beyond(command):
                failed: list[Event] = [("PUBLISH_FAILED", subject)]
                outputs = self.receive(publisher, [command])
                self.check(outputs, {publisher.session: failed})
                continue
            if command.qos is Qos.GUARANTEED:
                seq = len(self.messages[subject]) + 1
                self.messages[subject].append(
                    Message(seq, command.content, fields, command.retained, self.now)
                )
            update = ("UPDATE", subject, seq, command.content, fields)
            expected: dict[int, list[Event]] = {
                client.session: [update] for client in self.clients if self.way(client, subject)
            }
            expected.setdefault(publisher.session, []).append(("PUBLISH_OK", subject))
            self.check(self.receive(publisher, [command]), expected)

    @rule(
        data=st.data(),
        wanted=st.sampled_from(SUBJECTS + PATTERNS),
        history=st.sampled_from([0, 0, 1, 2, 100]),
    )
    def subscribe(self, data: st.DataObject, wanted: str, history: int) -> None:
        # One client gets most of them, so that it comes to have many patterns.
        client = data.draw(st.sampled_from([*self.clients, *[self.clients[0]] * 4]))
        if wanted not in client.wanted:
            client.wanted.append(wanted)
        expected = list(self.first(client, wanted, history, recover=False))
        outputs = self.receive(client, [Subscribe(subjects=[wanted], history=history)])
        self.check_unordered(client, outputs, expected)

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        ended = data.draw(
            st.lists(st.sampled_from(client.wanted or SUBJECTS), min_size=1, max_size=5)
        )
        client.wanted = [other for other in client.wanted if other not in ended]
        self.check(self.receive(client, [Unsubscribe(subjects=ended)]), {})

    @rule(data=st.data(), history=st.sampled_from([0, 2]), forgotten=st.integers(0, 4))
    def reconnect(self, data: st.DataObject, history: int, forgotten: int) -> None:
        """Connect again with all positions, or older ones; one subscription after the other."""
        client = data.draw(st.sampled_from(self.clients))
        client.seen = {
            subject: (known, epoch, max(0, seq - forgotten))
            for subject, (known, epoch, seq) in client.seen.items()
        }
        self.seed.close(client.session, "lost")
        self.opened += 1
        client.session, client.connected = self.opened, False
        self.seed.open(client.session)
        wanted, client.wanted = client.wanted, []
        for subject in wanted:
            client.wanted.append(subject)
            positions = {known: PositionAfter(*at) for known, at in client.seen.items()}
            foreign = [
                known
                for known, (history_id, _, _) in client.seen.items()
                if history_id != self.history and self.way(client, known) == subject
            ]
            expected: list[Event] = [("reset", tuple(sorted(foreign)))] if foreign else []
            expected += self.first(client, subject, history, recover=True)
            for known in foreign:
                del client.seen[known]
            command = Subscribe(subjects=[subject], history=history, positions=positions)
            outputs = self.receive(client, [command])
            self.check_unordered(client, outputs, expected)

    def check_unordered(self, client: Client, outputs: list[Output], expected: list[Event]) -> None:
        """The subjects of a pattern come in any order, what belongs to one of them in order."""
        observed = self.observe(outputs + self.seed.settle()).get(client.session, [])
        assert sorted(observed, key=about) == sorted(expected, key=about)

    @rule(seconds=st.sampled_from([1, 10, 25, 60]))
    def time(self, seconds: int) -> None:
        self.now += seconds
        self.check(self.seed.pass_time(self.now * NS_PER_S), {})

    @precondition(lambda self: self.now > 200)
    @rule()
    def renumber(self) -> None:
        self.history = f"h{int(self.history[1:]) + 1}"
        self.seed.epoch += 1
        self.messages = {subject: [] for subject in SUBJECTS}
        expected: dict[int, list[Event]] = {
            client.session: [("reset", tuple(sorted(client.wanted or [ANY_SUBJECT])))]
            for client in self.clients
            if client.connected
        }
        # Those who are told forget their positions; who is away learns of it later.
        for client in self.clients:
            client.seen = {s: at for s, at in client.seen.items() if not self.way(client, s)}
        self.check(self.seed.reset(self.history, None), expected)

    @invariant()
    def bytes_are_counted(self) -> None:
        broker = self.seed.broker
        cache = broker.statistics().cache
        found = [broker.subject_statistics(subject) for subject in cache.subjects]
        subjects = [one for one in found if one is not None]
        assert len(subjects) == len(found)
        counted = sum(entry_bytes(entry) for one in subjects for entry in one.entries)
        assert cache.bytes == counted + sum(one.snapshot_bytes for one in subjects)
        assert cache.queued == cache.stale + sum(len(one.entries) for one in subjects)


def about(event: Event) -> str:
    return "" if event[0] == "reset" else str(event[1])


TestBroker = BrokerMachine.TestCase
TestBroker.settings = hypothesis_settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # making an example smaller takes minutes
)
