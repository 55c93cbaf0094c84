"""An operator's commands to the node, and the listener on which they come."""

from itertools import count

import trio

from mdserver.cluster.messages import Operate, Operated
from mdserver.config.values import Address
from mdserver.net.connection import Logger, Shared
from mdserver.net.engine import Engine
from mdserver.net.exchange import Handler
from mdserver.net.listener import Admission, Listener, listen
from mdserver.net.session import NodeSessions
from mdserver.net.settings import ServerSettings

CONNECTIONS_MAX = 64


class Operations:
    """Asks the node what an operator wants; the answer comes with the same step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = count(1)
        self._answers: dict[int, Operated] = {}
        engine.carry(Operated, self._operated)

    def _operated(self, output: Operated) -> None:
        self._answers[output.request] = output

    def __call__(self, action: str, member: str, force: bool) -> Operated:
        """Have a command carried out."""
        number = next(self._numbers)
        self._engine.dispatch(Operate(number, action, member, force))
        return self._answers.pop(number)


async def serve_operators(
    address: Address,
    engine: Engine,
    handler: Handler,
    log: Logger,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer HTTP requests of operators until cancelled. Raises StartError."""
    settings = ServerSettings(listen=(address,), connections_max=CONNECTIONS_MAX)
    shared = Shared(settings, engine, NodeSessions(engine), handler, log)
    admission = Admission(CONNECTIONS_MAX, CONNECTIONS_MAX)
    sockets = listen(address)
    try:
        async with trio.open_nursery() as nursery:
            for sock in sockets:
                nursery.start_soon(Listener(sock, shared, admission).run, nursery)
            task_status.started()
    finally:
        for sock in sockets:
            sock.close()
