"""Proxies as there are in offices: HTTP gets through, WebSockets do not."""

import contextlib
import re
import socket
import socketserver
import threading
from collections.abc import Iterator

from attrs import define, field

REFUSAL = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
HEAD_BYTES_MAX = 65536
STREAM = re.compile(rb"^POST /stream (?s:.*)^accept: *application/x-ndjson", re.I | re.M)


@define(eq=False)
class Proxy:
    """Carries connections to a port of 127.0.0.1, but refuses to switch protocols.

    With `keeps` it gives answers back only when they are whole, but for server-sent events: of a
    stream the client gets nothing.
    """

    target: int
    keeps: bool = False
    kept: int = 0
    port: int = 0
    refused: int = 0
    carried: int = 0
    _open: set[socket.socket] = field(factory=set)

    def carry(self, client: socket.socket) -> None:
        """Carry one connection until either side ends it."""
        head = b""
        while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
            if not (part := client.recv(HEAD_BYTES_MAX)):
                return
            head += part
        if b"upgrade: websocket" in head.lower():
            self.refused += 1
            client.sendall(REFUSAL)
            return
        self.carried += 1
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            ends = {client, server}
            self._open |= ends
            server.sendall(head)
            kept = threading.Event()
            self._look(head, kept)
            back = threading.Thread(target=self._copy, args=(server, client, kept), daemon=True)
            back.start()
            self._copy(client, server, kept)
            back.join()
            self._open -= ends

    def _look(self, asked: bytes, kept: threading.Event) -> None:
        """Note that the answers of a connection are kept from here on."""
        if self.keeps and STREAM.search(asked):
            self.kept += 1
            kept.set()

    def _copy(self, source: socket.socket, sink: socket.socket, kept: threading.Event) -> None:
        """Carry requests, or answers as long as none is kept."""
        with contextlib.suppress(OSError):
            is_answer = source.getpeername()[1] == self.target
            while part := source.recv(HEAD_BYTES_MAX):
                if not is_answer:
                    self._look(part, kept)
                if not (is_answer and kept.is_set()):
                    sink.sendall(part)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@contextlib.contextmanager
def no_websockets(target: int, *, keeps: bool = False) -> Iterator[Proxy]:
    """Run a proxy in front of a server until the end of the `with` block."""
    proxy = Proxy(target, keeps)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                proxy.carry(self.request)

    with _Server(("127.0.0.1", 0), Handler) as server:
        proxy.port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield proxy
        finally:
            proxy.cut()
            server.shutdown()
            serving.join()
