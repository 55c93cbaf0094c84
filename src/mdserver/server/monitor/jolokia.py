"""`/jolokia`: JMX over HTTP, for reading, by version 7.2 of Jolokia's protocol.

A request is a path (`/jolokia/read/mdserver:type=Now/Sessions`), a JSON object, or an array of
objects. As the protocol requires, the HTTP status is always 200, and each answer has a `status` of
its own. The types `version`, `list`, `search` and `read` are supported. Nothing can be written or
executed, so a POST does not need the header `X-Mdserver`, which protects orders from foreign pages.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import msgspec

from mdserver import __version__
from mdserver.codec.http import Request
from mdserver.core.text import safe_text
from mdserver.limits import (
    JOLOKIA_NAME_CHARS_MAX,
    JOLOKIA_PATH_CHARS_MAX,
    JOLOKIA_REQUESTS_MAX,
    NS_PER_S,
)
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clock import Clock
from mdserver.server.http.answers import json_answer
from mdserver.server.monitor.mbeans import DOMAIN, Beans, Value, properties, type_of

PATH = "/jolokia"
PROTOCOL = "7.2"
JMX_ERRORS = {
    400: "java.lang.IllegalArgumentException",
    403: "java.lang.SecurityException",
    404: "javax.management.InstanceNotFoundException",
}
_CHARACTER = re.compile(r"!.|.", re.DOTALL)
Row = dict[str, Any]


class JolokiaError(Exception):
    """A request whose answer has a `status` other than 200; the message says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Jolokia:
    """Answers requests about the MBeans that `beans` returns.

    `beans` is called once for each HTTP request, so all answers to one array agree.
    """

    def __init__(self, beans: Callable[[], Beans], clock: Clock) -> None:
        self._beans = beans
        self._clock = clock

    async def get(self, request: Request, _exchange: Exchange) -> Answer:
        """Answer a request in a path."""
        path = request.path[len(PATH) :].lstrip("/")
        try:
            asked = read_path(unquote(path, errors="strict"))
        except UnicodeDecodeError:
            return json_answer(self._failed({}, JolokiaError(400, "The path is no UTF-8.")))
        except JolokiaError as error:
            return json_answer(self._failed({}, error))
        return json_answer(self._answer(asked, self._beans()))

    async def post(self, request: Request, _exchange: Exchange) -> Answer:
        """Answer a JSON object, or an array of them."""
        try:
            asked = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            reason = "The body is neither a JSON object nor an array of them."
            return json_answer(self._failed({}, JolokiaError(400, reason)))
        if not isinstance(asked, list):
            return json_answer(self._answer(asked, self._beans()))
        if len(asked) > JOLOKIA_REQUESTS_MAX:
            reason = f"At most {JOLOKIA_REQUESTS_MAX} requests may come together."
            return json_answer(self._failed({}, JolokiaError(400, reason)))
        beans = self._beans()
        return json_answer([self._answer(one, beans) for one in asked])

    def _answer(self, asked: Any, beans: Beans) -> Row:
        if not isinstance(asked, dict):
            return self._failed({}, JolokiaError(400, "A request is a JSON object."))
        try:
            kind = asked.get("type")
            if kind == "version":
                value: Any = {
                    "agent": __version__,
                    "protocol": PROTOCOL,
                    "info": {"product": "mdserver", "version": __version__},
                }
            elif kind == "list":
                value = below(listed(beans), steps(asked.get("path")))
            elif kind == "search":
                value = search(text(asked, "mbean"), beans)
            elif kind == "read":
                value = read(asked, beans)
            elif kind in ("write", "exec", "notification"):
                raise JolokiaError(403, "Nothing can be written or executed here.")
            else:
                shown = safe_text(str(kind), 64)
                reason = f"There is no type '{shown}': version, list, search and read are there."
                raise JolokiaError(400, reason)
        except JolokiaError as error:
            return self._failed(asked, error)
        return {"request": asked, "value": value, "status": 200, "timestamp": self._now()}

    def _failed(self, asked: Row, error: JolokiaError) -> Row:
        kind = JMX_ERRORS[error.status]
        return {
            "request": asked,
            "error_type": kind,
            "error": f"{kind} : {error}",
            "status": error.status,
            "timestamp": self._now(),
        }

    def _now(self) -> int:
        return self._clock() // NS_PER_S


def read_path(path: str) -> Row:
    """Return the path of a GET as a JSON request would be; an empty path asks for the version.

    Raises JolokiaError if it is too long.
    """
    kind, *rest = split(bounded(path)) or ["version"]
    asked: Row = {"type": kind}
    if kind == "list":
        if rest:
            asked["path"] = joined(rest)
    elif rest:
        asked["mbean"] = rest[0]
        if len(rest) > 1:
            names = rest[1].split(",")
            asked["attribute"] = names if len(names) > 1 else rest[1]
        if len(rest) > 2:
            asked["path"] = joined(rest[2:])
    return asked


def joined(parts: list[str]) -> str:
    """Return parts as one path, of which `split` makes the same parts."""
    return "/".join(part.replace("!", "!!").replace("/", "!/") for part in parts)


def split(path: str) -> list[str]:
    """Return the parts of a path; `!/` is a slash within a part, `!!` an exclamation mark."""
    parts: list[list[str]] = [[]]
    for found in _CHARACTER.findall(path):
        if found == "/":
            parts.append([])
        else:
            parts[-1].append(found[-1])
    return ["".join(part) for part in parts if part]


def bounded(path: str) -> str:
    """Return a path. Raises JolokiaError if it is too long."""
    if len(path) > JOLOKIA_PATH_CHARS_MAX:
        most = JOLOKIA_PATH_CHARS_MAX
        raise JolokiaError(400, f"The path has {len(path)} characters: at most {most} are allowed.")
    return path


def steps(path: Any) -> list[str]:
    """Return the parts of the `path` of a request; none without a path.

    Raises JolokiaError if it is too long.
    """
    if path is None:
        return []
    if isinstance(path, list):
        return [str(part) for part in path]
    return split(bounded(str(path)))


def text(asked: Row, name: str) -> str:
    """Return a text of a request. Raises JolokiaError if it is missing or too long."""
    value = asked.get(name)
    if not isinstance(value, str):
        raise JolokiaError(400, f"This type of request needs `{name}`, a text.")
    if len(value) > JOLOKIA_NAME_CHARS_MAX:
        most = JOLOKIA_NAME_CHARS_MAX
        raise JolokiaError(
            400, f"`{name}` has {len(value)} characters: at most {most} are allowed."
        )
    return value


def read(asked: Row, beans: Beans) -> Any:
    """Return attributes of an MBean; for a pattern, those of each MBean that matches, by name.

    Raises JolokiaError if there is no such MBean or attribute.
    """
    name = text(asked, "mbean")
    if "*" in name or "?" in name:
        found = {each: attributes(asked, beans[each], each) for each in search(name, beans)}
        if not found:
            raise JolokiaError(404, f"No MBean matches {safe_text(name, 128)}.")
        return below(found, steps(asked.get("path")))
    wanted = parsed(name)
    for each, values in beans.items():
        if parsed(each) == wanted:
            value = attributes(asked, values, each)
            return below(value, steps(asked.get("path")))
    raise JolokiaError(404, f"There is no MBean {safe_text(name, 128)}; `list` names them.")


def attributes(asked: Row, values: dict[str, Value], name: str) -> Any:
    """Return the value of the requested attribute, or a dict if there are several or all."""
    wanted = asked.get("attribute")
    if wanted is None:
        return values
    single = not isinstance(wanted, list)
    found = {}
    for one in [wanted] if single else wanted:
        if not isinstance(one, str) or one not in values:
            raise JolokiaError(404, f"{name} has no attribute {safe_text(str(one), 128)}.")
        found[one] = values[one]
    return found[wanted] if single else found


def below(value: Any, path: list[str]) -> Any:
    """Return the value at a path in nested objects. Raises JolokiaError if there is none."""
    for part in path:
        if not isinstance(value, dict) or part not in value:
            raise JolokiaError(404, f"The path leads nowhere at '{safe_text(part, 128)}'.")
        value = value[part]
    return value


def parsed(name: str) -> tuple[str, dict[str, str]]:
    """Return the domain and the keys of an MBean's name, so that their order does not matter.

    Raises JolokiaError if it is not the name of an MBean.
    """
    domain, colon, keys = name.partition(":")
    pairs = [part.partition("=") for part in keys.split(",")]
    if not colon or not all(equals for _, equals, _ in pairs):
        raise JolokiaError(
            400, f"{safe_text(name, 128)} is no name of an MBean: 'domain:key=value'."
        )
    return domain, {key: value for key, _, value in pairs}


def search(pattern: str, beans: Beans) -> list[str]:
    """Return the names that match a JMX pattern: `*` and `?` in texts, `,*` for further keys."""
    domain, colon, keys = pattern.partition(":")
    parts = [part for part in keys.split(",") if part]
    further = "*" in parts
    wanted = {key: value for key, _, value in (p.partition("=") for p in parts if p != "*")}
    if not colon:
        raise JolokiaError(400, f"{safe_text(pattern, 128)} is no pattern: 'domain:key=value,*'.")
    if not fits(domain, DOMAIN):
        return []
    found = []
    for name in beans:
        there = properties(name)
        if not (further or wanted.keys() == there.keys()) or not wanted.keys() <= there.keys():
            continue
        if all(fits(value, there[key]) for key, value in wanted.items()):
            found.append(name)
    return found


def fits(pattern: str, value: str) -> bool:
    """Return whether a text matches a pattern with `*` and `?`.

    On a mismatch only the last `*` takes one character more. Earlier ones need not be tried again:
    whatever they match, the last one can match the rest. So the time is at most the product of the
    two lengths, while a regular expression can take exponential time.
    """
    at = kept = 0
    star = -1
    place = 0
    while at < len(value):
        if place < len(pattern) and pattern[place] in ("?", value[at]):
            at, place = at + 1, place + 1
        elif place < len(pattern) and pattern[place] == "*":
            star, kept, place = place, at, place + 1
        elif star >= 0:
            kept, place = kept + 1, star + 1
            at = kept
        else:
            return False
    return not pattern[place:].strip("*")


def listed(beans: Beans) -> Row:
    """Return domain -> keys -> description of each MBean."""
    return {
        DOMAIN: {
            name.partition(":")[2]: {
                "class": "mdserver.Statistics",
                "desc": "Statistics of a server.",
                "attr": {
                    attribute: {"rw": False, "type": type_of(value), "desc": attribute}
                    for attribute, value in values.items()
                },
            }
            for name, values in beans.items()
        }
    }
