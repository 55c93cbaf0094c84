"""The short way of a single server does what the way of a cluster does."""

import random
from collections import defaultdict

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.cluster.messages import PeerUp, SendPeer, ServerState
from mdserver.cluster.node import TICK, Node
from mdserver.cluster.settings import alone
from mdserver.cluster.wal import WalSynced, WriteWal
from mdserver.core.commands import AnyCommand, Connect, Publish, Subscribe
from mdserver.core.events import Error, Status
from mdserver.core.inputs import Opened, Received, TimerDue, Trouble
from mdserver.core.message import Qos
from mdserver.core.outputs import Committed, Deliver, Disconnect, Output, Send
from mdserver.core.settings import BrokerSettings

SETTINGS = BrokerSettings(groups=4)
SUBJECTS = [f"/a/{number}" for number in range(7)]
Seen = dict[object, list[object]]


class Server:
    """A single server, which takes the way of a cluster if its steps are traced."""

    def __init__(self, *, short: bool, wal: bool = False, workers: bool = False) -> None:
        own = alone(SETTINGS.member, writes_wal=wal, acks_wait_for_wal=wal)
        self.cluster = attrs.evolve(own, trace=not short, workers=workers)
        self.node = Node(SETTINGS, random.Random(1), self.cluster)
        self.requests: list[int] = []
        self.seen: Seen = defaultdict(list)
        self.now = 0

    def step(self, given: object) -> list[Output]:
        self.now += 1
        outputs = self.node.step(given, self.now)  # type: ignore[arg-type]
        for output in outputs:
            match output:
                case WriteWal():
                    self.requests.append(output.request)
                case Deliver():
                    entry = output.delivery.entry
                    for session in output.sessions:
                        self.seen[session, entry.publication.subject].append(entry)
                case Send(event=Status() | Error()):
                    self.seen[output.session, "results"].append(repr(output.event))
                case Committed():
                    self.seen["committed", output.group] += output.entries
        return outputs

    def written(self) -> None:
        """Have all that was to be written on the disk."""
        while self.requests:
            self.step(WalSynced(self.requests.pop(0)))

    def receive(self, session: int, *commands: AnyCommand) -> list[Output]:
        return self.step(Received(session, commands))

    def started(self) -> "Server":
        for session in (1, 2, 3):
            self.step(Opened(session, "127.0.0.1"))
        self.receive(1, Connect(publisher="p"), Subscribe(subjects=["/a/*"]))
        self.receive(2, Connect(), Subscribe(subjects=SUBJECTS[:3], conflation_ms=0))
        self.receive(3, Connect(), Subscribe(subjects=SUBJECTS[2:4], conflation_ms=1000))
        return self

    def results(self) -> Seen:
        """Return all that was seen, with the results of a step in no order.

        Those of different groups come in any order, so each names its publication.
        """
        found = {key: value for key, value in self.seen.items() if value}
        for key, value in found.items():
            if isinstance(key, tuple) and key[1] == "results":
                found[key] = sorted(value, key=str)
        return found

    def held(self) -> list[object]:
        """Return what this server holds of each group."""
        found: list[object] = []
        for group in range(SETTINGS.groups):
            one = self.node.group_statistics(group)
            found.append((one.length, one.committed, one.base, one.numbering, one.publishers))
            images = self.node.broker.export_group(group).subjects
            found.append(sorted(images, key=lambda image: image.subject))
        return found


publications = st.builds(
    Publish,
    subject=st.sampled_from(SUBJECTS),
    content=st.text("xyz", max_size=3),
    fields=st.none() | st.dictionaries(st.sampled_from("ab"), st.just("1"), max_size=2),
    closure=st.none() | st.sampled_from("abc"),
    retained=st.booleans(),
    qos=st.sampled_from([Qos.GUARANTEED] * 4 + [Qos.STANDARD]),
    number=st.none() | st.none() | st.none() | st.integers(1, 4),
)
steps = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.lists(publications, max_size=6)), max_size=12
)


@pytest.mark.slow
@given(steps)
@settings(max_examples=60, deadline=None)
def test_both_ways_have_the_same_results(received: list[tuple[int, list[Publish]]]) -> None:
    short, long = (Server(short=way).started() for way in (True, False))
    for session, commands in received:
        for server in (short, long):
            server.receive(session, *commands)
    assert short.results() == long.results()
    assert short.held() == long.held()


def test_publications_of_all_groups_are_delivered_before_the_results() -> None:
    server = Server(short=True).started()
    commands = [Publish(subject=subject, content="x", closure="c") for subject in SUBJECTS]
    kinds = [type(output) for output in server.receive(1, *commands)]
    deliveries = kinds.count(Deliver)
    assert deliveries >= len(SUBJECTS)
    assert [kind for kind in kinds if kind in (Deliver, Send)] == [
        *[Deliver] * deliveries,
        *[Send] * len(SUBJECTS),
    ]
    assert server.node.pending.commits.count == len(SUBJECTS)
    assert server.node.statistics().waiting == 0


def test_a_server_that_writes_its_log_answers_once_it_is_on_the_disk() -> None:
    server = Server(short=True, wal=True)
    server.step(TimerDue(TICK))
    server.written()
    server.started()
    for number in (1, 2):
        server.receive(1, Publish(subject="/a/0", content=str(number), closure=str(number)))
    assert (server.seen[1, "results"], server.seen[1, "/a/0"]) == ([], [])
    server.written()
    contents = [entry.publication.content for entry in server.seen[1, "/a/0"]]  # type: ignore[attr-defined]
    assert contents == [b"1", b"2"]
    assert len(server.seen[1, "results"]) == 2


def test_clients_are_told_no_history_id_that_a_crash_takes_away() -> None:
    server = Server(short=True, wal=True)
    server.step(TimerDue(TICK))
    refused = server.step(Opened(1, "127.0.0.1"))
    assert [type(output) for output in refused] == [Disconnect]
    assert server.node.unready() == "the history id of this server is not on its disk yet"
    server.written()
    assert server.node.unready() is None
    assert server.step(Opened(2, "127.0.0.1")) == []


def test_a_worker_that_begins_after_the_first_write_serves_clients_at_once() -> None:
    server = Server(short=True, wal=True, workers=True)
    server.step(TimerDue(TICK))
    server.written()
    outputs = server.step(PeerUp("a/worker-1", worker=True))
    told = [sent.message for sent in outputs if isinstance(sent, SendPeer)]
    assert [one.unready for one in told if isinstance(one, ServerState)] == [None]


def test_a_server_whose_disk_takes_nothing_serves_clients() -> None:
    server = Server(short=True, wal=True)
    server.step(TimerDue(TICK))
    server.step(Trouble("The journal cannot be written.", refusing=True))
    assert server.node.unready() is None
    server.step(Trouble(None, refusing=True))
    assert server.node.unready() is not None
