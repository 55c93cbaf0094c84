"""Three seeds on one computer: the cost of an acknowledgement, and the length of an outage."""

import http.client
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve, field, frozen

from mdserver.bench import processes
from mdserver.bench.connections import LoadConnection
from mdserver.bench.encodings import Encoding
from mdserver.bench.fanout import TurnResult, compare, per_cpu_s, per_s
from mdserver.bench.opening import sent
from mdserver.bench.pipelining import Pipeline, publish_all, publisher
from mdserver.bench.processes import BenchError
from mdserver.bench.results import Latencies, Row
from mdserver.bench.target import Running, ServersUnderTest, local, own_subject
from mdserver.bench.verify import Verifier, content
from mdserver.core.commands import Publish
from mdserver.core.events import Status, StatusName

MEMBERS = 3
TURNS = 5
SUBJECTS = 100  # so that nearly every group has one
READY_TIMEOUT_S = 30.0
FLOW_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.02
_READ_BYTES = 256 * 1024


@frozen
class PublisherMode:
    """The number of publishers; `patient` ones wait for each result before they go on."""

    name: str
    publishers: int = 1
    patient: bool = False


MODES = (
    PublisherMode("one at a time", patient=True),
    PublisherMode("1 publisher"),
    PublisherMode("a publisher at each member", MEMBERS),
)


@frozen
class ClusterLoad:
    """The load: publications in each row, and how often a member is killed.

    Unless they publish one at a time, each publisher has at most `window` publications without a
    result, and sends `batch` together.
    """

    encoding: Encoding
    content_bytes: int = 128
    count: int = 50_000
    one_by_one: int = 2000
    kills: int = 10
    window: int = 4000
    batch: int = 100
    running: Running | None = None
    settings: Sequence[str] = ()
    subject: str = field(factory=own_subject)


class MemberProcess:
    """The process of one member, which can be killed and started again."""

    def __init__(self, arguments: Sequence[str], password: str) -> None:
        self.port = 0
        self._arguments = arguments
        self._password = password
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it accepts connections; it may not serve publishers yet."""
        self._process = self._running.enter_context(
            processes.started(
                self._arguments,
                on=set(processes.ALLOWED),
                environment={"MDSERVER_CLUSTERPASSWORD": self._password},
            )
        )
        try:
            self.port = processes.server_port(self._process)
        except BenchError:
            with self._running:  # adds what the process said last
                raise

    @property
    def target(self) -> ServersUnderTest:
        """The member as what is under load."""
        return ServersUnderTest(Running(local(self.port)))

    @property
    def cpu_s(self) -> float:
        """Processor time used so far, in seconds."""
        assert self._process is not None
        return processes.cpu_s(self._process.pid)

    def kill(self) -> None:
        """Kill the process without warning."""
        if self._process is not None:
            self._process.kill()
        self._running.close()

    def wait_ready(self) -> None:
        """Wait until the member takes publications; raise BenchError after 30 s."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=READY_TIMEOUT_S)
            asking.request("GET", "/health/ready")
            status = asking.getresponse().status
            asking.close()
            if status == http.HTTPStatus.OK:
                return
            time.sleep(_LOOK_EVERY_S)
        raise BenchError(f"the member on port {self.port} is not ready after 30 s")


class RunningMember:
    """A member that runs already, which nothing but its address is known of."""

    cpu_s = 0.0

    def __init__(self, running: Running) -> None:
        self.target = ServersUnderTest(running)


@contextmanager
def cluster(settings: Sequence[str] = ()) -> Iterator[list[MemberProcess]]:
    """Run three members and yield them when they are ready; they share all cores with the load."""
    with TemporaryDirectory(prefix="mdserver-bench-") as folder, ExitStack() as stack:
        ports = processes.free_ports(2 * MEMBERS)
        addresses = [f"127.0.0.1:{port}" for port in ports[:MEMBERS]]
        password = secrets.token_hex()
        members = []
        for number, address in enumerate(addresses, 1):
            own = (
                f"NodeName=member-{number}",
                f"Listen=127.0.0.1:{ports[-number]}",  # the same after a restart
                f"ClusterMembers={','.join(addresses)}",
                f"ClusterMemberListen={address}",
                f"ClusterMemberCoordinationFolder={Path(folder) / str(number)}",
                f"JournalFolder={Path(folder) / f'{number}-journal'}",
                *settings,
            )
            member = MemberProcess(processes.server_command(own), password)
            stack.callback(member.kill)
            member.start()
            members.append(member)
        for member in members:
            member.wait_ready()
        yield members


@contextmanager
def single(settings: Sequence[str] = ()) -> Iterator[list[MemberProcess]]:
    """Run one server without a cluster, on the same cores."""
    with TemporaryDirectory(prefix="mdserver-bench-") as folder:
        own = (f"JournalFolder={Path(folder) / 'journal'}", *settings)
        server = MemberProcess(processes.server_command(own), "")
        try:
            server.start()
            server.wait_ready()
            yield [server]
        finally:
            server.kill()


def measure(load: ClusterLoad, progress: Callable[[str], None]) -> list[Row]:
    """Measure one publication at a time, one publisher, one at each member, and kills.

    The cluster takes turns with a single server, which gets the same load. Raises BenchError if a
    publication is refused while all members run, or if a member does not come back. Members that
    run already are neither killed nor compared.
    """
    if load.running is not None:
        addresses = load.running.addresses
        there = [RunningMember(evolve(load.running, addresses=(each,))) for each in addresses]
        return [_mode_row(load, mode, there, [], progress) for mode in MODES]
    progress(f"{MEMBERS} members start")
    with cluster(load.settings) as members, single(load.settings) as alone:
        rows = [_mode_row(load, mode, members, alone, progress) for mode in MODES]
        if load.kills:
            rows.append(_killed(load, members, progress))
    return rows


def _mode_row(
    load: ClusterLoad,
    mode: PublisherMode,
    members: Sequence[MemberProcess | RunningMember],
    alone: Sequence[MemberProcess],
    progress: Callable[[str], None],
) -> Row:
    """Measure a mode in turns with a single server, if there is one."""
    turns: list[TurnResult] = []
    ground_turns: list[TurnResult] = []
    latencies = Latencies()
    for turn in range(1, TURNS + 1):
        progress(f"{mode.name}, turn {turn} of {TURNS}")
        if alone:
            ground_turns.append(_turn(load, alone, mode, Latencies()))
        turns.append(_turn(load, members, mode, latencies))
    row = _row(load, mode.name, turns, latencies)
    compare(row, ground_turns)
    return row


def _publications(load: ClusterLoad, first: int, count: int) -> Iterator[Publish]:
    for number in range(first, first + count):
        text = content(number, load.content_bytes)
        yield Publish(subject=f"{load.subject}/{number % SUBJECTS}", content=text, id=number)


def _turn(
    load: ClusterLoad,
    members: Sequence[MemberProcess | RunningMember],
    mode: PublisherMode,
    latencies: Latencies,
) -> TurnResult:
    """Measure one turn of a mode."""
    count = load.one_by_one if mode.patient else load.count
    share = -(-count // (TURNS * mode.publishers))
    window, batch = (1, 1) if mode.patient else (load.window, load.batch)
    with ExitStack() as stack:
        pipelines = [
            Pipeline(
                publisher(stack, members[index % len(members)].target, load.encoding),
                _publications(load, 1 + index * share, share),
                window,
                batch,
            )
            for index in range(mode.publishers)
        ]
        cpu_s = sum(member.cpu_s for member in members)
        begun = time.perf_counter()
        publish_all(pipelines, latencies)
        seconds = time.perf_counter() - begun
        cpu_s = sum(member.cpu_s for member in members) - cpu_s
    return TurnResult(share * len(pipelines), seconds, cpu_s)


def _killed(
    load: ClusterLoad, members: Sequence[MemberProcess], progress: Callable[[str], None]
) -> Row:
    """Kill each member in turn; measure how long until all groups take publications again.

    The publisher is connected to the next member and publishes to every subject right after.
    """
    latencies = Latencies()
    turns: list[TurnResult] = []
    for kill in range(load.kills):
        progress(f"kill {kill + 1} of {load.kills}")
        victim, contact = members[kill % MEMBERS], members[(kill + 1) % MEMBERS]
        with ExitStack() as stack:
            connection = publisher(stack, contact.target, load.encoding)
            victim.kill()
            begun = time.perf_counter()
            _until_all_taken(connection, load)
            took = time.perf_counter() - begun
        latencies.add(int(took * 1e9), 1)
        turns.append(TurnResult(1, took, 0.0))
        victim.start()
        for member in members:
            member.wait_ready()
    return _row(load, "a member killed", turns, latencies)


def _until_all_taken(connection: LoadConnection, load: ClusterLoad) -> None:
    """Publish to every subject, again after each failure, until each has taken one publication."""
    waiting = {publication.id: publication for publication in _publications(load, 1, SUBJECTS)}
    stream = connection.stream
    connection.socket.setblocking(True)
    connection.socket.settimeout(FLOW_TIMEOUT_S)
    connection.socket.sendall(sent(stream.codec, list(waiting.values())))
    while waiting:
        received = connection.socket.recv(_READ_BYTES)
        if not received:
            raise BenchError("a member that was not killed disconnected the publisher")
        Verifier(0).received(stream, received)
        again = []
        for event in stream.others:
            if not isinstance(event, Status):
                raise BenchError(f"a publication was answered {event}")
            if event.status is StatusName.PUBLISH_OK:
                waiting.pop(event.id, None)
            elif event.id in waiting:
                again.append(waiting[event.id])
        stream.others.clear()
        if again:
            connection.socket.sendall(sent(stream.codec, again))


def _row(load: ClusterLoad, mode: str, turns: Sequence[TurnResult], latencies: Latencies) -> Row:
    row = Row(
        bench="cluster",
        mode=mode,
        encoding=load.encoding.name,
        connections=MEMBERS,
        content_bytes=load.content_bytes,
        count=sum(turn.deliveries for turn in turns),
        seconds=sum(turn.seconds for turn in turns),
        per_s=per_s(turns),
        per_cpu_s=per_cpu_s(turns),
    )
    latencies.fill(row)
    return row
