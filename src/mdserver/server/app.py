"""Puts a server together and runs it until a signal ends it."""

import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import click
import structlog
import trio

from mdserver.cluster.node import Node
from mdserver.config import Config, Entitlement, Loaded, LogLevel
from mdserver.config.keys import token_verifier
from mdserver.config.reloading import reloaded
from mdserver.core.inputs import RulesChanged
from mdserver.core.outputs import Authorize, Log
from mdserver.errors import ConfigError, StartError
from mdserver.journal.audit import AuditLogs
from mdserver.journal.rotating import LineWriter
from mdserver.limits import JOURNAL_STATS_S, NS_PER_S
from mdserver.server.clients import refusals
from mdserver.server.clients.listener import lowered
from mdserver.server.disk.journalling import Journal
from mdserver.server.disk.statistics_file import StatisticsFile
from mdserver.server.disk.store import node_of, store_of
from mdserver.server.engine import Engine
from mdserver.server.http.router import Router
from mdserver.server.logs import audit_logs, set_level
from mdserver.server.member import Member, member_of
from mdserver.server.monitor.commands import Operations
from mdserver.server.monitor.operations import cluster_routes
from mdserver.server.monitor.pages import Monitor
from mdserver.server.monitor.statistics import Statistics
from mdserver.server.monitor.statistics_page import StatisticsPage
from mdserver.server.plugins.authorizers import TokenAuthorizer
from mdserver.server.plugins.custom import CustomAuthorizer, load_class
from mdserver.server.plugins.presence import METHODS, PresenceHook
from mdserver.server.server import Server
from mdserver.server.settings import server_settings
from mdserver.server.start_checks import lowered_sentence
from mdserver.server.tracing import tracing

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
YOUNG_OBJECTS = 5000  # how many new ones make the garbage collector look at them


def tell_connections(config: Config) -> None:
    """Write how many connections there can be, if that is less than MaxConnections."""
    possible = lowered(config.max_connections)
    if possible is not None:
        reason = lowered_sentence(config.max_connections, possible)
        structlog.get_logger().info("fewer connections", connections=possible, reason=reason)


async def serve(
    config: Config, read: Callable[[], Loaded], trace: Path | None, lines: LineWriter
) -> None:
    """Serve until a signal; raises what keeps the server from starting.

    `read` reads the configuration again, for SIGHUP. `trace` is where steps of the cluster's
    protocol are written, `lines` those of the server log.
    """
    log = structlog.get_logger()
    gc.disable()  # nothing that is made here becomes garbage, and a journal may bring very much
    member = member_of(config, trace=trace is not None)
    store = store_of(config, member)
    node = node_of(config, member, store)

    def unready() -> str | None:
        return (
            server.unready or node.broker.publications.refusing or node.unready() or node.drained()
        )

    def warning() -> str | None:
        troubled = (journal, lines, audit)
        told = dict.fromkeys(one.trouble for one in troubled if one is not None)
        return "; ".join(filter(None, told)) or None

    server = Server(server_settings(config), node, Router(unready, warning), log)
    operations = Operations(server.engine)
    statistics = Statistics(server, node)
    monitor = monitor_of(config, server, operations, unready, warning)
    monitor.add("/statistics", {"GET": StatisticsPage(statistics)})
    server.add_monitor(monitor)
    judge = judge_of(config, server.engine)
    journal = None if store is None else store.journal(node, server.engine)
    with (
        audit_logs(config) as audit,
        tracing(trace, member, server.engine),
        trio.open_signal_receiver(*SIGNALS) as signals,
    ):
        hook = presence_hook(config)
        takers = [
            taker.take for taker in (audit, hook, journal, member, statistics) if taker is not None
        ]
        server.engine.carry(Log, partial(told, takers))
        refusals.watch(server.engine, on=config.log_level is LogLevel.DEBUG)
        async with running(journal, node), trio.open_nursery() as nursery:
            if hook is not None:
                await nursery.start(hook.run)
            if judge is not None:
                server.engine.carry(Authorize, judge.ask)
            if isinstance(judge, CustomAuthorizer):
                await nursery.start(judge.run)
            urls = await nursery.start(server.serve)
            if journal is not None:
                nursery.start_soon(journal.run)
            keep_statistics(config, statistics, audit, journal, nursery)
            if member is not None:
                await nursery.start(member.run, server.engine, log)
            spare_collector()
            click.echo(f"mdserver ready: {' '.join(urls)}")
            log.info("ready", urls=urls, monitor=server.monitor_urls)
            tell_connections(config)
            async for number in signals:
                if number == signal.SIGHUP:
                    config = reload(config, read, server, judge, member)
                    continue
                log.info("ending", signal=signal.Signals(number).name)
                if server.unready:
                    break  # the second signal: at once
                leave = None if member is None else partial(member.hand_over, operations)
                nursery.start_soon(drain, server, node, leave, nursery.cancel_scope)
            nursery.cancel_scope.cancel()


def keep_statistics(
    config: Config,
    statistics: Statistics,
    audit: AuditLogs | None,
    journal: Journal | None,
    nursery: trio.Nursery,
) -> None:
    """Start what samples the server, writes the samples down, and keeps them across restarts."""
    nursery.start_soon(statistics.run)
    if audit is not None and config.audit_stats:
        nursery.start_soon(statistics.write_lines, audit.take, config.stats_log_interval)
    if journal is not None:
        nursery.start_soon(statistics.write_lines, journal.take, JOURNAL_STATS_S * NS_PER_S)
        file = StatisticsFile(config.journal_folder)
        file.restore(statistics.windows)
        nursery.start_soon(file.run, statistics.windows)


def spare_collector() -> None:
    """Have the garbage collector look at what is made from now on only, and more rarely."""
    # What was made so far lives as long as the process: the collector need not look again.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Rarer collections of what is young become fewer of everything, which take 0.2 s at 10,000
    # connections: one instead of five while those connect.
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


async def drain(
    server: Server,
    node: Node,
    leave: Callable[[], Awaitable[None]] | None,
    scope: trio.CancelScope,
) -> None:
    """Ends gracefully; says so where the cluster cannot do without this member."""
    missed = node.missed()
    if missed is not None:
        structlog.get_logger().warning("the majority ends with this member", reason=missed)
    async with trio.open_nursery() as nursery:
        if leave is not None:
            nursery.start_soon(leave)
        await server.drain(node.elsewhere() or None)
    scope.cancel()


def monitor_of(
    config: Config,
    server: Server,
    operations: Operations,
    unready: Callable[[], str | None],
    warning: Callable[[], str | None],
) -> Monitor:
    """What operators find at the monitor's listener."""
    password = config.monitor_password if config.monitor_http_authentication else ""
    monitor = Monitor(server.sessions, unready, config.monitor_username, password, warning)
    for path, methods in cluster_routes(operations).items():
        monitor.add(path, methods)
    return monitor


@asynccontextmanager
async def running(journal: Journal | None, node: Node) -> AsyncIterator[None]:
    """The block in which the journal is written, if there is one."""
    if journal is None:
        yield
        return
    async with journal.running():
        await journal.settle(node)
        yield


def judge_of(config: Config, engine: Engine) -> TokenAuthorizer | CustomAuthorizer | None:
    """Who answers the core's questions, None where it has none. Raises `ConfigError`."""
    if config.entitlement is Entitlement.JWT:
        return TokenAuthorizer(token_verifier(config), engine)
    if config.entitlement is Entitlement.CUSTOM:
        judge = load_class(config.custom_class)
        return CustomAuthorizer(judge, config.custom_deadline, engine.dispatch)
    return None


def presence_hook(config: Config) -> PresenceHook | None:
    """The operator's class that is told who comes and goes. Raises `ConfigError`."""
    name = config.presence_class
    if not name:
        return None
    made = load_class(name, "Extension.Presence.Class", METHODS.values())
    return PresenceHook(made, config.presence_deadline, config.node_name)


def told(takers: Sequence[Callable[[Log], None]], line: Log) -> None:
    """Hand a line to everybody who takes lines."""
    for take in takers:
        take(line)


def reload(
    config: Config,
    read: Callable[[], Loaded],
    server: Server,
    judge: TokenAuthorizer | CustomAuthorizer | None,
    member: Member | None = None,
) -> Config:
    """Reads the configuration again, takes what a running server can take, and says so.

    All of it is taken, or nothing where something is wrong with it.
    """
    log = structlog.get_logger()
    try:
        new = reloaded(config, read().config)
        verifier = token_verifier(new.config)
        server.reload_certificates()
        if member is not None:
            member.reload_certificates()
    except (ConfigError, StartError) as error:
        log.error("reload refused", reason=str(error))
        return config
    if isinstance(judge, TokenAuthorizer):
        judge.verifier = verifier
    set_level(new.config.log_level)
    refusals.watch(server.engine, on=new.config.log_level is LogLevel.DEBUG)
    token, networks = new.config.entitlement_allow_token, new.config.publish_allow_from_address_list
    server.engine.dispatch(RulesChanged(token, networks))
    log.info("reloaded", taken=new.taken, needs_restart=new.refused)
    return new.config
