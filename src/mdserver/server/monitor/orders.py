"""Operators' orders to a running server over its monitor: reload, change the log level for a while.

An order is any request to the monitor that changes something, those to the cluster included. Each
leaves a line `order` in the server log, and in the audit log of access if that is on.
"""

from collections.abc import Callable, Sequence

import structlog

from mdserver.codec.http import Request, RequestRefusedError
from mdserver.config import Config, LogLevel
from mdserver.config.reloading import Reload
from mdserver.core.audit import ACCESS
from mdserver.core.outputs import Log
from mdserver.core.text import safe_text
from mdserver.limits import LOG_LEVEL_MINUTES_MAX, NS_PER_S
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.engine import Engine
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.http.router import Methods

LEVELS = {level.value: level for level in LogLevel}
QUERY_CHARS_MAX = 256
log = structlog.get_logger()


class Orders:
    """Carries orders out, and audits those of all pages.

    `config` returns the configuration in force, `log_with` sets the log level. `takers` are given
    the lines of audit logs, and `reload` reads the configuration again. Both are set when the
    server runs; `reload` stays None if the server was started without configuration files.
    """

    def __init__(
        self,
        engine: Engine,
        config: Callable[[], Config],
        log_with: Callable[[LogLevel], None],
    ) -> None:
        self.takers: Sequence[Callable[[Log], None]] = ()
        self.reload: Callable[[], Reload] | None = None
        self._engine = engine
        self._config = config
        self._log_with = log_with

    def routes(self) -> dict[str, Methods]:
        """Return the paths of the orders."""
        return {"/reload": {"POST": self.read_again}, "/log-level": {"POST": self.log_level}}

    async def read_again(self, request: Request, _exchange: Exchange) -> Answer:
        """Reload as after SIGHUP, and answer with the parameters that changed.

        The answer is 409 if the configuration has a mistake; nothing has changed then.
        """
        if request.query:
            raise RequestRefusedError(400, "This path takes no parameters.")
        if self.reload is None:
            return text_answer("This server was started without files to read again.\n", 409)
        done = self.reload()
        if done.mistake is not None:
            return text_answer(f"Nothing was taken: {done.mistake}\n", 409)
        return json_answer({"taken": done.taken, "needs_restart": done.refused})

    async def log_level(self, request: Request, _exchange: Exchange) -> Answer:
        """Change the log level for some minutes, then return to the configured one."""
        asked = Parameters(request, ("level", "minutes"))
        asked.check()
        asked.required("level")
        level: LogLevel = asked.choice("level", LEVELS, None)
        minutes = asked.count("minutes", LOG_LEVEL_MINUTES_MAX)
        minutes = 10 if minutes is None else minutes
        self._log_with(level)
        self._engine.set_timer(self, self._engine.clock() + minutes * 60 * NS_PER_S)
        return json_answer({"level": level.value, "minutes": minutes})

    def timer_due(self, _now: int) -> None:
        """Return to the configured log level: the minutes are over."""
        self._log_with(self._config().log_level)

    def audit(self, request: Request, exchange: Exchange, answer: Answer) -> None:
        """Write who ordered what, and with which result, to the logs."""
        query = "&".join(f"{name}={value}" for name, value in request.query)
        what = safe_text(f"{request.path}?{query}" if query else request.path, QUERY_CHARS_MAX)
        # Without the password nobody knows who it was.
        user = "" if answer.status == 401 else self._config().monitor_username
        log.warning("order", what=what, status=answer.status, address=exchange.address, user=user)
        values: dict[str, str | int | float | bool | None] = {
            "time": self._engine.clock(),
            "address": exchange.address,
            "transport": "monitor",
            "user": user,
            "reason": f"{what}: {answer.status}",
        }
        for take in self.takers:
            take(Log(ACCESS, "order", values))
