"""What operators ask a member over its monitor listener (docs/cluster.md, "Operating").

`GET /cluster/status`, and `POST /cluster/drain`, `undrain`, `readmit`, `cold-start` with the query
parameters `member` and `force`. With a user and a password, every request has to bring them
(RFC 7617).
"""

import base64
import binascii
import hmac
from typing import Protocol

from mdserver.codec.http import Request, RequestRefusedError
from mdserver.http.answers import Answer, Exchange, Parameters, json_answer, text_answer

ACTIONS = ("drain", "undrain", "readmit", "cold-start")
_ASK = (b"www-authenticate", b'Basic realm="mdserver monitor", charset="UTF-8"')
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


class OperatorPaths:
    """The handler of the monitor listener."""

    def __init__(self, operate: Operate, user: str, password: str) -> None:
        self._operate = operate
        self._expected = f"{user}:{password}".encode() if password else None

    async def __call__(self, request: Request, exchange: Exchange) -> Answer:  # noqa: ARG002
        """The answer of a path: 401 without the password, 409 with the reason of a refusal."""
        if not self._allowed(request):
            answer = text_answer("This listener asks for its user and password.\n", 401)
            return Answer(401, [*answer.headers, _ASK], answer.body)
        try:
            return self._answer(request)
        except RequestRefusedError as error:
            return text_answer(error.reason + "\n", error.status)

    def _allowed(self, request: Request) -> bool:
        if self._expected is None:
            return True
        scheme, _, coded = (request.header(b"authorization") or "").partition(" ")
        try:
            given = base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError):
            return False
        return scheme.lower() == "basic" and hmac.compare_digest(given, self._expected)

    def _answer(self, request: Request) -> Answer:
        head, _, action = request.path.rpartition("/")
        if head != "/cluster" or action not in ("status", *ACTIONS):
            paths = ", ".join(f"/cluster/{name}" for name in ("status", *ACTIONS))
            return text_answer(f"There are {paths}.\n", 404)
        method = "GET" if action == "status" else "POST"
        if request.method != method:
            answer = text_answer(f"This path takes {method}.\n", 405)
            return Answer(405, [*answer.headers, (b"allow", method.encode())], answer.body)
        parameters = Parameters(request, ("member", "force"))
        parameters.check()
        force = parameters.choice("force", _FORCE, False)
        done = self._operate(action, parameters.text("member") or "", force)
        body = {**done.answer, "refused": done.refused} if action != "status" else done.answer
        return json_answer(body, 200 if done.refused is None else 409)
