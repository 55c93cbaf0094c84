"""The objects that all connections of a listener share."""

from collections.abc import Callable
from typing import Protocol

import trio
from attrs import field, frozen

from mdserver.codec.cors import WebRule
from mdserver.server.clients.budget import Budget
from mdserver.server.clients.exchange import Handler
from mdserver.server.clients.rates import Rates
from mdserver.server.clients.session import SessionHandler
from mdserver.server.clients.sessions import Sessions
from mdserver.server.engine import Engine
from mdserver.server.logger import Logger
from mdserver.server.settings import ServerSettings

READ_BYTES = 64 * 1024
UPGRADE_PATHS = ("/ws", "/")


class IdleConnection(Protocol):
    """A connection that waits for a request."""

    def end_idle(self) -> None:
        """End the connection, unless a part of a request has arrived."""


@frozen(eq=False)
class ServerContext:
    """The settings, the sessions, and the bounds that connections share.

    `awaiting` has the connections that wait for a request. `draining` is set while the server ends.
    Upgrades to WebSocket are accepted at `upgrade_paths` only. `web` decides which web pages may
    call this server, and under which names.
    """

    settings: ServerSettings
    sessions: Sessions
    session_handler: SessionHandler
    handler: Handler
    log: Logger
    rates: Rates = field(init=False)
    buffer: bytearray = field(factory=lambda: bytearray(READ_BYTES))
    unfinished: Budget = field()
    answers: Budget = field()
    upgrade_paths: tuple[str, ...] = UPGRADE_PATHS
    web: WebRule = field(factory=WebRule)
    awaiting: dict[IdleConnection, None] = field(factory=dict)
    draining: trio.Event = field(factory=trio.Event)
    engine: Engine = field(init=False)
    clock: Callable[[], int] = field(init=False)

    @unfinished.default
    def _unfinished(self) -> Budget:
        return Budget(self.settings.unfinished_bytes_max)

    @answers.default
    def _answers(self) -> Budget:
        return Budget(self.settings.answers_bytes_max)

    @engine.default
    def _engine(self) -> Engine:
        return self.sessions.engine

    @clock.default
    def _clock(self) -> Callable[[], int]:
        return self.sessions.engine.clock

    @rates.default
    def _rates(self) -> Rates:
        return Rates(self.settings.rates, self.sessions.engine.clock)
