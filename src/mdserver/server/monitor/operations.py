"""What operators ask a member over its monitor listener (docs/cluster.md, "Operating").

`GET /cluster/status`, and `POST /cluster/drain`, `undrain`, `readmit`, `cold-start` with the query
parameters `member` and `force`; a POST needs the header `X-Mdserver`.
"""

from typing import Protocol

from mdserver.codec.http import Request
from mdserver.server.http.answers import Answer, Exchange, Parameters, json_answer
from mdserver.server.http.router import Methods

ACTIONS = ("drain", "undrain", "readmit", "cold-start")
_FORCE = {"false": False, "true": True}


class Answered(Protocol):
    """The node's answer."""

    @property
    def answer(self) -> dict[str, object]:
        """Plain values."""

    @property
    def refused(self) -> str | None:
        """Why it was not done."""


class Operate(Protocol):
    """Has a command carried out by the node."""

    def __call__(self, action: str, member: str, force: bool) -> Answered:
        """The answer."""


def cluster_routes(operate: Operate) -> dict[str, Methods]:
    """The paths that have the node do or tell something."""
    routes: dict[str, Methods] = {"/cluster/status": {"GET": Operation(operate, "status")}}
    return routes | {
        f"/cluster/{action}": {"POST": Operation(operate, action)} for action in ACTIONS
    }


class Operation:
    """One path: 409 with the reason where the node refuses."""

    def __init__(self, operate: Operate, action: str) -> None:
        self._operate = operate
        self._action = action

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Have it done."""
        parameters = Parameters(request, ("member", "force"))
        parameters.check()
        force = parameters.choice("force", _FORCE, False)
        done = self._operate(self._action, parameters.text("member") or "", force)
        status = 200 if done.refused is None else 409
        if self._action == "status":
            return json_answer(done.answer, status)
        return json_answer({**done.answer, "refused": done.refused}, status)
