"""Whoever comes back with the id of the last event that came misses nothing.

Two members have the same log, the second one a little later. A client of server-sent events reads
some of what was sent to it, is cut off, and comes back to one of them with the id of the last
event that it got.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from mdserver.codec.streaming import SseForm, read_event_id
from mdserver.core.commands import AnyCommand, Connect, Ping, Publish, Resume, Subscribe
from mdserver.core.events import Delivery, Mark
from mdserver.core.images import GroupImage
from mdserver.core.message import Entry
from mdserver.core.outputs import Deliver, Output, Send
from mdserver.core.proposal import Proposal
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_MS
from tests.core.one_seed import OneSeed

GROUPS = 2
SETTINGS = BrokerSettings(
    groups=GROUPS, brought_at_once=3, work_at_once=6, cached_messages_per_subject=4
)
SUBJECTS = [f"/a/{number}" for number in range(12)]
PUBLISHER = 1


class Member(OneSeed):
    """Remembers what it committed, and what the client's session is to be sent."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.sent: list[tuple[int, Delivery | object]] = []

    def _finish(self, out: list[Output], proposals: Sequence[Proposal] = ()) -> list[Output]:
        done = super()._finish(out, proposals)
        for output in done:
            if isinstance(output, Send):
                self.sent.append((output.session, output.event))
            elif isinstance(output, Deliver):
                self.sent += [(session, output.delivery) for session in output.sessions]
        return done


class Client:
    """A browser: `seen` holds the numbers of each subject that came, `last` the last id."""

    def __init__(self, subjects: Sequence[str], conflation_ms: int) -> None:
        self.subjects = list(subjects)
        self.conflation_ms = conflation_ms
        self.seen: dict[str, list[int]] = {}
        self.resynced: set[str] = set()
        self.last = ""
        self.session = PUBLISHER
        self.member: Member | None = None
        self.promised: list[int] | None = None
        self.read_up_to = 0

    def connect(self, member: Member) -> None:
        self.session += 1
        self.member = member
        known = read_event_id(self.last) if self.last else None
        self.form = SseForm(self.subjects, known)
        subscribe = Subscribe(subjects=self.subjects, conflation_ms=self.conflation_ms)
        if known is not None:
            subscribe = Resume(
                subjects=self.subjects,
                conflation_ms=self.conflation_ms,
                positions=known.after(),
                known=known.history,
                places=known.places,
            )
        self.read_up_to = len(member.sent)
        member.open(self.session, "sse")
        commands: list[AnyCommand] = [Connect(), subscribe, Ping()]
        member.receive(self.session, commands)

    def cut(self) -> None:
        assert self.member is not None
        self.member.close(self.session, "gone")
        self.member = None

    def read(self, most: int) -> None:
        """Take so many of the events that wait."""
        assert self.member is not None
        while most and self.read_up_to < len(self.member.sent):
            session, event = self.member.sent[self.read_up_to]
            self.read_up_to += 1
            if session == self.session:
                most -= 1
                self._take(event)

    def _take(self, event: object) -> None:
        form = self.form
        if isinstance(event, Delivery):
            frame = form.delivery(event)
        elif isinstance(event, Mark):
            frame = form.mark(event)
        else:
            frame = form.event(event)  # type: ignore[arg-type]
        told = form.wire([frame]).partition(b"\r\n")[2].removesuffix(b"\r\n").decode()
        fields = dict(line.split(": ", 1) for line in told.strip("\n").split("\n"))
        if fields.get("event") == "message":
            message = json.loads(fields["data"])
            seen = self.seen.setdefault(message["subject"], [])
            if message["type"] != "SNAPSHOT" and message["subject"] not in self.resynced:
                assert message["seq"] > max(seen, default=0), "it came twice"
            seen.append(message["seq"])
        elif fields.get("event") == "status":
            status = json.loads(fields["data"])
            if status["status"] == "DATA_RESYNC":
                self.resynced.add(status["subject"])
        self.last = fields.get("id", self.last)
        places = read_event_id(self.last).places if self.last else None
        if self.promised is None and places is not None:
            self.promised = places


class World:
    def __init__(self, client: Client) -> None:
        self.first, self.second = Member(), Member()
        self.client = client
        self.log: list[Entry] = []
        self.replicated = 0
        self.first.open(PUBLISHER)
        self.first.receive(PUBLISHER, [Connect()])

    def publish(self, subjects: Sequence[str]) -> None:
        for subject in subjects:
            self._publish(subject)

    def _publish(self, subject: str) -> None:
        seq = 1 + sum(entry.publication.subject == subject for entry in self.log)
        self.first.receive(PUBLISHER, [Publish(subject=subject, content=str(seq))])
        state = self.first.broker.subject_statistics(subject)
        assert state is not None
        assert state.seq == seq
        self.log.append(state.entries[-1])

    def replicate(self, count: int) -> None:
        entries = self.log[self.replicated : self.replicated + count]
        self.second.commit(entries)
        self.replicated += len(entries)

    def take_over(self) -> None:
        """Have the second member get all that it lacks as copies of the cache."""
        for subject in SUBJECTS:
            if self.second.broker.subject_statistics(subject) is None:
                self.client.resynced.add(subject)  # whoever is there gets the snapshot only
        for group in range(GROUPS):
            image: GroupImage = self.first.broker.export_group(group)
            self.second._lengths = dict(self.first._lengths)
            self.second.take_over(group, image)
        self.replicated = len(self.log)

    def pass_time(self, ms: int) -> None:
        for member in (self.first, self.second):
            member.pass_time(member.now + ms * NS_PER_MS)


BURST = st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=8)
# It reads all, then some of what is published next, and is gone; more is published then.
CUTS = st.tuples(
    BURST,
    st.booleans(),
    st.integers(0, 150),
    st.integers(0, 8),
    BURST,
    st.sampled_from(["first", "second"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), BURST),
        st.tuples(st.just("read"), st.integers(1, 12)),
        st.tuples(st.just("time"), st.integers(1, 150)),
        st.tuples(st.just("replicate"), st.integers(1, 9)),
        st.tuples(st.just("cut"), CUTS),
        st.tuples(st.just("cut"), CUTS),
    ),
    min_size=8,
    max_size=30,
)


A, B, C = SUBJECTS[:3]
COPIED_WHILE_AHEAD = [
    ("publish", [A, A, A]),
    ("cut", ([A], False, 0, 0, [A, A, B, C], "first")),
    ("cut", ([A], False, 1, 7, [B], "second")),
    ("publish", [A]),
    ("cut", ([A], True, 0, 4, [B], "first")),
]
CONFLATED_WHILE_AHEAD = [
    ("publish", [A]),
    ("cut", ([A, B], False, 100, 2, [A], "second")),
    ("publish", [A, A, A]),
    ("cut", ([A], False, 0, 2, [A], "first")),
]


@pytest.mark.parametrize("conflation_ms", [0, 100])
@example(steps=COPIED_WHILE_AHEAD, subjects=["/a/*"])
@example(steps=CONFLATED_WHILE_AHEAD, subjects=["/a/*"])
@settings(max_examples=150, deadline=None)
@given(
    steps=STEPS,
    subjects=st.sampled_from([["/a/*"], ["/a/1", "/a/*"], ["/**", "/a/3", "/a/4"]]),
)
def test_nothing_is_missed(
    steps: list[tuple[str, Any]], subjects: list[str], conflation_ms: int
) -> None:
    note(f"{subjects} {steps}")
    client = Client(subjects, conflation_ms)
    world = World(client)
    client.connect(world.first)
    for name, value in steps:
        if name == "publish":
            world.publish(value)
        elif name == "replicate":
            world.replicate(value)
        elif name == "read":
            client.read(value)
        elif name == "time":
            world.pass_time(value)
        else:
            burst, copied, ms, read, missed, member = value
            client.read(10_000)
            world.publish(burst)
            if copied:
                world.take_over()
            else:
                world.replicate(read)
            world.pass_time(ms)
            client.read(read)
            client.cut()
            world.publish(missed)
            client.connect(world.first if member == "first" else world.second)
    world.replicate(len(world.log))
    for _ in range(50):
        world.pass_time(200)
        client.read(10_000)
    assert client.promised is not None, "it never became complete"
    newest = {entry.publication.subject: entry.seq for entry in world.log}
    for subject, last in newest.items():
        seen = client.seen.get(subject, [])
        assert max(seen) == last, subject
        if conflation_ms or subject in client.resynced:
            continue
        group = group_of(subject, GROUPS)
        for entry in world.log:
            if entry.publication.subject == subject and entry.place > client.promised[group]:
                assert entry.seq in seen, subject
