"""TLS: contexts from key files, and handshakes on non-blocking sockets.

Links between members are `ssl.SSLSocket`: `trio.SSLStream` costs several times more a send and
20 KiB a connection. Connections of clients are `EncryptedSocket`.
"""

import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import trio
from attrs import frozen

from mdserver import limits
from mdserver.errors import StartError
from mdserver.server.encrypted import EncryptedSocket, RecordBuffers

CIPHERS = limits.TLS_CIPHERS


@frozen
class KeyStore:
    """The files of a certificate chain and its private key, in PEM: one file, or one for each."""

    chain: Path
    key: Path | None = None


class Reloadable(Protocol):
    """A certificate in use whose files can be read again.

    Reading and taking effect are two steps, so that all certificates of a server can be read before
    the first of them is replaced (`reload`).
    """

    def read(self) -> Callable[[], None]:
        """Read the files, and return the function that puts them into use for new connections.

        Raises StartError if they cannot be used.
        """


def reload(identities: Iterable[Reloadable]) -> None:
    """Read the files of all these certificates again, for new connections.

    Raises StartError if some of the files cannot be used, and changes nothing then: new and old
    certificates side by side are a state that no configuration describes.
    """
    for use in [identity.read() for identity in identities]:
        use()


class ListenerCertificate:
    """The certificate of a listener. New connections use `context`."""

    def __init__(self, store: KeyStore, ciphers: str = CIPHERS) -> None:
        self._store = store
        self._ciphers = ciphers
        self.context = server_context(store, ciphers)
        self._buffers = RecordBuffers()

    def read(self) -> Callable[[], None]:
        """Read the files again; see `Reloadable`."""
        return partial(setattr, self, "context", server_context(self._store, self._ciphers))

    async def encrypt(self, sock: socket.socket) -> EncryptedSocket:
        """Perform the TLS handshake with a client. Closes `sock` on failure.

        Raises OSError (of which ssl.SSLError is a subclass) if the handshake fails.
        """
        try:
            encrypted = EncryptedSocket(sock, self.context, self._buffers)
            await encrypted.shake_hands()
        except BaseException:
            sock.close()
            raise
        return encrypted


def server_context(store: KeyStore, ciphers: str = CIPHERS) -> ssl.SSLContext:
    """Make a context for clients' connections.

    Raises StartError if the files or the cipher list cannot be used.
    """
    context = context_for(ssl.PROTOCOL_TLS_SERVER, store, ciphers)
    context.set_alpn_protocols(["http/1.1"])
    return context


def context_for(side: ssl._SSLMethod, store: KeyStore, ciphers: str) -> ssl.SSLContext:
    """Make a context of TLS 1.2 and newer that shows the certificate of `store`.

    Raises StartError if the files or the cipher list cannot be used.
    """
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        raise StartError(f"CipherList = {ciphers}: OpenSSL knows no such cipher") from None
    try:
        context.load_cert_chain(store.chain, store.key, password=lambda: b"")
    except ssl.SSLError as error:
        raise StartError(
            f"Cannot use {_named(store)} for TLS: it needs a certificate chain and the key that "
            f"belongs to it, without a password ({error.reason or 'not PEM'})"
        ) from None
    except OSError as error:
        raise StartError(f"Cannot read the KeyStore {_named(store)}: {error.strerror}") from None
    return context


def _named(store: KeyStore) -> str:
    return str(store.chain) if store.key is None else f"{store.chain} and {store.key}"


async def shake_hands(
    sock: socket.socket, context: ssl.SSLContext, *, server_side: bool = True
) -> ssl.SSLSocket:
    """Perform the TLS handshake as one side. Takes over `sock` and closes it on failure.

    Raises OSError (of which ssl.SSLError is a subclass) if the handshake fails.
    """
    try:
        encrypted = context.wrap_socket(
            sock, server_side=server_side, do_handshake_on_connect=False
        )
    except BaseException:
        sock.close()
        raise
    try:
        while True:
            try:
                encrypted.do_handshake()
                return encrypted
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(encrypted)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(encrypted)
    except BaseException:
        encrypted.close()
        raise


def say_goodbye(sock: ssl.SSLSocket) -> None:
    """Send `close_notify` (RFC 8446, section 6.1) if that needs no waiting.

    It shows the other side that nothing was cut off. Its answer is not awaited, and a broken
    connection needs none.
    """
    with suppress(OSError, ValueError):
        sock.unwrap()
