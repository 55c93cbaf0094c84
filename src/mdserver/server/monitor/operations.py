"""Operators' commands to a cluster member over its monitor (docs/cluster.md, "Operating").

`GET /cluster/status`, and `POST /cluster/drain`, `undrain`, `readmit`, `cold-start` with the query
parameters `member` and `force`; a POST needs the header `X-Mdserver`.
"""

from mdserver.codec.http import Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Parameters, json_answer
from mdserver.server.http.router import Methods
from mdserver.server.monitor.commands import OperatorCommands

ACTIONS = ("drain", "undrain", "readmit", "cold-start")
_FORCE = {"false": False, "true": True}


def cluster_routes(commands: OperatorCommands) -> dict[str, Methods]:
    """Return the paths of the cluster commands, with their methods."""
    routes: dict[str, Methods] = {"/cluster/status": {"GET": Operation(commands, "status")}}
    return routes | {
        f"/cluster/{action}": {"POST": Operation(commands, action)} for action in ACTIONS
    }


class Operation:
    """One command of an operator. The answer is 409 with the reason if the node refuses it."""

    def __init__(self, commands: OperatorCommands, action: str) -> None:
        self._commands = commands
        self._action = action

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Give the command to the node and answer with its result."""
        parameters = Parameters(request, ("member", "force"))
        parameters.check()
        force = parameters.choice("force", _FORCE, False)
        done = self._commands(self._action, parameters.text("member") or "", force)
        status = 200 if done.refused is None else 409
        if self._action == "status":
            return json_answer(done.answer, status)
        return json_answer({**done.answer, "refused": done.refused}, status)
