"""A TCP proxy that delays, holds and cuts what passes, and alters none of it.

Each accepted connection belongs to a *route*. The weather of a route's two directions may change
at any time: a delay for each piece, or a hold, in which nothing passes while the sender goes on
until the buffers are full, as with a network that swallows packets. A cut breaks connections with
a reset after a given number of further bytes, wherever in a frame that is.
"""

import struct
from collections.abc import Callable
from functools import partial

import trio
from attrs import define, field

PIECE_BYTES = 16 * 1024
PIECES_WAITING_MAX = 64  # a direction of a connection: 1 MB, then the sender has to wait
CONNECT_TIMEOUT_S = 5
NARROW_BYTES = 8 * 1024
FIRST_BYTES_MAX = 16 * 1024  # within which a caller has said who it is
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset

Address = tuple[str, int]
Identify = Callable[[bytes], str | None]
"""Who calls, from the first bytes of a connection; None where there are too few of them yet."""


@define(eq=False)
class Weather:
    """How one direction of a route is. `delay_s` is added to each piece.

    Where it is `unread`, nothing is taken from the sender either.
    """

    delay_s: float = 0.0
    held: bool = False
    unread: bool = False
    passed: int = 0  # bytes
    _changed: trio.Event = field(factory=trio.Event)

    def set(
        self,
        *,
        delay_s: float | None = None,
        held: bool | None = None,
        unread: bool | None = None,
    ) -> None:
        """Change what is given."""
        self.unread = self.unread if unread is None else unread
        self.delay_s = self.delay_s if delay_s is None else delay_s
        self.held = self.held if held is None else held
        self._changed.set()
        self._changed = trio.Event()

    async def clear(self) -> None:
        """Wait until nothing is held."""
        while self.held:
            await self._changed.wait()

    async def wanted(self) -> None:
        """Wait until what is sent is read."""
        while self.unread:
            await self._changed.wait()


@define(eq=False)
class Connection:
    """One connection through the proxy; `left`: bytes until it is cut, None for no cut."""

    near: trio.SocketStream
    far: trio.SocketStream
    scope: trio.CancelScope
    left: int | None = None

    def allowance(self, size: int) -> int:
        """How many of so many bytes may still pass."""
        return size if self.left is None else min(size, self.left)

    def took(self, size: int) -> None:
        """So many bytes passed; at the cut the connection ends."""
        if self.left is not None:
            self.left -= size
            if self.left <= 0:
                self.reset()

    def reset(self) -> None:
        """Break it now: both ends get a reset."""
        for stream in (self.near, self.far):
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, AT_ONCE)
        self.scope.cancel()


@define(eq=False)
class Route:
    """Connections of one caller (or of all) to one target."""

    forth: Weather = field(factory=Weather)
    back: Weather = field(factory=Weather)
    connections: dict[Connection, None] = field(factory=dict)

    def cut(self, after_bytes: int) -> int:
        """Break the open connections after so many further bytes of either direction.

        0 means now. Returns how many there are.
        """
        for connection in list(self.connections):
            connection.left = after_bytes
            if after_bytes == 0:
                connection.reset()
        return len(self.connections)


class Proxy:
    """Listens at `address` once `run` has started, and connects on to `target`.

    Without `identify` all connections are of the route "". With `narrow` the target soon notices
    that nothing is read.
    """

    def __init__(
        self,
        target: Address,
        *,
        identify: Identify | None = None,
        port: int = 0,
        narrow: bool = False,
    ) -> None:
        self._narrow = narrow
        self.target = target
        self.address: Address = ("127.0.0.1", port)
        self.routes: dict[str, Route] = {}
        self._identify = identify

    def route(self, caller: str = "") -> Route:
        """The route of a caller."""
        return self.routes.setdefault(caller, Route())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled. Raises OSError for a port in use."""
        host, port = self.address
        listeners = await trio.open_tcp_listeners(port, host=host)
        self.address = (host, listeners[0].socket.getsockname()[1])
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, near: trio.SocketStream) -> None:
        """One connection; whichever way it ends, both sides of it are closed."""
        try:
            async with near:
                first = b"" if self._identify is None else await self._first_bytes(near)
                caller = "" if self._identify is None else self._identify(first)
                if caller is None:
                    return
                route = self.route(caller)
                await route.forth.clear()
                await route.back.clear()
                with trio.fail_after(CONNECT_TIMEOUT_S):
                    far = await self._connected()
                async with far:
                    await self._carry(route, near, far, first)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # a connection that breaks is what both ends have to live with

    async def _connected(self) -> trio.SocketStream:
        """A connection to the target; a narrow one takes little more than is read."""
        if not self._narrow:
            return await trio.open_tcp_stream(*self.target)
        narrow = trio.socket.socket()
        try:
            narrow.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, NARROW_BYTES)
            await narrow.connect(self.target)
        except BaseException:
            narrow.close()
            raise
        return trio.SocketStream(narrow)

    async def _first_bytes(self, near: trio.SocketStream) -> bytes:
        assert self._identify is not None
        first = b""
        while len(first) < FIRST_BYTES_MAX and self._identify(first) is None:
            data = await near.receive_some(PIECE_BYTES)
            if not data:
                break
            first += data
        return first

    async def _carry(
        self, route: Route, near: trio.SocketStream, far: trio.SocketStream, first: bytes
    ) -> None:
        async with trio.open_nursery() as nursery:
            connection = Connection(near, far, nursery.cancel_scope)
            route.connections[connection] = None
            try:
                async with trio.open_nursery() as pumps:
                    pumps.start_soon(self._pump, connection, near, far, route.forth, first)
                    pumps.start_soon(self._pump, connection, far, near, route.back, b"")
            finally:
                del route.connections[connection]

    async def _pump(
        self,
        connection: Connection,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        weather: Weather,
        first: bytes,
    ) -> None:
        """One direction, until its end is passed on; an error ends the connection."""
        into, out = trio.open_memory_channel[tuple[float, bytes]](PIECES_WAITING_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(self._write, connection, sink, weather, out))
            async with into:
                if first:
                    await into.send((trio.current_time() + weather.delay_s, first))
                while data := await self._receive(source, weather):
                    await into.send((trio.current_time() + weather.delay_s, data))

    async def _receive(self, source: trio.SocketStream, weather: Weather) -> bytes:
        await weather.wanted()
        data = await source.receive_some(PIECE_BYTES)
        await weather.wanted()
        return bytes(data)

    async def _write(
        self,
        connection: Connection,
        sink: trio.SocketStream,
        weather: Weather,
        out: trio.MemoryReceiveChannel[tuple[float, bytes]],
    ) -> None:
        async with out:
            async for due, data in out:
                await trio.sleep_until(due)
                await weather.clear()
                piece = data[: connection.allowance(len(data))]
                weather.passed += len(piece)
                await sink.send_all(piece)
                connection.took(len(piece))
        await sink.send_eof()
