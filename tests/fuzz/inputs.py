"""What no well-behaved client sends: made of what clients do send, and of what breaks parsers.

All of it follows from one `random.Random`, so a seed gives the same inputs again.
"""

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from attrs import frozen

from mdserver.codec.binary_form import COMMAND
from mdserver.codec.frames import frame as binary_frame
from mdserver.codec.peer import GREETING, MESSAGE, PART, PROOF, REFUSAL, TERMS
from tests.server.raw import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame

SECRET = b"0123456789abcdef0123456789abcdef"
TOKEN_MARK = b"$TOKEN"
"""Stands in requests for a token that allows everything."""

HALF = "\ud800"  # of a surrogate pair: no encoder takes it
HALF_MARK, HALF_BYTES = "\x01\x02\x03", b"\xed\xa0\x80"  # three bytes each
BYTES_MAX = 400_000  # of an input, more than a message may have
FAR_FUTURE_S = 4_102_444_800
EVERYTHING = {"exp": FAR_FUTURE_S, "permissions": {"all": ["/**"]}}

TEXTS = (
    "",
    "a",
    "\0",
    HALF,
    "\udfff",
    f"a{HALF}b",
    "\x1b[31m",
    "\r\n",
    "é" * 200,
    "🙂",
    "'\"\\",
    "NaN",
    "/",
    "//",
    "/a/b",
    "/a/b/",
    "/a/*",
    "/**",
    "/*/b",
    "/a/**/b",
    "/a/\0",
    f"/a/{HALF}",
    "/é/🙂",
    "/a" * 16,
    "/a" * 40,
)
LONG_TEXTS = ("/" + "x" * 1030, "x" * 20_000, "x" * 70_000)
NUMBERS = (
    0,
    1,
    -1,
    1000,
    2**31 - 1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.1,
    1e308,
)
SPLINTERS = (
    b"\0",
    b"\xff",
    HALF_BYTES,
    b"\\ud800",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"\r\n",
    b"\n",
    b"\x1b[31m",
    b"9" * 400,
    b"1e999",
    b"\x80\x80\x80\x80\x80",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\x7f\xff\xff\xff",
    b"%00",
    b"%ED%A0%80",
    b": ",
    b"\x00" * 300,
)


@frozen
class Input:
    """What is sent: `kind` says where and behind what, one of KINDS."""

    kind: str
    data: bytes


def token(claims: Any, header: Any = None) -> bytes:
    """A token with a right signature, whatever stands in it."""
    parts = (json.dumps(header or {"alg": "HS256"}), json.dumps(claims))
    signed = b".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=") for part in parts)
    signature = hmac.digest(SECRET, signed, hashlib.sha256)
    return signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


GOOD_TOKEN = token(EVERYTHING)


class Inputs:
    """Makes inputs, each with the next bits of one generator; `known` are bytes to borrow from."""

    def __init__(self, rng: random.Random, known: Sequence[Input] = ()) -> None:
        self._rng = rng
        self._known = known

    def next(self) -> Input:
        """One more input."""
        rng = self._rng
        if self._known and rng.random() < 0.2:
            old = rng.choice(self._known)
            return Input(old.kind, self._mutated(old.data))
        kind = rng.choice(list(_MAKERS))
        data = _MAKERS[kind](self)[:BYTES_MAX]
        return Input(kind, self._mutated(data) if rng.random() < 0.4 else data)

    # Values

    def _text(self) -> str:
        rng = self._rng
        kind = rng.random()
        if kind < 0.01:
            return rng.choice(LONG_TEXTS)
        if kind < 0.7:
            return rng.choice(TEXTS)
        return "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x11000)))) for _ in "abc")

    def _value(self, depth: int = 3) -> Any:
        rng = self._rng
        kind = rng.randrange(9 if depth else 5)
        if kind < 5:
            return rng.choice((self._text(), rng.choice(NUMBERS), None, True, float("nan")))
        if kind == 5:
            return [self._value(depth - 1) for _ in range(rng.randrange(4))]
        if kind == 6:
            return {self._text(): self._value(depth - 1) for _ in range(rng.randrange(4))}
        if kind == 7:
            return [rng.choice(("", 0, None, {}, []))] * rng.choice((10, 300, 5_000))
        nested: Any = self._text()
        for _ in range(rng.choice((10, 200))):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        return nested

    def _subject(self) -> str:
        rng = self._rng
        if rng.random() < 0.3:
            return self._text()
        return "".join(f"/{rng.choice('abcd*')}" for _ in range(rng.randint(1, 6)))

    def _subjects(self) -> list[str]:
        rng = self._rng
        return [self._subject() for _ in range(rng.choice((0, 1, 1, 2, 20, 500)))]

    def _claims(self) -> dict[Any, Any]:
        rng = self._rng
        claims: dict[Any, Any] = {
            "exp": rng.choice((FAR_FUTURE_S, self._value(1))),
            "sub": self._text(),
            "permissions": {rng.choice(("all", "sub", "pub", "x")): self._subjects()},
        }
        if rng.random() < 0.5:
            claims[rng.choice(("permissions", "exp", "sub", "nbf", "iat", "aud"))] = self._value()
        return claims

    def _command(self) -> dict[str, Any]:
        rng = self._rng
        position = {"history": "x", "epoch": rng.choice(NUMBERS), "seq": rng.choice(NUMBERS)}
        receipt = dict.fromkeys(
            ("epoch", "seq_lo", "seq_hi", "n", "crc_sum", "crc_at", "opened_ms", "closed_ms"),
            rng.choice(NUMBERS),
        ) | {"session": "m-1", "history": "x", "subject": self._subject(), "via": self._text()}
        command: dict[str, Any] = rng.choice(
            (
                lambda: {
                    "op": "connect",
                    "token": GOOD_TOKEN.decode(),
                    "client": self._text(),
                    "publisher": self._text(),
                    "publisher_key": self._text(),
                    "keepalive_ms": rng.choice(NUMBERS),
                },
                lambda: {
                    "op": "subscribe",
                    "subjects": self._subjects(),
                    "history": rng.choice(NUMBERS),
                    "conflation_ms": rng.choice(NUMBERS),
                },
                lambda: {
                    "op": "subscribe",
                    "subjects": self._subjects(),
                    "positions": {self._subject(): position for _ in range(3)},
                },
                lambda: {"op": "unsubscribe", "subjects": self._subjects()},
                lambda: {
                    "op": "publish",
                    "subject": self._subject(),
                    "content": self._text(),
                    "fields": {self._text(): self._text()},
                    "closure": self._text(),
                    "number": rng.choice(NUMBERS),
                    "reply_subject": self._subject(),
                },
                lambda: {
                    "op": "publish",
                    "subject": self._subject(),
                    "content": "x",
                    "retained": rng.random() < 0.5,
                    "qos": rng.choice(("GUARANTEED", "STANDARD")),
                },
                lambda: {"op": "token", "token": token(self._claims()).decode()},
                lambda: {"op": "ping", "t": self._value()},
                lambda: {"op": "receipts", "receipts": [receipt] * rng.choice((1, 5, 1001))},
            )
        )()
        if rng.random() < 0.5:
            command["id"] = rng.choice((self._text(), rng.choice(NUMBERS)))
        if rng.random() < 0.5:
            command[rng.choice((*command, self._text()))] = self._value()
        return command

    def _commands(self) -> Any:
        count = self._rng.choice((*(1,) * 20, 0, 3, 3, 3, 150))
        commands = [self._command() for _ in range(count)]
        return commands[0] if count == 1 else commands

    # Kinds

    def json(self) -> bytes:
        """A message of the JSON form."""
        whole = self._commands() if self._rng.random() < 0.9 else self._value(5)
        return self._json(whole)

    def _json(self, value: Any) -> bytes:
        plain = self._rng.random() < 0.3
        return json.dumps(value, ensure_ascii=not plain).encode(errors="surrogatepass")

    def binary(self) -> bytes:
        """A message of the binary form."""
        rng = self._rng
        commands = self._commands()
        frames = [
            binary_frame(
                rng.choice((COMMAND, COMMAND, COMMAND, rng.randrange(256))), packed(command)
            )
            for command in (commands if isinstance(commands, list) else [commands])
        ]
        return b"".join(frames)

    def frames(self) -> bytes:
        """WebSocket frames after the upgrade."""
        rng = self._rng
        kinds = (TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG, 3, 11)
        return b"".join(
            frame(
                rng.choice(kinds),
                rng.choice(
                    (
                        b"",
                        self._json(self._command())[:1000],
                        rng.randbytes(125),
                        b"\x03\xe8",
                        b"\0\0x",
                    )
                ),
                fin=rng.random() < 0.7,
                reserved=rng.choice((0, 0, 0, 4)),
                mask=rng.choice((b"\0\0\0\0", b"\x01\x02\x03\x04", None)),
                length=rng.choice((None, None, None, 0, 126, 65536, 2**63)),
            )
            for _ in range(rng.choice((1, 3, 30)))
        )

    def http(self) -> bytes:
        """Requests, one after the other."""
        return b"".join(self._request() for _ in range(self._rng.choice((1, 1, 3))))

    def _request(self) -> bytes:
        rng = self._rng
        path = rng.choice(
            (
                "/",
                "/rest/produce",
                "/rest/consume",
                "/snapshot",
                "/sse",
                "/stream",
                "/stream/x",
                "/ws",
                "/health/live",
                "/health/ready",
                "/openapi.json",
                self._text(),
            )
        )
        names = ("subject", "subject", "history", "epoch", "seq", "history_id", "token", "content")
        query = [(name, self._text()) for name in rng.sample(names, rng.randrange(4))]
        if rng.random() < 0.8:
            query += [("token", TOKEN_MARK.decode()), ("subject", self._subject())]
        if rng.random() < 0.5:
            query.append(("history", str(rng.choice(NUMBERS))))
        asked = "&".join(
            f"{name}={quote(value, '$/*', errors='surrogatepass')}" for name, value in query
        )
        body = rng.choice((bytes, self.json, self.binary, lambda: b"x" * 2000))()
        lines = [f"{rng.choice(('GET', 'POST', 'HEAD', 'OPTIONS', 'PUT'))} {path}?{asked} HTTP/1.1"]
        lines.append(f"Host: {rng.choice(('localhost', '127.0.0.1', self._text()))}")
        lines += rng.sample(
            (
                "Upgrade: websocket",
                "Connection: close",
                "Connection: Upgrade",
                "Expect: 100-continue",
                "Content-Type: application/vnd.mdserver.frames",
                "Accept: */*",
                "Content-Type: application/json",
                f"Origin: {self._text()}",
                f"Last-Event-ID: {self._text()}",
                f"Sec-WebSocket-Key: {self._text()}",
                "Sec-WebSocket-Version: 13",
                f"{self._text()}: {self._text()}",
            ),
            rng.randrange(5),
        )
        if rng.random() < 0.3:
            lines.append("Transfer-Encoding: chunked")
            body = b"".join(
                b"%x\r\n%b\r\n" % (len(part), part)
                for part in (body[:100], body[100:], b"")
                if part or not body[100:]
            )
        elif body:
            lines.append(f"Content-Length: {rng.choice((len(body), len(body), 0, 2**64))}")
        return "\r\n".join(lines).encode(errors="surrogatepass") + b"\r\n\r\n" + body

    def token(self) -> bytes:
        """A token of a `connect`."""
        rng = self._rng
        header: dict[Any, Any] = {"alg": "HS256"}
        if rng.random() < 0.5:
            header[rng.choice(("alg", "kid", "crit", "typ", "b64", self._text()))] = self._value()
        return token(self._claims() if rng.random() < 0.8 else self._value(), header)

    def peer(self) -> bytes:
        """What a stranger may say at the port for members."""
        rng = self._rng
        greeting = {"member": "127.0.0.1:9", "nonce": rng.randbytes(32), "protocol": 2}
        if rng.random() < 0.5:
            greeting[rng.choice((*greeting, "x"))] = self._value()
        parts = [binary_frame(GREETING, packed(greeting))]
        for _ in range(rng.randrange(4)):
            kind = rng.choice((GREETING, PROOF, REFUSAL, TERMS, MESSAGE, PART, rng.randrange(256)))
            parts.append(binary_frame(kind, rng.choice((rng.randbytes(32), packed(self._value())))))
        return b"".join(parts[rng.random() < 0.1 :])

    # Damage

    def _mutated(self, data: bytes) -> bytes:
        rng = self._rng
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            end = min(len(data), at + rng.choice((1, 1, 2, 8, 100)))
            damage = rng.randrange(6)
            if damage == 0:
                data = data[:at]
            elif damage == 1:
                data = data[:at] + data[end:]
            elif damage == 2:
                data = data[:end] + data[at:end] * rng.choice((1, 2, 50)) + data[end:]
            elif damage == 3:
                data = data[:at] + rng.choice(SPLINTERS) + data[end:]
            elif damage == 4:
                data = data[:at] + rng.randbytes(end - at) + data[end:]
            elif self._known:
                other = rng.choice(self._known).data
                data = data[:at] + other[rng.randrange(len(other) + 1) :]
        return data


def packed(value: Any) -> bytes:
    """MessagePack that may hold what its encoder refuses: half a surrogate pair."""
    return msgspec.msgpack.encode(_packable(value)).replace(HALF_MARK.encode(), HALF_BYTES)


def _packable(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(HALF_MARK if "\ud800" <= one <= "\udfff" else one for one in value)
    if isinstance(value, list):
        return [_packable(one) for one in value]
    if isinstance(value, dict):
        return {_packable(name): _packable(one) for name, one in value.items()}
    return value


_MAKERS: dict[str, Callable[[Inputs], bytes]] = {
    "json": Inputs.json,
    "binary": Inputs.binary,
    "frames": Inputs.frames,
    "http": Inputs.http,
    "token": Inputs.token,
    "peer": Inputs.peer,
}
KINDS = tuple(_MAKERS)
