"""Talks to systemd, or to another supervisor with its protocols: readiness, watchdog, sockets.

All of it is optional: an unsupervised server finds none of the variables below, and sends nothing.
The variables are removed from the environment, because they are not meant for processes that the
server starts.

- `NOTIFY_SOCKET` (sd_notify(3)): datagrams say when the server is ready, reads its configuration
  again, or ends. With `Type=notify` the start of the unit waits for the first of them.
- `WATCHDOG_USEC`, `WATCHDOG_PID` (sd_watchdog_enabled(3)): systemd restarts a server that does not
  report within this time that it is alive. The event loop itself reports, so systemd notices a loop
  that hangs as well as a process that ended.
- `LISTEN_FDS`, `LISTEN_PID` (sd_listen_fds(3)): listening sockets that systemd keeps open during a
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
    """What systemd offers this process. `notify` is the address of its socket, None without one.

    `watchdog_s` is the longest time between two signs of life, in seconds; None if systemd expects
    none. `sockets` are the listening sockets that it hands over.
    """

    notify: str | None = None
    watchdog_s: float | None = None
    sockets: tuple[socket.socket, ...] = ()

    def ready(self) -> None:
        """Report that every listener accepts connections."""
        self._say("READY=1")

    def reloading(self) -> None:
        """Report that the configuration is being read again; call `ready` afterwards."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, within_s: float) -> None:
        """Report that the server is ending, which may take `within_s` until its clients moved."""
        self._say(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(within_s * _US_PER_S)}")

    async def keep_alive(self) -> None:
        """Send signs of life until cancelled, twice as often as systemd expects them."""
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
        # The supervisor may have ended, or its queue may be full. The server goes on in both cases.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), address)


def systemd(environment: MutableMapping[str, str] = os.environ) -> Systemd:
    """Return the offers of systemd, remove them from the environment, and take over its sockets.

    Variables that name another process are meant for that process, and count as missing.
    """
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
    """Return a number, 0 if the text is none."""
    return int(text) if text.isascii() and text.isdigit() else 0


def _taken_over(descriptor: int) -> socket.socket:
    """Return the socket of a descriptor, set so that no process started later inherits it."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock


def listen_first_on(
    held: Sequence[socket.socket],
) -> tuple[Callable[[Address], list[socket.socket]], list[socket.socket]]:
    """Return a function that listens on an address, and a list of the sockets that are left.

    The function takes those of `held` that listen on the address out of the list, and opens new
    sockets if there are none. It raises StartError as `mdserver.server.sockets.listen` does.
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
    """Return what `getsockname` may return for a socket that listens on an address."""
    if address.host == "*":
        return [("0.0.0.0", address.port), ("::", address.port)]  # noqa: S104 - only compared
    with suppress(OSError):
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        return [(str(where[0]), int(where[1])) for *_, where in found]
    return []
