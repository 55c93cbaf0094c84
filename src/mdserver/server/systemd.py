"""Speaks with systemd, or whatever follows its protocols: readiness, watchdog, sockets.

All of it is optional: a server that nobody supervises finds none of the variables below and says
nothing. They are taken out of the environment, since they are not for processes that it starts.

- `NOTIFY_SOCKET` (sd_notify(3)): datagrams say when the server is ready, reads its configuration
  again, or ends. `Type=notify` makes a start of the unit wait for the first of them.
- `WATCHDOG_USEC`, `WATCHDOG_PID` (sd_watchdog_enabled(3)): systemd restarts a server that does not
  say within this time that it is alive. The event loop says so itself, so a loop that hangs is
  noticed, and not only a process that ended.
- `LISTEN_FDS`, `LISTEN_PID` (sd_listen_fds(3)): listening sockets that systemd holds over a
  restart, from descriptor 3 on. Clients that connect meanwhile wait instead of being refused.
"""

import os
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress

import trio
from attrs import frozen

from mdserver.config.values import Address
from mdserver.server.sockets import listen, options

_FIRST_DESCRIPTOR = 3
_US_PER_S = 1_000_000


@frozen
class Systemd:
    """What systemd offers this process: `notify` is the address of its socket, None without one.

    `watchdog_s` is the time (s) within which it wants a sign of life, None if it wants none.
    `sockets` are the listening sockets that it hands over.
    """

    notify: str | None = None
    watchdog_s: float | None = None
    sockets: tuple[socket.socket, ...] = ()

    def ready(self) -> None:
        """Say that every listener accepts."""
        self._say("READY=1")

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` ends that."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, within_s: float) -> None:
        """Say that the server ends, and that this may take as long as its clients need to move."""
        self._say(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(within_s * _US_PER_S)}")

    async def keep_alive(self) -> None:
        """Give signs of life until cancelled, twice as often as they are wanted."""
        if self.watchdog_s is None:
            return
        while True:
            self._say("WATCHDOG=1")
            await trio.sleep(self.watchdog_s / 2)

    def _say(self, state: str) -> None:
        if self.notify is None:
            return
        # A name that begins with @ is in the abstract namespace (unix(7)).
        address = "\0" + self.notify[1:] if self.notify.startswith("@") else self.notify
        # Nobody may listen any more, or the queue may be full: the server goes on all the same.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), address)


def systemd(environment: MutableMapping[str, str] = os.environ) -> Systemd:
    """Take what systemd offers out of the environment, and take over its sockets."""
    notify = environment.pop("NOTIFY_SOCKET", None)
    watchdog_us = _number(environment.pop("WATCHDOG_USEC", ""))
    watched = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    count = _number(environment.pop("LISTEN_FDS", ""))
    handed_over = environment.pop("LISTEN_PID", "") == str(os.getpid())
    environment.pop("LISTEN_FDNAMES", None)
    sockets = tuple(
        _taken_over(_FIRST_DESCRIPTOR + index) for index in range(count if handed_over else 0)
    )
    return Systemd(
        notify or None, watchdog_us / _US_PER_S if watchdog_us and watched else None, sockets
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _taken_over(descriptor: int) -> socket.socket:
    """Take a descriptor over as a socket that no process started later inherits."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock


def listen_first_on(
    held: Sequence[socket.socket],
) -> tuple[Callable[[Address], list[socket.socket]], list[socket.socket]]:
    """Return a function that listens on an address, and a list of the sockets that nobody took.

    The function takes over those of `held` that listen on the address, and makes new ones if there
    are none; it raises StartError like `mdserver.server.sockets.listen`.
    """
    left = list(held)

    def listen_there(address: Address) -> list[socket.socket]:
        wanted = _places(address)
        found = [sock for sock in left if sock.getsockname()[:2] in wanted]
        for sock in found:
            left.remove(sock)
            options(sock)
        return found or listen(address)

    return listen_there, left


def _places(address: Address) -> list[tuple[str, int]]:
    """Return what `getsockname` may say of a socket that listens on an address."""
    if address.host == "*":
        return [("0.0.0.0", address.port), ("::", address.port)]  # noqa: S104 - only compared
    with suppress(OSError):
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        return [(str(where[0]), int(where[1])) for *_, where in found]
    return []
