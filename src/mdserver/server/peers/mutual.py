"""TLS between members: each side shows a certificate that the cluster's own authority signed.

A certificate only shows that the other side belongs to the cluster. Which member it is, it says in
its greeting and proves with the password (`mdserver.codec.peer`). The names in a certificate are
not checked: they would repeat the addresses that `ClusterMembers` lists already.
"""

import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from mdserver.codec.peer import TLS_HANDSHAKE, Side
from mdserver.errors import StartError
from mdserver.server.tls import CIPHERS, KeyStore, context_for, shake_hands

_ALERT = "_ALERT_"


class MutualIdentity:
    """A member's certificate, and the authority that has to have signed those of the others."""

    def __init__(self, store: KeyStore, authority: Path, ciphers: str = CIPHERS) -> None:
        """Read the files. Raises StartError if they cannot be used."""
        self._store = store
        self._authority = authority
        self._ciphers = ciphers
        self.contexts = self._read()

    def read(self) -> Callable[[], None]:
        """Read the files again, for new links; see `mdserver.server.tls.Reloadable`."""
        return partial(setattr, self, "contexts", self._read())

    def _read(self) -> dict[Side, ssl.SSLContext]:
        return {
            Side.DIALER: self._context(ssl.PROTOCOL_TLS_CLIENT),
            Side.LISTENER: self._context(ssl.PROTOCOL_TLS_SERVER),
        }

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        """Make the context of one side, which demands a certificate of the other side."""
        context = context_for(side, self._store, self._ciphers)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        if side is ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # a link is never resumed
        try:
            context.load_verify_locations(self._authority)
        except ssl.SSLError:
            raise StartError(
                f"ClusterMemberCertificateAuthority = {self._authority}: it needs certificates in "
                "PEM"
            ) from None
        except OSError as error:
            raise StartError(f"Cannot read {self._authority}: {error.strerror}") from None
        return context

    async def encrypt(self, sock: socket.socket, side: Side) -> ssl.SSLSocket:
        """Perform the TLS handshake as one side. Takes over `sock` and closes it on failure.

        Raises OSError if the handshake fails; `broken` turns the error into a sentence.
        """
        return await shake_hands(sock, self.contexts[side], server_side=side is Side.LISTENER)


async def begins_with_tls(sock: socket.socket) -> bool:
    """Return whether the first byte is that of a TLS handshake; the byte stays unread.

    Also True at the end of the stream, so that the TLS handshake reports that.
    """
    await trio.lowlevel.wait_readable(sock)
    return sock.recv(1, socket.MSG_PEEK) in (TLS_HANDSHAKE, b"")


def binding_of(sock: socket.socket) -> bytes:
    """Return the channel binding of an encrypted connection, the same for both sides.

    It is empty for a plain connection. `tls-unique` (RFC 5929, section 3) is the Finished message
    of the dialer, with TLS 1.3 as well: a keyed hash over the whole handshake (RFC 8446, section
    4.4.4). It was found unsafe for resumed sessions, and links are never resumed.
    """
    return sock.get_channel_binding() or b"" if isinstance(sock, ssl.SSLSocket) else b""


def broken(error: OSError) -> str:
    """Return in one line what broke a connection between two members."""
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the other member's certificate is refused: {error.verify_message} "
            "(ClusterMemberCertificateAuthority)"
        )
    if _ALERT in reason:
        alert = reason.partition(_ALERT)[2].replace("_", " ").lower()
        return f"the other member ended the TLS hand-shake and says why: {alert}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the other member shows no certificate: it needs a ClusterMemberKeyStore"
    if reason == "WRONG_VERSION_NUMBER":
        return "the other member's links are not encrypted: set its ClusterMemberKeyStore"
    return f"TLS with the other member failed: {reason.replace('_', ' ').lower() or error}"
