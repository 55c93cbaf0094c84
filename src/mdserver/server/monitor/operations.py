"""Operators' commands to a cluster member over its monitor (docs/cluster.md, "Operating").

`GET /cluster/status`, with `format=text` if it is for people, and `POST /cluster/drain`, `undrain`,
`add-seed`, `remove-seed`, `readmit`, `cold-start` with the query parameters `member` and `force`;
a POST needs the header `X-Mdserver`.
"""

from typing import Any

from mdserver.codec.http import Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.http.router import Methods
from mdserver.server.monitor.commands import OperatorCommands
from mdserver.server.monitor.pages import FORMATS, aligned

ACTIONS = ("drain", "undrain", "add-seed", "remove-seed", "readmit", "cold-start")
_FORCE = {"false": False, "true": True}


def cluster_routes(commands: OperatorCommands) -> dict[str, Methods]:
    """Return the paths of the cluster commands, with their methods."""
    routes: dict[str, Methods] = {"/cluster/status": {"GET": StatusPage(commands)}}
    return routes | {
        f"/cluster/{action}": {"POST": Operation(commands, action)} for action in ACTIONS
    }


class StatusPage:
    """The cluster as this member sees it: JSON, or `?format=text`."""

    def __init__(self, commands: OperatorCommands) -> None:
        self._commands = commands

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return members, subject groups, and whether there is a majority of seeds."""
        asked = Parameters(request, ("format",))
        asked.check()
        as_text = asked.choice("format", FORMATS, False)
        status: dict[str, Any] = self._commands("status", "", False).answer
        if not as_text:
            return json_answer(status)
        facts = "".join(
            f"{name} {value}\n"
            for name, value in status.items()
            if not isinstance(value, dict | list)
        )
        members, groups = aligned(status["members"]), aligned(status["groups"])
        return text_answer("\n".join((members, facts, groups)))


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
        return json_answer({**done.answer, "refused": done.refused}, status)
