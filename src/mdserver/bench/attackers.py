"""`python -m mdserver.bench.attackers ATTACK PORT BYTES_PER_S`: run one attack until SIGTERM.

There are two kinds of attack. A flood sends as fast as its rate allows, and reads what comes back
only to discard it. A hold sends once on many connections, as fast as the server takes it, and then
keeps them open without reading. A connection that the server ends is opened again.

The process prints a line when the attack is under way, and at its end how many bytes it sent in how
many seconds.
"""

import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

from mdserver.bench import wire
from mdserver.limits import KB, SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON

BLOCK_BYTES = 32 * KB
READ_BYTES = 256 * KB
OPEN_TIMEOUT_S = 10.0
ATTACKING = "attacking"
KEY = b"\x11\x22\x33\x44"
UNFINISHED_CONNECTIONS = 300
HISTORY_CONNECTIONS = 20
HISTORY_SUBJECT = "/hostile/history"
HISTORY_MESSAGES = 1000
HISTORY_CONTENT_BYTES = 60 * KB


def command(**keys: object) -> bytes:
    """Return one command as a WebSocket message of its own."""
    return wire.masked(json.dumps(keys).encode(), wire.OPCODE_TEXT, KEY)


def repeated(block: bytes) -> Iterator[bytes]:
    """Yield the same bytes again and again, about `BLOCK_BYTES` at a time."""
    block *= max(1, BLOCK_BYTES // len(block))
    while True:
        yield block


def pings() -> Iterator[bytes]:
    """Yield empty ping frames, the smallest frames that exist."""
    return repeated(wire.masked(b"", wire.OPCODE_PING, KEY))


def long_pings() -> Iterator[bytes]:
    """Yield pings with two different contents in turn."""
    frames = [wire.masked(text, wire.OPCODE_PING, KEY) for text in (b"a", b"b")]
    return repeated(b"".join(frames))


def empty_messages() -> Iterator[bytes]:
    """Yield messages of the binary form without any frame in them."""
    return repeated(wire.masked(b"", wire.OPCODE_BINARY, KEY))


def malformed() -> Iterator[bytes]:
    """Yield commands with names that are nearly right, each name a new one."""
    number = 0
    while True:
        number += 50
        yield b"".join(command(op=f"subscribex{one}") for one in range(number, number + 50))


def ping_commands() -> Iterator[bytes]:
    """Yield messages full of `ping` commands."""
    return repeated(
        wire.masked(b"[" + b",".join([b'{"op":"ping"}'] * 4000) + b"]", wire.OPCODE_TEXT, KEY)
    )


def toggles() -> Iterator[bytes]:
    """Yield commands that subscribe to a pattern and end that again."""
    pattern = ["/hostile/*/toggled"]
    return repeated(
        command(op="subscribe", subjects=pattern) + command(op="unsubscribe", subjects=pattern)
    )


def subscriptions() -> Iterator[bytes]:
    """Yield commands that subscribe to thousands of subjects and end that again."""
    subjects = [f"/hostile/many/{number}" for number in range(8000)]
    return repeated(
        command(op="subscribe", subjects=subjects) + command(op="unsubscribe", subjects=subjects)
    )


def publications() -> Iterator[bytes]:
    """Yield small publications without a subscriber."""
    return repeated(command(op="publish", subject="/hostile/small", content="x"))


def requests() -> Iterator[bytes]:
    """Yield HTTP requests, one after the other."""
    return repeated(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 4)


def histories() -> Iterator[bytes]:
    """Yield a request for a long history, whose answer is not read."""
    path = f"/rest/consume?subject={HISTORY_SUBJECT}&history={HISTORY_MESSAGES}"
    yield f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def unfinished_messages() -> Iterator[bytes]:
    """Yield a first message that never ends."""
    whole = wire.masked(b"[" + b" " * (300 * KB), wire.OPCODE_TEXT, KEY)
    for start in range(0, len(whole) - 1, BLOCK_BYTES):
        yield whole[start : min(start + BLOCK_BYTES, len(whole) - 1)]


def unfinished_bodies() -> Iterator[bytes]:
    """Yield a request whose body never ends."""
    size = 1000 * KB
    yield (
        b"POST /rest/produce?subject=/a/b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
        % size
    )
    for _ in range(size // BLOCK_BYTES):
        yield b"x" * BLOCK_BYTES


Attack = Callable[[], Iterator[bytes]]
FLOODS: dict[str, tuple[Attack, str | None]] = {
    "pings": (pings, SUBPROTOCOL_JSON),
    "long-pings": (long_pings, SUBPROTOCOL_JSON),
    "empty-messages": (empty_messages, SUBPROTOCOL_BINARY),
    "malformed": (malformed, SUBPROTOCOL_JSON),
    "ping-commands": (ping_commands, SUBPROTOCOL_JSON),
    "toggles": (toggles, SUBPROTOCOL_JSON),
    "subscriptions": (subscriptions, SUBPROTOCOL_JSON),
    "publications": (publications, SUBPROTOCOL_JSON),
    "requests": (requests, None),
}
"""What is sent on one connection, whose answers are read, and its subprotocol, if any."""

HOLDS: dict[str, tuple[Attack, str | None, int]] = {
    "histories": (histories, None, HISTORY_CONNECTIONS),
    "unfinished-messages": (unfinished_messages, SUBPROTOCOL_JSON, UNFINISHED_CONNECTIONS),
    "unfinished-bodies": (unfinished_bodies, None, UNFINISHED_CONNECTIONS),
}
"""What is sent once on each of so many connections, which are not read and stay open."""

ATTACKS = (*FLOODS, *HOLDS)


def opened(port: int, subprotocol: str | None, receive_bytes: int | None = None) -> socket.socket:
    """Open a connection, and upgrade it if there is a subprotocol; return its socket."""
    sock = socket.socket()
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(OPEN_TIMEOUT_S)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if subprotocol is not None:
        upgrade = wire.Upgrade("127.0.0.1", subprotocol)
        sock.sendall(upgrade.request)
        received = b""
        while upgrade.rest(received) is None:
            more = sock.recv(READ_BYTES)
            if not more:
                raise ConnectionError("the server ended the connection")
            received += more
    return sock


class SendingRate:
    """Keeps what is sent to a number of bytes a second, and counts it."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.begun = time.monotonic()
        self.sent = 0

    def add(self, size: int) -> None:
        """Count bytes that were sent, and wait until more may be sent."""
        self.sent += size
        ahead = self.sent / self._bytes_per_s - (time.monotonic() - self.begun)
        if ahead > 0:
            time.sleep(ahead)


def flood(attack: Attack, subprotocol: str | None, port: int, rate: SendingRate) -> None:
    """Send and read on one connection; open another one when it ends."""
    while True:
        try:
            with opened(port, subprotocol) as sock:
                sock.setblocking(False)
                for block in attack():
                    send_and_read(sock, block, rate)
        except OSError:
            rate.add(KB)  # opening a connection again costs the attacker something, too


def send_and_read(sock: socket.socket, block: bytes, rate: SendingRate) -> None:
    """Send a block, discarding what is received meanwhile."""
    rest = memoryview(block)
    while rest:
        blocked = True
        try:
            sent = sock.send(rest)
            rest = rest[sent:]
            rate.add(sent)
            blocked = False
        except BlockingIOError:
            pass
        try:
            if not sock.recv(READ_BYTES):
                raise ConnectionError("the server ended the connection")
        except BlockingIOError:
            if blocked:
                time.sleep(0.001)


def hold(attack: Attack, subprotocol: str | None, count: int, port: int, rate: SendingRate) -> None:
    """Send on many connections and leave them open; replace those that end."""
    held: list[socket.socket | None] = [None] * count
    first = True
    while True:
        for index, sock in enumerate(held):
            if sock is not None and not ended(sock):
                continue
            if sock is not None:
                sock.close()
            held[index] = begun(attack, subprotocol, port, rate)
        if first:
            print(ATTACKING, flush=True)
            first = False
        time.sleep(0.1)


def begun(
    attack: Attack, subprotocol: str | None, port: int, rate: SendingRate
) -> socket.socket | None:
    """Return a connection on which the attack was sent; None if the server ended it."""
    try:
        sock = opened(port, subprotocol, receive_bytes=4 * KB)
        for block in attack():
            sock.sendall(block)
            rate.add(len(block))
    except OSError:
        return None
    return sock


def ended(sock: socket.socket) -> bool:
    """Return whether the server closed the connection; nothing is taken from it."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit


def main(name: str, port: int, bytes_per_s: float) -> None:
    """Attack until SIGTERM."""
    signal.signal(signal.SIGTERM, _end)
    # The neighbour shares this core, and its latency must show the delays of the server alone.
    os.nice(10)
    rate = SendingRate(bytes_per_s if name in FLOODS else math.inf)
    try:
        if name in FLOODS:
            print(ATTACKING, flush=True)
            flood(*FLOODS[name], port, rate)
        else:
            hold(*HOLDS[name], port, rate)
    finally:
        print(rate.sent, time.monotonic() - rate.begun, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
