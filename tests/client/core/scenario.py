"""Scenarios of the client core: text files of what happens to a client and what it does then.

The Python core plays them in `test_scenarios.py`, the JavaScript core in
`tests/web/scenarios.test.mjs`; both must give every line of a file.

A line that starts in the first column is an input; the indented lines below it are everything that
it brings, in order. `#` begins a comment, an empty line is one too. Words are separated by blanks;
"..." keeps blanks in a word. The clock begins at 0; every random number is 0.5 unless the file
says otherwise.

    settings NAME=VALUE...           before anything else: `servers`, fields of ClientSettings,
                                     `reconnect.NAME`, `numbering.NAME` (`taken=GROUP:NUMBER,...`)
    random 0.9                       the random number from now on
    pass 2.5s                        let time pass; timers come when they are due
    wait TIMER / wait TIMER +60s     let time pass until this timer is due, or until so long after
    connect / disconnect / give-up REASON / token TOKEN / servers SERVER...
    subscribe SUBJECT... [history=N] [conflation_ms=N] [replay=true] / unsubscribe SUBJECT...
    restore SUBJECT=POSITION...      the positions of an earlier client
    pause / resume / hold SUBJECT... / release SUBJECT...
    publish SUBJECT CONTENT [NAME=VALUE...] [+FIELD=VALUE...]
    mark N / caught-up N             ask whether the server has got so far
    numbering / subscriptions / positions           show what the core knows
    opened / lost CODE [REASON]      the transport stands, or ends
    heard                            a part of a message arrived
    < pong [T]                       the server says one thing, or several, with `|` in between
    < UPDATE /a/b 1,4 [NAME=VALUE...]               a message; without `content` "/a/b 4"
    < PUBLISH_OK [NAME=VALUE...]                    a status
    < connected [NAME=VALUE...]                     any other event; those of `connected` that are
                                                    left out are filled in
    @2 opened / @2 lost / @2 < ...   the same from the transport of attempt 2

In values `7`, `true` and `null` are what they are in JSON; `h1:1,4` is a position, `h1:1,4..h1:1,9`
a range of them, `x*400` is 400 times x, and `subjects` and `servers` are lists with commas.

    at 7.5s                          the time, when an input let some pass
    open SERVER attempt=N / close CODE REASON / timer NAME 12.5s / cancel NAME
    send OP SUBJECT... NAME=VALUE    a command, its keys sorted
    deliver UPDATE /a/b 1,4 "/a/b 4" NAME=VALUE     a message; `again` when it was delivered before
    notify STATUS NAME=VALUE / connected / subscribed SUBJECT... / refused SUBJECT... REASON
    published N STATUS NAME=VALUE    the result of a publication; `number N` says which it will be
    reported N / stopped CODE REASON / error SENTENCE
    phase up                         the phase, when an input changed it
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.schedule import ReconnectSettings
from mdserver.client.core.values import ClientSettings, Numbering
from mdserver.codec.json_form import JsonClient
from mdserver.core.commands import Publish
from mdserver.errors import InvalidSubjectError, LocalProtocolError
from mdserver.limits import NS_PER_S

CLOSE_PROTOCOL = 4100
"""A server broke the protocol: each core has its own words for how."""
CONNECTED = {
    "session": "1",
    "member": "m",
    "version": 1,
    "history": "h1",
    "groups": 4,
    "keepalive_ms": 0,
    "message_bytes_max": 1000,
}
POSITION = r"([^:,\s]+):(\d+),(\d+)"
LISTS = ("subjects", "servers")


class Constant(random.Random):
    """Gives the same number always."""

    part = 0.5

    def random(self) -> float:
        return self.part

    def randrange(self, start: int, *_: Any) -> int:
        return int(self.part * start)


class Play:
    """One scenario on its way."""

    def __init__(self) -> None:
        self.rng = Constant(0)
        self.now = 0
        self.attempt = 0
        self.timers: dict[str, int] = {}
        self.core = self.made({})

    def made(self, keys: dict[str, Any]) -> ClientCore:
        servers = keys.pop("servers", ["a:1"])
        parts: dict[str, dict[str, Any]] = {"reconnect": {}, "numbering": {}}
        own: dict[str, Any] = {"client": "me/1"}
        for name, value in keys.items():
            part, dot, rest = name.partition(".")
            (parts[part] if dot else own)[rest or name] = value
        own["reconnect"] = ReconnectSettings(**parts["reconnect"])
        if numbering := parts["numbering"]:
            pairs = (pair.split(":") for pair in numbering.pop("taken", "").split(",") if pair)
            taken = {int(group): int(number) for group, number in pairs}
            own["numbering"] = Numbering(taken=taken, **numbering)
        return ClientCore(servers, ClientSettings(**own), JsonClient, self.rng)

    def input(self, line: str) -> Iterator[str]:
        words = split(line)
        attempt = int(words.pop(0)[1:]) if words[0].startswith("@") else self.attempt
        phase, now = self.core.phase, self.now
        try:
            outputs = list(self.shown(words, attempt))
        except (InvalidSubjectError, LocalProtocolError) as error:
            outputs = [f"error {error}"]
        if self.now != now:
            yield f"at {show_time(self.now)}"
        yield from outputs
        if self.core.phase is not phase:
            yield f"phase {self.core.phase.value}"

    def shown(self, words: list[str], attempt: int) -> Iterator[str]:
        name, *rest = words
        core = self.core
        plain, keys = read_words(rest)
        match name:
            case "settings":
                self.core = self.made(keys)
            case "random":
                self.rng.part = float(rest[0])
            case "pass":
                yield from self.passes(self.now + seconds(rest[0]))
            case "wait":
                late = seconds(rest[1]) if len(rest) > 1 else 0
                yield from self.waits(rest[0], late)
            case "servers":
                core.set_servers(rest)
            case "publish":
                yield from self.publishes(plain, keys)
            case "numbering":
                yield "numbering" + show_keys(attrs.asdict(core.numbering))
            case "subscriptions" | "positions":
                yield " ".join([name, *getattr(core, name)])
            case "<":
                said = [event(part) for part in parts_of(rest)]
                heard = msgspec.json.encode(said)
                yield from self.take(core.received(attempt, heard, self.now))
            case "opened" | "heard":
                yield from self.take(getattr(core, name)(attempt, self.now))
            case "lost":
                code, reason = int(rest[0]), " ".join(rest[1:])
                yield from self.take(core.closed(attempt, code, reason, self.now))
            case _:
                yield from self.take(self.wishes(name, plain, keys))

    def wishes(self, name: str, plain: list[str], keys: dict[str, Any]) -> list[out.Output]:
        core, text = self.core, " ".join(plain)
        wishes: dict[str, Callable[[], list[out.Output]]] = {
            "connect": lambda: core.connect(self.now),
            "disconnect": core.disconnect,
            "give-up": lambda: core.give_up(text),
            "token": lambda: core.set_token(text, self.now),
            "subscribe": lambda: core.subscribe(plain, **keys),
            "unsubscribe": lambda: core.unsubscribe(plain),
            "restore": lambda: self.restores(keys),
            "pause": core.pause,
            "resume": core.resume,
            "hold": lambda: core.hold(plain),
            "release": lambda: core.release(plain),
            "mark": lambda: core.report((), int(text)),
            "caught-up": lambda: core.ask_caught_up(int(text)),
        }
        return wishes[name]()

    def restores(self, keys: dict[str, Any]) -> list[out.Output]:
        self.core.positions.restore({subject: tuple(at.values()) for subject, at in keys.items()})
        return []

    def publishes(self, plain: list[str], keys: dict[str, Any]) -> Iterator[str]:
        fields = {name[1:]: str(keys[name]) for name in keys if name.startswith("+")}
        own = {name: value for name, value in keys.items() if not name.startswith("+")}
        request = {"subject": plain[0], "content": repeated(plain[1])} | own
        if fields:
            request["fields"] = fields
        publication, outputs = self.core.publish(msgspec.convert(request, Publish))
        yield f"number {publication}"
        yield from self.take(outputs)

    def passes(self, until: int) -> Iterator[str]:
        while due := min(((at, name) for name, at in self.timers.items()), default=None):
            if due[0] > until:
                break
            yield from self.due(due[1], due[0])
        self.now = until

    def waits(self, timer: str, late: int) -> Iterator[str]:
        """Only this timer comes, as with a machine that stood still."""
        assert timer in self.timers, f"no timer '{timer}' is set"
        yield from self.due(timer, self.timers[timer] + late)

    def due(self, timer: str, at: int) -> Iterator[str]:
        self.now = at
        del self.timers[timer]
        yield from self.take(self.core.due(timer, at))

    def take(self, outputs: list[out.Output]) -> Iterator[str]:
        for output in outputs:
            match output:
                case out.OpenTransport(attempt):
                    self.attempt = attempt
                case out.SetTimer(timer, at):
                    self.timers[timer] = at
                case out.CancelTimer(timer):
                    del self.timers[timer]
            yield from show(output)


def transcript(path: Path) -> list[str]:
    """Play a scenario; return it with the outputs that really came in place of the expected."""
    lines: list[str] = []
    play = Play()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" ") and line.strip():
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"  {shown}" for shown in play.input(line)]
    return lines


# Reading


def split(line: str) -> list[str]:
    words = re.findall(r'(?:[^\s"]|"[^"]*")+', line)
    return [word.replace('"', "") for word in words]


def seconds(text: str) -> int:
    return round(float(text.removeprefix("+").removesuffix("s")) * NS_PER_S)


def parts_of(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word == "|":
            yield part
            part = []
        else:
            part.append(word)
    yield part


def read_words(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    plain = [word for word in words if "=" not in word]
    pairs = (word.split("=", 1) for word in words if "=" in word)
    return plain, {name: read_value(name, value) for name, value in pairs}


def read_value(name: str, text: str) -> Any:
    if name in LISTS:
        return text.split(",") if text else []
    if name == "missing":
        first, last = text.split("..")
        return {"from": read_value("from", first), "to": read_value("to", last)}
    if position := re.fullmatch(POSITION, text):
        history, epoch, seq = position.groups()
        return {"history": history, "epoch": int(epoch), "seq": int(seq)}
    if re.fullmatch(r"-?\d+(\.\d+)?|true|false|null", text):
        return json.loads(text)
    return repeated(text)


def repeated(text: str) -> str:
    times = re.fullmatch(r"(.)\*(\d+)", text)
    return times[1] * int(times[2]) if times else text


def event(words: list[str]) -> dict[str, Any]:
    op, *rest = words
    plain, keys = read_words(rest)
    if op == "pong":
        return {"op": op, "t": plain[0] if plain else None} | keys
    if op == "connected":
        return {"op": op} | CONNECTED | keys
    if plain:
        subject, (epoch, seq) = plain[0], plain[1].split(",")
        told = {"op": "message", "type": op, "subject": subject, "content": f"{subject} {seq}"}
        return told | {"epoch": int(epoch), "seq": int(seq)} | keys
    if op.isupper():
        return {"op": "status", "status": op} | keys
    return {"op": op} | keys


# Showing


def show(output: out.Output) -> Iterator[str]:
    match output:
        case out.OpenTransport(attempt, server, secure):
            yield f"open {server} attempt={attempt}" + (" secure=true" if secure else "")
        case out.Transmit(_, frame):
            yield f"send {show_command(msgspec.json.decode(frame))}"
        case out.CloseTransport(_, code, reason):
            told = "" if code == CLOSE_PROTOCOL else reason
            yield f"close {code} {told}".rstrip()
        case out.SetTimer(timer, at):
            yield f"timer {timer} {show_time(at)}"
        case out.CancelTimer(timer):
            yield f"cancel {timer}"
        case out.DeliverMessages(messages, again):
            for message in messages:
                told = show_message(msgspec.to_builtins(message))
                yield f"deliver {'again ' * again}{told}"
        case out.Stopped(code, reason):
            yield f"stopped {code} {blurred(reason)}".rstrip()
        case _:
            yield show_told(output)


def show_told(output: out.Output) -> str:
    """Show an answer, for the application."""
    match output:
        case out.Notify(notice):
            keys = attrs.asdict(notice, recurse=False)
            keys |= {name: msgspec.to_builtins(keys[name]) for name in ("missing", "position")}
            return f"notify {keys.pop('status').name}{show_keys(keys)}"
        case out.Published(result):
            keys = show_result(attrs.asdict(result))
            return f"published {result.publication} {result.status.name}{show_keys(keys)}"
        case out.Subscribed(subjects):
            return " ".join(["subscribed", *subjects])
        case out.Reported(mark):
            return f"reported {mark}"
        case out.Refused(subjects, reason):
            return " ".join(["refused", *subjects, show_value(reason)])
    assert isinstance(output, out.Connected)
    return "connected"


def blurred(text: str) -> str:
    """Leave out what each core says in its own words."""
    return re.sub(r"(the server broke the protocol): .*", r"\1", text)


def show_result(told: dict[str, Any]) -> dict[str, Any]:
    kept = {name: told[name] for name in ("reason", "epoch", "seq", "duplicate") if told[name]}
    return kept if told["certain"] else kept | {"certain": False}


def show_command(command: dict[str, Any]) -> str:
    subjects = command.pop("subjects", [])
    words = [command.pop("op"), *subjects]
    for subject, at in command.pop("positions", {}).items():
        words.append(f"after={subject}@{show_value(at)}")
    return " ".join(words) + show_keys(command)


def show_message(message: dict[str, Any]) -> str:
    message.pop("op", None)
    at = f"{message.pop('epoch')},{message.pop('seq')}"
    kind, subject, content = (message.pop(name) for name in ("type", "subject", "content"))
    return f"{kind} {subject} {at} {quoted(content)}{show_keys(message)}"


def show_keys(keys: dict[str, Any]) -> str:
    told = sorted((name, value) for name, value in keys.items() if value is not None)
    return "".join(f" {name}={show_value(value)}" for name, value in told)


def show_value(value: Any) -> str:
    if isinstance(value, dict) and "seq" in value:
        return f"{value['history']}:{value['epoch']},{value['seq']}"
    if isinstance(value, dict) and "to" in value:
        return f"{show_value(value['from'])}..{show_value(value['to'])}"
    if isinstance(value, dict):
        return ",".join(f"{name}:{show_value(value[name])}" for name in sorted(value, key=str))
    if isinstance(value, str):
        text = blurred(value)
        runs = re.sub(r"(.)\1{29,}", lambda run: f"{run[1]}*{len(run[0])}", text)
        return runs if re.fullmatch(r'[^\s"]+', runs) else quoted(runs)
    return json.dumps(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def show_time(time_ns: int) -> str:
    return f"{time_ns / NS_PER_S:.3f}".rstrip("0").rstrip(".") + "s"
