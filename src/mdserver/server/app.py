"""The composition root: makes the parts of a server from its configuration, and runs them.

This is the only module that knows all parts. `build` makes them bottom up: what the disk holds, the
node, the server around it, and the parts that answer the node's requests. `App.serve` connects them
by filling in the engine's table of routes, and runs them until it is cancelled. Neither touches
signals, standard output or the garbage collector, so a program can run a server in a nursery of its
own (docs/design.md, "A server in a program").
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog
import trio
from attrs import define, evolve, field

from mdserver.cluster.node import Node
from mdserver.cluster.relisting import UNWRITTEN
from mdserver.config import Config, Entitlement, FanoutEngine, LogLevel, MonitorKind
from mdserver.config.keys import token_verifier
from mdserver.config.reloading import Reload, reloaded
from mdserver.core.inputs import RulesChanged
from mdserver.core.outputs import Log, Trace
from mdserver.journal.audit import AuditLogs
from mdserver.limits import JOURNAL_STATS_S, NS_PER_S
from mdserver.server import tls
from mdserver.server.clients import refusals
from mdserver.server.clients.admission import lowered
from mdserver.server.disk.journalling import Journal
from mdserver.server.disk.statistics_file import StatisticsFile
from mdserver.server.engine import OutputRoutes, ignore, refuse
from mdserver.server.http.router import Router
from mdserver.server.kafka.decoding import METHODS as DECODER_METHODS
from mdserver.server.kafka.decoding import DecoderSettings, decoder_settings
from mdserver.server.kafka.opening import connect, open_kafka
from mdserver.server.logs import audit_logs, set_level
from mdserver.server.member import Links, Member, open_member
from mdserver.server.monitor.cluster_statistics import ClusterStatistics, ClusterStatisticsPage
from mdserver.server.monitor.commands import OperatorCommands
from mdserver.server.monitor.jmx_bridge import JmxBridge
from mdserver.server.monitor.jolokia import PATH as JOLOKIA
from mdserver.server.monitor.jolokia import Jolokia
from mdserver.server.monitor.mbeans import Beans, mbeans
from mdserver.server.monitor.operations import cluster_routes
from mdserver.server.monitor.orders import Orders
from mdserver.server.monitor.pages import Monitor
from mdserver.server.monitor.prometheus import Metrics, MetricsPage
from mdserver.server.monitor.push import Push, Report
from mdserver.server.monitor.routes import monitor_routes
from mdserver.server.monitor.statistics import Statistics
from mdserver.server.monitor.telemetry import connect_telemetry
from mdserver.server.peers.doorstep import Complaints
from mdserver.server.peers.table import LinkTable
from mdserver.server.plugins.authorizers import TokenAuthorizer
from mdserver.server.plugins.custom import CustomAuthorizer, load_class
from mdserver.server.plugins.presence import METHODS, PresenceHook
from mdserver.server.server import Server
from mdserver.server.settings import jmx_settings, otel_settings, server_settings, worker_count
from mdserver.server.sockets import TCP, SocketFactory
from mdserver.server.start_checks import lowered_sentence
from mdserver.server.store import build_node, open_store
from mdserver.server.tracing import tracing
from mdserver.server.workers.links import ServerLink
from mdserver.server.workers.pool import PoolSettings, WorkerPool

if TYPE_CHECKING:
    from mdserver.server.kafka.backplane import Backplane
    from mdserver.server.monitor.otel import OpenTelemetry

log = structlog.get_logger()


class LogWriter(Protocol):
    """The writer of the server log."""

    @property
    def trouble(self) -> str | None:
        """The reason why the log cannot be written now, in one sentence; None if it can."""

    def write(self, line: bytes) -> None:
        """Write a line, or several, with their ends."""


def build(
    config: Config,
    *,
    trace: Path | None = None,
    log_writer: LogWriter | None = None,
    sockets: SocketFactory = TCP,
) -> "App":
    """Make a server. Its files on the disk are read, and locked until the process ends.

    With `trace` the steps of the cluster protocol are appended to that file. `sockets` makes the
    listening sockets for clients. Raises ConfigError or StartError, each with one line that says
    what has to be changed.
    """
    member = open_member(config, trace=trace is not None)
    kafka = open_kafka(config)
    store = open_store(config, member)
    node = build_node(config, member, store, None if kafka is None else kafka.partitioner)

    # These are called with requests, when `app` exists. The parts below need them before that.
    def unready() -> str | None:
        return app.unready()

    def warning() -> str | None:
        return app.warning()

    def config_in_force() -> Config:
        return app.config

    def log_with(level: LogLevel) -> None:
        app.log_with(level)

    router = Router(unready, warning)
    server = Server(server_settings(config), node, router, log, sockets=sockets)
    links = None if member is None else member.connect(node, server.engine, log)
    table = LinkTable(Complaints(log)) if links is None else links.peers
    workers = open_workers(config, server, node, sockets, log_writer, table)
    commands = OperatorCommands(server.engine)
    password = config.monitor_password if config.monitor_http_authentication else ""
    orders = Orders(server.engine, config_in_force, log_with)
    monitor = Monitor(unready, config.monitor_username, password, warning, orders.audit)
    figures = None if workers is None else workers.figures
    statistics = Statistics(server, node, figures)
    if MonitorKind.HTTP in config.monitor:
        monitor.routes |= monitor_routes(server, node, statistics, orders, config_in_force, workers)
        monitor.routes |= cluster_routes(commands)
    server.add_monitor(monitor)
    metrics = Metrics(statistics, unready)
    if MonitorKind.PROMETHEUS in config.monitor:
        page = MetricsPage(metrics)
        where = monitor
        if config.monitor_prometheus_listen is not None:
            guarded = config.monitor_prometheus_authentication
            password = config.monitor_password if guarded else ""
            where = Monitor(unready, config.monitor_username, password, warning)
            server.add_metrics(where)
        where.add("/metrics", {"GET": page})

    def beans() -> Beans:
        return mbeans(statistics, unready())

    if MonitorKind.JMX in config.monitor:
        jolokia = Jolokia(beans, server.engine.clock)
        monitor.add(JOLOKIA, {"GET": jolokia.get, "POST": jolokia.post})
    bridged, reported = jmx_settings(config), otel_settings(config)
    push = cluster_statistics = None
    if MonitorKind.PUSH in config.monitor:
        interval = config.monitor_push_interval
        report = Report(statistics, node.settings.me, interval, unready, warning)
        push = Push(server.engine, report)
        cluster_statistics = ClusterStatistics(node, report, server.engine.clock)
        if MonitorKind.HTTP in config.monitor:
            totals = ClusterStatisticsPage(cluster_statistics)
            monitor.add("/cluster/statistics", {"GET": totals})
    app = App(
        config=config,
        server=server,
        node=node,
        commands=commands,
        statistics=statistics,
        orders=orders,
        push=push,
        cluster_statistics=cluster_statistics,
        jmx=None if bridged is None else JmxBridge(bridged, beans),
        telemetry=None if reported is None else connect_telemetry(reported, server, node, metrics),
        member=member,
        links=links,
        workers=workers,
        kafka=connect(kafka, node, server.engine, build_decoder(config)),
        journal=None if store is None else store.journal(node, server.engine),
        authorizer=build_authorizer(config, server),
        presence=build_presence_hook(config),
        trace=trace,
        log_writer=log_writer,
    )
    return app


def open_workers(
    config: Config,
    server: Server,
    node: Node,
    sockets: SocketFactory,
    log_writer: LogWriter | None,
    table: LinkTable,
) -> WorkerPool | None:
    """Make the pool of worker processes, None without them. Raises StartError."""
    count = worker_count(config)
    if not count:
        return None
    settings = PoolSettings(
        count=count,
        server=node.settings.me,
        secret=node.broker.settings.publisher_secret,
        write_log=None if log_writer is None else log_writer.write,
    )
    return WorkerPool(settings, config, server.engine, sockets, table)


def build_authorizer(config: Config, server: Server) -> TokenAuthorizer | CustomAuthorizer | None:
    """Make the part that answers authorization requests, None if the node makes none.

    Raises ConfigError.
    """
    answer = server.sessions.authorizations.answer
    if config.entitlement is Entitlement.JWT:
        return TokenAuthorizer(token_verifier(config), server.engine.clock, answer)
    if config.entitlement is Entitlement.CUSTOM:
        made = load_class(config.custom_class)
        return CustomAuthorizer(made, config.custom_deadline, answer)
    return None


def build_presence_hook(config: Config) -> PresenceHook | None:
    """Make the part that calls the operator's class for presence, None if there is no class.

    Raises ConfigError.
    """
    name = config.presence_class
    if not name:
        return None
    made = load_class(name, "Extension.Presence.Class", METHODS.values())
    return PresenceHook(made, config.presence_deadline, config.node_name)


def build_decoder(config: Config) -> DecoderSettings | None:
    """Make what decodes the values of Kafka's records, None if there is no class for it.

    Raises ConfigError.
    """
    name = config.kafka_decoder_class
    if not name:
        return None
    made = load_class(name, "Kafka.Decoder.Class", DECODER_METHODS)
    return decoder_settings(made, config.kafka_decoder_deadline)


@define(kw_only=True, eq=False)
class App:
    """The parts of one server. `config` changes with `reload`.

    `takers` are given the lines of the core's logs, beside the parts that take them.
    """

    config: Config
    server: Server
    node: Node
    commands: OperatorCommands
    statistics: Statistics
    orders: Orders
    push: Push | None = None
    cluster_statistics: ClusterStatistics | None = None
    jmx: JmxBridge | None = None
    telemetry: "OpenTelemetry | None" = None
    member: Member | None = None
    links: Links | ServerLink | None = None
    workers: WorkerPool | None = None
    kafka: "Backplane | None" = None
    journal: Journal | None = None
    authorizer: TokenAuthorizer | CustomAuthorizer | None = None
    presence: PresenceHook | None = None
    takers: Sequence[Callable[[Log], None]] = ()
    trace: Path | None = None
    log_writer: LogWriter | None = None
    _audit: AuditLogs | None = field(default=None, init=False)

    def unready(self) -> str | None:
        """Return why no clients should be sent here now, None if they may be."""
        node = self.node
        return (
            self.server.unready
            or (self.workers.unready if self.workers is not None else None)
            or node.broker.publications.refusing
            or node.away()
            or node.unready()
            or node.service.drained()
        )

    def warning(self) -> str | None:
        """Return what needs an operator although clients are served, None if nothing does."""
        parts = (self.journal, self.log_writer, self._audit, self.workers)
        troubles = dict.fromkeys(part.trouble for part in parts if part is not None)
        if self.node.relisting.unwritten:
            troubles[UNWRITTEN] = None
        return "; ".join(filter(None, troubles)) or None

    async def serve(
        self, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; `task_status` gets the URLs of the listeners once they accept.

        Call it once. Raises StartError, alone or in a group, if an address or a file cannot be
        used.
        """
        config, server = self.config, self.server
        with audit_logs(config) as audit, tracing(self.trace, self.member) as traced:
            self._audit = audit
            server.engine.routes = self._routes(traced)
            if self.workers is not None:
                self.workers.bind()  # while there are rights for it
            async with self._journalling(), trio.open_nursery() as nursery:
                if self.presence is not None:
                    await nursery.start(self.presence.run)
                if isinstance(self.authorizer, CustomAuthorizer):
                    await nursery.start(self.authorizer.run)
                if isinstance(self.links, ServerLink):
                    await nursery.start(self.links.run)  # a worker serves what it has a copy of
                urls = await nursery.start(server.serve)
                if self.journal is not None:
                    nursery.start_soon(self.journal.run)
                self._keep_statistics(nursery)
                if self.links is not None and not isinstance(self.links, ServerLink):
                    await nursery.start(self.links.run)
                if self.workers is not None:
                    await nursery.start(self.workers.run)
                    urls = server.urls = self.workers.urls
                if self.kafka is not None:
                    nursery.start_soon(self.kafka.run)
                task_status.started(urls)
                if isinstance(self.links, ServerLink):
                    log.info("worker ready", urls=urls, pid=os.getpid())
                    return
                self._tell_fanout()
                engine = server.fanout.engine.value
                log.info("ready", urls=urls, monitor=server.monitor_urls, fanout=engine)
                processes = 1 if self.workers is None else len(self.workers.slots)
                possible = lowered(config.max_connections, processes)
                if possible is not None:
                    reason = lowered_sentence(config.max_connections, possible, processes)
                    log.info("fewer connections", connections=possible, reason=reason)

    def _tell_fanout(self) -> None:
        """Log why the flusher sends in another way than was asked for, if it does."""
        fanout, wanted = self.server.fanout, self.config.fanout_engine
        if fanout.reason is not None:
            tell = log.info if wanted is FanoutEngine.AUTO else log.warning
            tell("slower fan-out", engine=fanout.engine.value, reason=fanout.reason)

    def _routes(self, traced: Callable[[Trace], None]) -> OutputRoutes:
        """Return the function for each kind of output: the wiring of the whole server."""
        sessions, journal, links, member, kafka = (
            self.server.sessions,
            self.journal,
            self.links,
            self.member,
            self.kafka,
        )
        authorizer, wal = self.authorizer, None if journal is None else journal.wal
        takers: list[Callable[[Log], None]] = [
            part.take
            for part in (
                self._audit,
                self.presence,
                journal,
                member,
                kafka,
                self.statistics,
                self.push,
            )
            if part is not None
        ]
        takers += self.takers
        self.orders.takers = takers
        if self.workers is not None:
            self.workers.takers = takers
        linked = links or self.workers
        peers = None if linked is None else linked.peers
        flush_peers = () if peers is None else (peers.flush,)
        votes = None if links is None else links.votes
        return OutputRoutes(
            deliver=sessions.deliver,
            send=self._send_route(self.config.log_level),
            disconnect=sessions.disconnect,
            failed=sessions.end_failed,
            authorize=ignore
            if authorizer is None
            else sessions.authorizations.through(authorizer.ask),
            committed=ignore if journal is None else journal.committed,
            log=partial(hand_to_each, takers),
            trace=traced,
            announced=ignore if self.cluster_statistics is None else self.cluster_statistics.take,
            send_peer=refuse if peers is None else peers.send,
            peer_discovered=refuse if peers is None else peers.discovered,
            close_peer=refuse if peers is None else peers.close,
            persist=refuse if votes is None else votes.persist,
            write_wal=refuse if wal is None else wal.write,
            admin_reply=self.commands.replied,
            produce=refuse if kafka is None else kafka.produce,
            consume=refuse if kafka is None else kafka.consume,
            after_dispatch=(*flush_peers, sessions.flusher.wake),
        )

    def _send_route(self, level: LogLevel) -> Callable[..., None]:
        """Return the route for events; at the level debug it logs what clients are refused."""
        sessions = self.server.sessions
        shown = level is LogLevel.DEBUG
        return refusals.send_and_tell(sessions) if shown else sessions.send

    def log_with(self, level: LogLevel) -> None:
        """Set a log level other than the configured one, until the next reload."""
        set_level(level)
        engine = self.server.engine
        engine.routes = evolve(engine.routes, send=self._send_route(level))
        if self.workers is not None:
            self.workers.log_with(level)

    @asynccontextmanager
    async def _journalling(self) -> AsyncIterator[None]:
        """Write the journal, if there is one, until the end of the block."""
        if self.journal is None:
            yield
            return
        async with self.journal.running():
            await self.journal.settle(self.node)
            yield

    def _keep_statistics(self, nursery: trio.Nursery) -> None:
        """Start the tasks that sample the server, write the samples, and save the windows."""
        config, statistics = self.config, self.statistics
        nursery.start_soon(statistics.run)
        if self.push is not None:
            nursery.start_soon(self.push.run)
        if self.jmx is not None:
            nursery.start_soon(self.jmx.run)
        if self.telemetry is not None:
            nursery.start_soon(self.telemetry.run)
        if self._audit is not None and config.audit_stats:
            nursery.start_soon(statistics.write_lines, self._audit.take, config.stats_log_interval)
        if self.kafka is not None:
            statistics.kafka = self.kafka.statistics
        if self.journal is not None:
            nursery.start_soon(
                statistics.write_lines, self.journal.take, JOURNAL_STATS_S * NS_PER_S
            )
            statistics.journal = self.journal.state
            file = StatisticsFile(config.journal_folder)
            file.restore(statistics.windows)
            nursery.start_soon(file.run, statistics.windows)

    async def drain(self) -> None:
        """Send the sessions elsewhere, and hand over the groups that this member coordinates.

        Returns when all connections have ended, or after the deadline; then cancel `serve`.
        """
        reason = self.node.needed_for_quorum()
        if reason is not None:
            log.warning("the majority ends with this member", reason=reason)
        async with trio.open_nursery() as nursery:
            if self.member is not None:
                nursery.start_soon(self.member.hand_over, self.commands)
            if self.workers is not None:
                nursery.start_soon(self.workers.drain)
            await self.server.drain(self.node.service.elsewhere() or None)

    def reload(self, config: Config) -> Reload:
        """Apply the parameters of a new configuration that a running server can change, and log it.

        Certificates are read again too. Raises ConfigError or StartError if something is wrong;
        nothing has changed then.
        """
        new = reloaded(self.config, config)
        if self.member is not None:
            self.member.check_list(new.config)
            if not self.member.binds_as_listed(new.config):
                # Others dial it there from now on, and only a restart has it listen there.
                new = evolve(new, refused=(*new.refused, "ClusterMembers"))
        verifier = token_verifier(new.config)
        links = [] if self.member is None else self.member.identities
        workers = [] if self.workers is None else self.workers.identities
        tls.reload([*self.server.identities, *links, *workers])
        if isinstance(self.authorizer, TokenAuthorizer):
            self.authorizer.verifier = verifier
        self.config = new.config
        engine = self.server.engine
        engine.routes = evolve(engine.routes, send=self._send_route(new.config.log_level))
        networks = new.config.publish_allow_from_address_list
        engine.dispatch(RulesChanged(new.config.entitlement_allow_token, networks))
        if self.workers is not None:
            self.workers.reload(new.config)
        if isinstance(self.links, Links):
            self.links.relist(new.config)
        log.info("reloaded", taken=new.taken, needs_restart=new.refused)
        return new


def hand_to_each(takers: Sequence[Callable[[Log], None]], line: Log) -> None:
    """Give a line to each taker, in order."""
    for take in takers:
        take(line)
