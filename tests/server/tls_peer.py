"""A client that speaks TLS in memory, over a socket pair."""

import _ssl
import ctypes
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio.testing


async def shaken(peer: "Peer", between: Callable[[], None] = lambda: None) -> None:
    """Perform the client's side of a handshake whose other side is another task."""
    done = False
    while not done:
        await trio.testing.wait_all_tasks_blocked()
        done = peer.shake()
        between()


class OpenSsl:
    """The OpenSSL of the module `ssl`, for what that module has no function for."""

    def __init__(self) -> None:
        if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
            pytest.skip("where a connection has its pointer was looked up for CPython up to 3.13")
        try:
            library = ctypes.CDLL(_ssl.__file__)  # finds what this module itself is linked with
            functions = library.SSL_key_update, library.SSL_do_handshake
        except (AttributeError, OSError):
            pytest.skip("the functions of OpenSSL are hidden in this Python")
        self._key_update, self._do_handshake = functions
        self._key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._do_handshake.argtypes = [ctypes.c_void_p]

    def key_update(self, tls: ssl.SSLObject, *, answer: bool) -> None:
        """Write a KeyUpdate (RFC 8446, section 4.6.3); with `answer` the other side sends one."""
        inner = tls._sslobj  # type: ignore[attr-defined]
        # After the head of an object, and a reference to the socket.
        pointer = ctypes.c_void_p.from_address(id(inner) + object.__basicsize__ + 8).value
        assert self._key_update(pointer, int(answer)) == 1
        assert self._do_handshake(pointer) == 1


class Peer:
    """A client whose records are given to the server's socket when the test wants it to."""

    def __init__(self, pem: Path, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        context = ssl.create_default_context(cafile=str(pem))
        context.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self) -> bool:
        """Go on with the handshake; return whether the client's side of it is done."""
        self.take()
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.far.send(self.outgoing.read())
        return True

    def take(self) -> None:
        try:
            while records := self.far.recv(1_000_000):
                self.incoming.write(records)
        except BlockingIOError:
            pass

    def records(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def key_updates(self, size: int, *, answer: bool = False) -> bytes:
        """Records of KeyUpdates, at least one and at most `size` bytes."""
        openssl = OpenSsl()
        made = b""
        while True:
            openssl.key_update(self.tls, answer=answer)
            made += self.outgoing.read()
            if len(made) + 64 > size:
                return made

    def read(self) -> bytes:
        self.take()
        received = b""
        try:
            while part := self.tls.read(100_000):
                received += part
        except ssl.SSLWantReadError:
            pass
        return received

    def close(self) -> None:
        self.near.close()
        self.far.close()
