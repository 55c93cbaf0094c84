"""Scenarios: text files of what comes in and what has to go out.

A line that starts in the first column is an input, the indented ones below it are all that it
brings, in order. `#` begins a comment, an empty line is one too.

    settings NAME=VALUE...                       before anything else; a field of BrokerSettings
    time 12.5s                                   let time go by until then
    open 1 / close 1 REASON                      a connection comes or goes
    1 > OP [SUBJECT...] [KEY=VALUE...]           a command of session 1
      after=/a/b@h1:1,3                          in `subscribe`: the position known of a subject
      +NAME=VALUE                                in `publish`: a field of the message
      content=x*400                              400 times x, in fields too; {half} is half of a
                                                 surrogate pair
    congested 1 / relieved 1                     its client takes no more, or takes on
    fetch 1 SUBJECT [history=N | after=E,S]      what the HTTP paths ask for
    grant REQUEST [sub=PATTERN,...] [pub=PATTERN,...] [expires=SECONDS] / yes REQUEST /
    deny REQUEST REASON / busy REQUEST           the verdict about an Authorize
    commit EPOCH,SEQ SUBJECT CONTENT             an entry that another member made
    malformed SESSION CODE REASON                a command that the codec could not understand
    other EPOCH,SEQ SUBJECT CONTENT              an entry that another member has, and this one not
    renumber HISTORY                             the other member begins a new numbering
    transfer SUBJECT                             what the other member knows of the subject's group
    reset HISTORY [SUBJECT...]                   a new numbering of all or of these subjects' groups
    rename HISTORY SUBJECT...                    their groups go on under another history id
    seeds down REASON / seeds up                 publications fail, or no longer

    1 < UPDATE /a/b 1,3 "content" field=value    a message, its position, then what is not default
    1 < NAME key=value                           a status, or another event by its `op`
    1 closed CODE REASON / ask N SESSION ACTION / log STREAM NAME key=value
"""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import attrs
import msgspec

from mdserver.core.commands import (
    AnyCommand,
    Connect,
    Fetch,
    Malformed,
    Ping,
    PositionAfter,
    Publish,
    RenewToken,
    Subscribe,
    Unsubscribe,
)
from mdserver.core.entitlement import Policy
from mdserver.core.events import (
    AnyEvent,
    Connected,
    Delivery,
    Fetched,
    MissingRange,
    Status,
    WirePosition,
)
from mdserver.core.images import GroupImage
from mdserver.core.inputs import Authorized, Denied, Grants
from mdserver.core.message import Entry, Position, Publication, Qos
from mdserver.core.outputs import Authorize, Deliver, Disconnect, Log, Output, Send
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import group_of
from mdserver.limits import NS_PER_S
from tests.core.one_seed import OneSeed

OPS = {
    "connect": Connect,
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "publish": Publish,
    "token": RenewToken,
    "ping": Ping,
}
NUMBERS = ("history", "conflation_ms", "keepalive_ms", "number", "id")


class Player(Protocol):
    """What an input brings, line by line."""

    def input(self, line: str) -> Iterator[str]: ...


def transcript(path: Path, play: Player) -> list[str]:
    """Play a scenario; returns it with the outputs that really came in place of the expected."""
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith(" ") and line.strip():
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"  {shown}" for shown in play.input(line)]
    return lines


class Play:
    """One scenario on its way."""

    def __init__(self) -> None:
        self.seed = self.member = OneSeed(BrokerSettings())

    def input(self, line: str) -> Iterator[str]:
        words = [word.replace("{half}", "\ud800") for word in shlex.split(line)]
        if len(words) > 2 and words[1] == ">":
            outputs = self.seed.receive(int(words[0]), [read_command(words[2], words[3:])])
        else:
            outputs = getattr(self, "do_" + words[0])(*words[1:]) or []
        for output in outputs:
            yield from show(output)

    def do_settings(self, *words: str) -> None:
        settings = BrokerSettings(**dict(read_setting(word) for word in words))
        self.seed, self.member = OneSeed(settings), OneSeed(settings)

    def do_time(self, until: str) -> list[Output]:
        return self.seed.pass_time(seconds(until))

    def do_open(self, session: str) -> list[Output]:
        return self.seed.open(int(session))

    def do_close(self, session: str, *reason: str) -> list[Output]:
        return self.seed.close(int(session), " ".join(reason))

    def do_congested(self, session: str) -> list[Output]:
        return self.seed.writability(int(session), writable=False)

    def do_relieved(self, session: str) -> list[Output]:
        return self.seed.writability(int(session), writable=True)

    def do_fetch(self, session: str, subject: str, *words: str) -> list[Output]:
        keys = dict(word.split("=", 1) for word in words)
        history = int(keys["history"]) if "history" in keys else None
        after = read_position(keys["after"]) if "after" in keys else None
        return self.seed.receive(
            int(session), [Fetch(subject=subject, history=history, after=after)]
        )

    def do_malformed(self, session: str, code: str, *reason: str) -> list[Output]:
        return self.seed.receive(int(session), [Malformed(code, " ".join(reason))])

    def do_grant(self, request: str, *words: str) -> list[Output]:
        keys = dict(word.split("=", 1) for word in words)
        grants = Grants(
            tuple(filter(None, keys.get("sub", "").split(","))),
            tuple(filter(None, keys.get("pub", "").split(","))),
            seconds(keys["expires"]) if "expires" in keys else None,
            keys.get("user"),
        )
        return self.seed.decide(Authorized(int(request), grants))

    def do_yes(self, request: str) -> list[Output]:
        return self.seed.decide(Authorized(int(request), None))

    def do_deny(self, request: str, *reason: str) -> list[Output]:
        return self.seed.decide(Authorized(int(request), Denied(" ".join(reason))))

    def do_busy(self, request: str) -> list[Output]:
        return self.seed.decide(Authorized(int(request), Denied("Too busy: try again.", busy=True)))

    def do_commit(self, position: str, subject: str, content: str) -> list[Output]:
        at = read_position(position)
        publication = Publication(subject, content.encode(), time=self.seed.now)
        return self.seed.commit([Entry(at.epoch, at.seq, publication)])

    def do_other(self, *words: str) -> None:
        at = read_position(words[0])
        publication = Publication(words[1], words[2].encode(), time=self.seed.now)
        self.member.commit([Entry(at.epoch, at.seq, publication)])

    def do_renumber(self, history: str) -> None:
        self.member.reset(history, None)

    def do_transfer(self, subject: str) -> list[Output]:
        group = group_of(subject, self.seed.settings.groups)
        image = msgspec.msgpack.encode(self.member.broker.export_group(group))
        return self.seed.take_over(group, msgspec.msgpack.decode(image, type=GroupImage))

    def do_rename(self, history: str, *subjects: str) -> list[Output]:
        groups = [group_of(subject, self.seed.settings.groups) for subject in subjects]
        return self.seed.rename(history, groups)

    def do_reset(self, history: str, *subjects: str) -> list[Output]:
        groups = [group_of(subject, self.seed.settings.groups) for subject in subjects]
        return self.seed.reset(history, groups or None)

    def do_seeds(self, word: str, *reason: str) -> None:
        self.seed.down = " ".join(reason) if word == "down" else ""


def seconds(text: str) -> int:
    return round(float(text.removesuffix("s")) * NS_PER_S)


def read_setting(word: str) -> tuple[str, Any]:
    name, value = word.split("=", 1)
    fields = {field.name: field.default for field in attrs.fields(BrokerSettings)}
    default = fields[name]
    if isinstance(default, Policy):
        return name, Policy(value)
    if isinstance(default, bool):
        return name, value == "true"
    if isinstance(default, bytes):
        return name, value.encode()
    if value.endswith("s") and value[:-1].isdigit():
        return name, seconds(value)
    return name, value if isinstance(default, str) else int(value)


def read_position(text: str) -> Position:
    epoch, seq = text.split(",")
    return Position(int(epoch), int(seq))


def read_command(op: str, words: list[str]) -> AnyCommand:
    keys: dict[str, Any] = {}
    subjects: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or word.startswith("/"):
            subjects.append(word)
        elif name.startswith("+"):
            keys.setdefault("fields", {})[name[1:]] = read_value(name, value)
        elif name == "after":
            subject, _, rest = value.rpartition("@")
            history, _, position = rest.partition(":")
            at = read_position(position)
            known = PositionAfter(history, at.epoch, at.seq)
            keys.setdefault("positions", {})[subject] = known
        else:
            keys[name] = read_value(name, value)
    if op in ("subscribe", "unsubscribe"):
        keys["subjects"] = subjects
    elif subjects:
        keys["subject"] = subjects[0]
    return OPS[op](**keys)


def read_value(name: str, value: str) -> Any:
    if name in NUMBERS and value.lstrip("-").isdigit():
        return int(value)
    if name in ("retained", "compressed"):
        return value == "true"
    if name == "t":
        return msgspec.Raw(value.encode())
    if name == "content_base64":
        return bytes.fromhex(value)
    if name == "qos":
        return Qos(value)
    letter, star, times = value.partition("*")
    return letter * int(times) if star and times.isdigit() else value


def show(output: Output) -> Iterator[str]:
    match output:
        case Deliver(delivery, sessions):
            for session in sessions:
                yield f"{session} < {show_delivery(delivery)}"
        case Send(session, Fetched(deliveries, missing)):
            yield f"{session} < fetched" + (f" {show_value(missing)}" if missing else "")
            for delivery in deliveries:
                yield f"{session} <   {show_delivery(delivery)}"
        case Send(session, event):
            yield f"{session} < {show_event(event)}"
        case Disconnect(session, code, reason):
            yield f"{session} closed {code} {reason}"
        case Authorize():
            keys = {"token": output.token, "subject": output.subject}
            yield f"ask {output.request} {output.session} {output.action}{show_keys(keys)}"
        case Log(stream, name, values):
            yield f"log {stream} {name}{show_keys(values)}"


def show_event(event: AnyEvent) -> str:
    if isinstance(event, Delivery):
        return show_delivery(event)
    values = {
        field.name: getattr(event, field.name)
        for field in msgspec.structs.fields(type(event))
        if getattr(event, field.name) != field.default
    }
    if isinstance(event, Connected):
        # The others are the server's settings.
        shown = ("session", "history", "keepalive_ms", "publisher", "publisher_key")
        values = {name: values[name] for name in shown if name in values}
    if isinstance(event, Status):
        return f"{values.pop('status').value}{show_keys(values)}"
    return f"{type(event).__struct_config__.tag}{show_keys(values)}"


def show_delivery(delivery: Delivery) -> str:
    entry, publication = delivery.entry, delivery.entry.publication
    content = publication.content.decode() if publication.text else publication.content.hex()
    keys: dict[str, Any] = dict(sorted((publication.fields or {}).items()))
    defaults = Publication("", b"")
    for name in ("text", "closure", "retained", "qos", "compressed", "reply_subject"):
        if getattr(publication, name) != getattr(defaults, name):
            keys[name] = getattr(publication, name)
    keys |= {"match": delivery.match, "prev": delivery.prev}
    at = f"{entry.epoch},{entry.seq}"
    kind = delivery.type.value
    return f"{kind} {publication.subject} {at} {json.dumps(content)}{show_keys(keys)}"


def show_keys(values: dict[str, Any]) -> str:
    return "".join(f" {key}={show_value(v)}" for key, v in values.items() if v is not None)


def show_value(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value) if " " in value else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, MissingRange):
        return f"{show_value(value.first)}..{show_value(value.last)}"
    return SHOWN.get(type(value), str)(value)


SHOWN: dict[type, Callable[[Any], str]] = {
    msgspec.Raw: lambda raw: bytes(raw).decode(),
    Position: lambda at: f"{at.epoch},{at.seq}",
    Qos: lambda qos: qos.value,
    WirePosition: lambda at: f"{at.history}:{at.epoch},{at.seq}",
}
