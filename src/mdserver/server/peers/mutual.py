"""TLS between members: each side shows a certificate of the cluster's own authority.

Which member the other side is, its greeting says and its proof shows (`codec/peer.py`). The names
in a certificate do not matter: they would bind addresses that `ClusterMembers` already lists.
"""

import socket
import ssl
from pathlib import Path

import trio

from mdserver.codec.peer import TLS_HANDSHAKE, Side
from mdserver.errors import StartError
from mdserver.server.tls import CIPHERS, KeyStore, context_for, shake_hands

_ALERT = "_ALERT_"


class MutualIdentity:
    """A member's certificate, and the authority that others' have to be of."""

    def __init__(self, store: KeyStore, authority: Path, ciphers: str = CIPHERS) -> None:
        """Read the files. Raises StartError if they cannot be used."""
        self._store = store
        self._authority = authority
        self._ciphers = ciphers
        self.contexts = self._read()

    def reload(self) -> None:
        """Read the files again, for new links; StartError, and nothing changes."""
        self.contexts = self._read()

    def _read(self) -> dict[Side, ssl.SSLContext]:
        return {
            Side.DIALER: self._context(ssl.PROTOCOL_TLS_CLIENT),
            Side.LISTENER: self._context(ssl.PROTOCOL_TLS_SERVER),
        }

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
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
        """Shake hands as one side; takes over `sock`, and closes it if that fails.

        Raises OSError if the other side does not do its part; `broken` says what is wrong.
        """
        return await shake_hands(sock, self.contexts[side], server_side=side is Side.LISTENER)


async def begins_with_tls(sock: socket.socket) -> bool:
    """Return whether what comes first, and stays unread, is TLS; True at the end of a stream."""
    await trio.lowlevel.wait_readable(sock)
    return sock.recv(1, socket.MSG_PEEK) in (TLS_HANDSHAKE, b"")


def binding_of(sock: socket.socket) -> bytes:
    """Return what is unique to an encrypted connection, for both sides; empty for a plain one.

    `tls-unique` (RFC 5929, 3) is the Finished message of the dialer, with TLS 1.3 as well: a keyed
    hash over the whole hand-shake (RFC 8446, 4.4.4). Links are never resumed, so that what made
    it unsafe there does not arise.
    """
    return sock.get_channel_binding() or b"" if isinstance(sock, ssl.SSLSocket) else b""


def broken(error: OSError) -> str:
    """Say in one line what ended a connection of two members."""
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
