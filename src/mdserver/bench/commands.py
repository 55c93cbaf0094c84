"""The commands of `mdserver bench`."""

from collections.abc import Sequence
from typing import Any

import click

from mdserver.bench import cache as cache_bench
from mdserver.bench import cluster as cluster_bench
from mdserver.bench import compared, disturbed, results
from mdserver.bench import connect as connect_bench
from mdserver.bench import derive as derive_bench
from mdserver.bench import fanout as fanout_bench
from mdserver.bench import hostile as hostile_bench
from mdserver.bench import publish as publish_bench
from mdserver.bench import restart as restart_bench
from mdserver.bench import subjects as subjects_bench
from mdserver.bench.attackers import ATTACKS
from mdserver.bench.encodings import ADAPTERS
from mdserver.bench.open_loop import BenchProgress, OpenLoad
from mdserver.bench.options import (
    AGAINST,
    BURST,
    BURSTS,
    BYTES,
    CLIENTS,
    CONNECTIONS_MAX,
    CROWD,
    CUT_EVERY,
    FLOOR,
    LOOP_BYTES,
    LOOP_SECONDS,
    OPENING,
    PUBLICATIONS_MAX,
    RATE,
    SECONDS,
    SECONDS_MAX,
    SUBJECTS,
    SUBJECTS_MAX,
    SUBSCRIBERS,
    duration,
    measurement,
    seconds,
    whole,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure what servers can do: those that run already (--server), or one that is started.

    A server that is started listens on 127.0.0.1 and is kept to one core; the load runs on the
    others. Close what else uses the processor, and compare ratios rather than rates when you
    compare computers. Every delivery is verified: the exit status is 1 if one was lost, came twice,
    out of order or altered.

    \b
    mdserver bench latency --clients 1000 --rate 50
    mdserver bench latency --server http://127.0.0.1:8800 --fail-if 'p99_ms > 50'
    mdserver bench jitter --report jitter.html
    """


@measurement(
    bench,
    SUBSCRIBERS,
    BYTES,
    BURSTS,
    SECONDS,
    FLOOR,
    click.option(
        "--rate",
        type=click.FloatRange(0.1, 1_000_000),
        help="Bursts a second at most, to compare latencies with those of the floor. "
        "Each turn begins with one.",
    ),
    servers=True,
    adapters=sorted(ADAPTERS),
)
def fanout(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second from one publisher to N subscribers.

    The next messages are published when every subscriber has the last ones. Every delivery is
    verified by its position and content. The floor is measured only beside a server that is
    started.

    \b
    mdserver bench fanout
    mdserver bench fanout --subscribers 5000 --burst 1 --seconds 20
    """
    if load["running"] is not None:
        load["with_floor"] = False  # it would run on this computer, not on the server's
    return fanout_bench.measure(fanout_bench.FanoutLoad(**load), progress)


@measurement(
    bench,
    SUBSCRIBERS,
    whole("--stalled", 1, 1000, "Further subscribers whose connections are never read."),
    BYTES,
    BURSTS,
    SECONDS,
)
def stalled(progress: BenchProgress, stalled: int, **load: Any) -> Sequence[results.Row]:
    """What subscribers who never read do to those who do: their latency, the server's memory.

    Two servers take turns under the same load, one without and one with the stalled subscribers.
    """
    return compared.stalled(fanout_bench.FanoutLoad(**load), stalled, progress)


@measurement(bench, SUBSCRIBERS, BYTES, BURSTS, SECONDS)
def encrypted(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second over TLS, compared with the same without it.

    Two servers take turns under the same load; `floor` and `ratio` are about the one without TLS.
    """
    return compared.encrypted(fanout_bench.FanoutLoad(**load), progress)


@measurement(bench, SUBSCRIBERS, BYTES, BURSTS, SECONDS)
def monitored(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second while all monitors are read, compared with no monitor at all.

    Two servers take turns under the same load; `floor` and `ratio` are about the one without.
    """
    return compared.monitored(fanout_bench.FanoutLoad(**load), progress)


def _of_connections(name: str, connections: int, summary: str) -> click.Command:
    """Make a command that opens connections; both have the rate and the memory of a connection."""

    def measure(progress: BenchProgress, tls: bool, **load: Any) -> Sequence[results.Row]:
        if tls and load["running"] is not None:
            raise click.UsageError("--tls is for a server that is started; --server takes https://")
        if tls:
            return connect_bench.encrypted(connect_bench.ConnectLoad(**load), name, progress)
        return [connect_bench.measure(connect_bench.ConnectLoad(**load), name, progress)]

    measure.__name__, measure.__doc__ = name, summary
    meaning = "WebSocket connections that are opened, each with a subscription."
    count = whole("--connections", connections, CONNECTIONS_MAX, meaning)
    tls = click.option(
        "--tls",
        is_flag=True,
        help="Over TLS: a row with full handshakes, and one whose clients resume a session.",
    )
    return measurement(bench, count, OPENING, tls, servers=True, adapters=sorted(ADAPTERS))(measure)


_of_connections("idle", 10_000, "Resident memory of the server for each idle connection.")
_of_connections(
    "connect", 5000, "Connections a second: TCP, the upgrade, a subscription, and its answer."
)


@measurement(
    bench,
    whole("--count", 100_000, PUBLICATIONS_MAX, "Publications in each row."),
    BYTES,
    whole("--window", 1000, 1000, "Publications that wait for their result at a time."),
    whole("--batch", 50, 1000, "Publications that go with one system call."),
    servers=True,
)
def publish(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Acknowledged publications a second of one connection, pipelined.

    The first row sends a WebSocket message for each publication, the second puts a batch into
    one.
    """
    if load["batch"] > load["window"]:
        raise click.BadParameter("a batch is larger than the window", param_hint="--batch")
    return publish_bench.measure(publish_bench.PublishLoad(**load), progress)


@measurement(
    bench,
    whole("--subjects", 1000, CONNECTIONS_MAX, "Subjects, each with a subscriber of its own."),
    BYTES,
    whole("--batch", 20, 1000, "Publications that go with one system call."),
    whole("--window", 200, 1000, "Publications that are under way at a time."),
    SECONDS,
    AGAINST,
    servers=True,
    adapters=sorted(set(ADAPTERS) - {"websocket"}),  # which has no subjects
)
def subjects(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Deliveries a second to many subjects with one subscriber each.

    Every delivery is verified, as in a fan-out. With --against two versions take turns under the
    same load; `floor` and `ratio` are about the other one.

    \b
    mdserver bench subjects --against ../earlier/.venv/bin/python
    """
    if load["batch"] > load["window"]:
        raise click.BadParameter("a batch is larger than the window", param_hint="--batch")
    return subjects_bench.measure(subjects_bench.SubjectsLoad(**load), progress)


@measurement(
    bench,
    whole("--count", 200_000, PUBLICATIONS_MAX, "Publications before the server is killed."),
    whole("--subjects", 1000, SUBJECTS_MAX, "Subjects that they go to in turn."),
    BYTES,
)
def restart(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """How long a server with a journal takes to start after a kill -9.

    It has its history, snapshots and numbering again when its ready line comes.
    """
    return restart_bench.measure(restart_bench.RestartLoad(**load), progress)


@measurement(
    bench,
    whole(
        "--count", 50_000, PUBLICATIONS_MAX, "Publications in each row of pipelined ones.", least=3
    ),
    whole(
        "--one-by-one",
        2000,
        PUBLICATIONS_MAX,
        "Publications that each wait for the result of the one before.",
    ),
    whole("--kills", 10, 1000, "How often a member is killed, each in turn.", least=0),
    whole(
        "--window",
        4000,
        10_000,
        "Publications of a pipelined publisher that wait for their result at a time.",
        least=100,
    ),
    BYTES,
    servers=True,
)
def cluster(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Three seeds: acknowledged publications, and how long they stop when a member is killed.

    The members and the load share all cores; a single server takes turns with the cluster, and
    stands for the floor. After each kill (-9) every subject is published to
    through another member; the latency is the time until the last of them is acknowledged. Members
    that --server names are published to only; they are neither killed nor compared.
    """
    return cluster_bench.measure(cluster_bench.ClusterLoad(**load), progress)


@measurement(
    bench,
    whole("--rate", 1000, PUBLICATIONS_MAX, "Publications a second."),
    whole("--every", 10, PUBLICATIONS_MAX, "One in so many makes the rule speak."),
    SECONDS,
    click.option(
        "--warm-up",
        type=click.FloatRange(0, SECONDS_MAX),
        default=30.0,
        show_default=True,
        help="Seconds at this rate before what is measured.",
    ),
    click.option("--kafka", metavar="SERVERS", help="A broker that runs already."),
)
def derive(progress: BenchProgress, kafka: str | None, **load: Any) -> Sequence[results.Row]:
    """From a publication to the notification that a rule of `mdserver pipeline derive` makes of it.

    Needs the extra `pipeline` and Java. Server, Spark and load share all cores. With
    --kafka a stateless rule runs in Spark's real-time mode, from a record to a record.
    """
    if kafka is None:
        return [derive_bench.measure(derive_bench.DeriveLoad(**load), progress)]
    from mdserver.bench import derive_kafka  # needs another extra

    return [derive_kafka.measure(derive_bench.DeriveLoad(**load), kafka, progress)]


@measurement(
    bench,
    click.option("--kafka", metavar="SERVERS", required=True, help="A broker that runs already."),
    click.option(
        "--connections",
        type=click.IntRange(1, 5_000),
        multiple=True,
        default=(10, 50, 200),
        show_default=True,
        help="How many connections there are; repeatable, two rows each.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(1, 100_000),
        default=100.0,
        show_default=True,
        help="Records a second, each of which goes to all connections.",
    ),
    SECONDS,
    BYTES,
    click.option("--broker-pid", type=int, help="Tell the broker's share of a processor."),
)
def kafka(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """One member whose log is Kafka, against a server with a consumer for each connection.

    Records that a producer appends go to every connection of the one, and then of the other. `kib
    each` is the memory of a connection. The baseline is `mdserver.bench.kafka_consumers`; it needs
    the library `websockets`.
    """
    from mdserver.bench import kafka_compared  # needs another extra

    return kafka_compared.measure(kafka_compared.KafkaLoad(**load), progress)


@measurement(
    bench,
    whole("--subjects", 100_000, SUBJECTS_MAX, "Subjects with one message each, in the first row."),
    whole(
        "--messages",
        100_000,
        PUBLICATIONS_MAX,
        "Messages that fill the histories of 100 subjects, in the second row.",
    ),
    BYTES,
)
def cache(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Resident memory of the server for each subject, and for each cached message."""
    return cache_bench.measure(cache_bench.CacheLoad(**load), progress)


@measurement(
    bench,
    click.option(
        "--attack",
        "attacks",
        type=click.Choice(ATTACKS),
        multiple=True,
        default=ATTACKS,
        help="Which attack; repeatable. All of them unless there is one.",
    ),
    SECONDS,
    click.option(
        "--rate-mb",
        type=click.FloatRange(0.01, 1000),
        default=2.0,
        show_default=True,
        help="How many megabytes a second an attacker sends.",
    ),
    judge=hostile_bench.over_the_line,
)
def hostile(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Round trips of a neighbour while an attacker floods the server, and the server's memory.

    The first row is without an attacker. `kib each` is what the attack added to the resident
    memory. The exit status is 1 if an attack adds more than 20 ms to the 99th percentile.
    """
    return hostile_bench.measure(hostile_bench.HostileLoad(**load), progress)


@measurement(bench, CLIENTS, SUBJECTS, RATE, BURST, LOOP_BYTES, LOOP_SECONDS, *CROWD, servers=True)
def latency(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """Latencies at a given rate of publications, whether or not the server keeps up.

    An open loop: a latency counts from the time at which the message was to be sent, so what a
    slow moment holds up is measured as well (coordinated omission). The last row is how long
    publications took until their result.

    \b
    mdserver bench latency --clients 1000 --rate 5 --seconds 30
    mdserver bench latency --server http://10.0.0.1:8800 --server http://10.0.0.2:8800
    """
    return disturbed.latency(OpenLoad(**load), progress)


@measurement(
    bench,
    whole("--clients", 10_000, CONNECTIONS_MAX, "Connections, all subscribed to one subject."),
    LOOP_BYTES,
    seconds(5.0, "How long they are held before the message."),
    *CROWD,
    servers=True,
)
def held(progress: BenchProgress, **load: Any) -> Sequence[results.Row]:
    """How many connections are held at once, and how soon one message has reached them all.

    The first row has the connections: how many a second, and the memory of one. The longest latency
    of the second row is the time until every client had the message. A process can have as many
    connections as descriptors (ulimit -n), the server and its workers as well as those of the load,
    and one source address at most 28,000 connections to one port (Linux's default).

    \b
    mdserver bench held --clients 100000 --processes 7 --sources 7 \\
        --set Workers=6 --set MaxConnections=101000
    """
    return disturbed.held(OpenLoad(**load), progress)


@measurement(
    bench,
    CLIENTS,
    SUBJECTS,
    RATE,
    BURST,
    LOOP_BYTES,
    LOOP_SECONDS,
    whole("--newcomers", 2000, CONNECTIONS_MAX, "Clients that connect as fast as they can."),
    *CROWD,
    servers=True,
)
def storm(progress: BenchProgress, newcomers: int, **load: Any) -> Sequence[results.Row]:
    """Latencies while very many clients connect at once, and before that.

    The last row has the clients that connected, upgraded and subscribed, and their rate.
    """
    return disturbed.storm(OpenLoad(**load), newcomers, progress)


@measurement(
    bench,
    CLIENTS,
    SUBJECTS,
    RATE,
    BURST,
    LOOP_BYTES,
    LOOP_SECONDS,
    whole("--slow", 10, 500, "Further subscribers that never read.", name="slow_clients"),
    *CROWD,
    servers=True,
)
def slow(progress: BenchProgress, slow_clients: int, **load: Any) -> Sequence[results.Row]:
    """Latencies beside subscribers that never read what they are sent, and before them."""
    return disturbed.slow(OpenLoad(**load), slow_clients, progress)


@measurement(
    bench,
    CLIENTS,
    SUBJECTS,
    RATE,
    BURST,
    LOOP_BYTES,
    seconds(45.0, "How long it lasts."),
    CUT_EVERY,
    duration("--away", "away_s", 2.0, "Seconds until a client that was cut connects again."),
    *CROWD,
    servers=True,
)
def jitter(
    progress: BenchProgress, cut_every_s: float, away_s: float, **load: Any
) -> Sequence[results.Row]:
    """Latencies while each client is cut again and again, and recovers what it missed.

    Connections end with a reset, spread over the interval. The last row is how long it took from a
    cut until a client had everything again; a message that was missed for good counts as lost.
    """
    return disturbed.jitter(OpenLoad(**load), cut_every_s, away_s, progress)


@measurement(
    bench,
    CLIENTS,
    SUBJECTS,
    RATE,
    BURST,
    LOOP_BYTES,
    LOOP_SECONDS,
    click.option(
        "--restart",
        metavar="COMMAND",
        help="What ends one of the servers and starts it again, as 'systemctl restart mdserver'; "
        "never the first, which the publisher is connected to.",
    ),
    *CROWD,
    servers=True,
)
def avalanche(progress: BenchProgress, restart: str | None, **load: Any) -> Sequence[results.Row]:
    """How long it takes until all clients of a member that ends are back, and have everything.

    Without --server a cluster of three is started, and one member is killed (-9) and started
    again. Clients go to the next server at once. The last row is how long each client was away.
    """
    return disturbed.avalanche(OpenLoad(**load), restart, progress)


@measurement(
    bench,
    CLIENTS,
    SUBJECTS,
    RATE,
    BURST,
    LOOP_BYTES,
    seconds(3600.0, "How long it lasts."),
    duration("--cut-every", "cut_every_s", 300.0, "Seconds after which each client is cut."),
    *CROWD,
    servers=True,
)
def soak(progress: BenchProgress, cut_every_s: float, **load: Any) -> Sequence[results.Row]:
    """A long load with churn: latencies, growth of memory, descriptors that are left open.

    Growth is that of the last five sixths of the time.

    \b
    mdserver bench soak --fail-if 'grown_percent > 3' --fail-if 'descriptors_left > 0'
    """
    return disturbed.soak(OpenLoad(**load), cut_every_s, progress)
