"""The common parts of HTTP paths: answers in JSON and text, and the parameters of a query."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.streaming import PartedAnswer, StreamAnswer
from mdserver.core.text import safe_text
from mdserver.server.clients.exchange import Answer, Exchange

JSON_TYPE = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
NO_STORE = (b"cache-control", b"no-store")
encode = msgspec.json.Encoder().encode


Path = Callable[[Request, Exchange], Awaitable[Answer | PartedAnswer | StreamAnswer]]


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return an answer that is one JSON value."""
    return Answer(status, (JSON_TYPE, NO_STORE), encode(value))


def text_answer(text: str, status: int = 200) -> Answer:
    """Return an answer for people."""
    return Answer(status, (_TEXT, NO_STORE), text.encode())


class Parameters:
    """The query of a request.

    Every method raises RequestRefusedError (400) for a wrong parameter; the reason names the
    parameter and what would be right. Mistakes in the names are noted at first, so that a path
    decides when to report them (`check`).
    """

    def __init__(
        self, request: Request, known: tuple[str, ...], repeated: tuple[str, ...] = ()
    ) -> None:
        self._values: dict[str, str] = {}
        self._several: dict[str, list[str]] = {name: [] for name in repeated}
        self._problem: str | None = None
        for name, value in request.query:
            if name not in known:
                there = ", ".join(known)
                self._problem = (
                    f"There is no parameter `{safe_text(name, 64)}` here; there are {there}."
                )
            elif name in self._several:
                self._several[name].append(value)
            elif name in self._values:
                self._problem = f"The parameter `{name}` is given twice."
            else:
                self._values[name] = value

    def check(self) -> None:
        """Refuse unknown parameters, and those that are given twice but are not `repeated`."""
        if self._problem is not None:
            raise RequestRefusedError(400, self._problem)

    def text(self, name: str, bytes_max: int = limits.SUBJECT_BYTES_MAX) -> str | None:
        """Return a parameter as text, None if it is missing."""
        value = self._values.get(name)
        if value is not None and len(value.encode()) > bytes_max:
            raise RequestRefusedError(400, f"`{name}` may have at most {bytes_max} bytes.")
        return value

    def required(self, name: str) -> str:
        """Return a parameter that has to be there."""
        value = self.text(name)
        if not value:
            problem = "missing" if value is None else "empty"
            raise RequestRefusedError(400, f"The parameter `{name}` is {problem}.")
        return value

    def several(self, name: str, most: int) -> list[str]:
        """Return the values of a `repeated` parameter, of which there must be 1 to `most`."""
        values = self._several[name]
        if not 1 <= len(values) <= most:
            raise RequestRefusedError(400, f"`{name}` is needed once, up to {most} times.")
        return values

    def count(self, name: str, most: int = 2**63 - 1) -> int | None:
        """Return a whole number from 0 to `most`, None if the parameter is missing."""
        value = self._values.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) <= most):
            raise RequestRefusedError(400, f"`{name}` must be a whole number from 0 to {most}.")
        return int(value)

    def choice(self, name: str, choices: dict[str, Any], default: Any) -> Any:
        """Return the value that `choices` gives a word, in upper or lower case."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() not in choices:
            raise RequestRefusedError(400, f"`{name}` must be one of {', '.join(choices)}.")
        return choices[value.lower()]


def token_of(request: Request, parameters: Parameters) -> str | None:
    """Return the token: the parameter `token`, else a bearer token (RFC 6750, section 2.1)."""
    token = parameters.text("token", limits.TOKEN_BYTES_MAX)
    if token is not None:
        return token
    scheme, _, value = (request.header(b"authorization") or "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None
