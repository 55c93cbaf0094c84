"""Peer links: the handshake that proves the password, and the messages of the cluster.

The handshake has three rounds:

1. Both sides send a GREETING with their address and a nonce.
2. Each sends a PROOF that it knows `ClusterPassword`, the dialer first. It is an HMAC (RFC 2104)
   over both greetings, the sender's role, and what is unique to the TLS connection under the link.
   So a proof is of no use on another link, nor when it is sent back, and nobody can stand between
   the two sides. The password itself is never sent.
3. Each sends its TERMS, the parameters that have to agree, but not before the other side's proof is
   verified: a stranger learns nothing of the cluster.

Each of these frames is valid once, in its place; only a REFUSAL, which ends the handshake, may come
at any time. After the TERMS of the other side the link carries messages in MessagePack
(docs/cluster.md, "Peer links").
"""

import enum
import hashlib
import hmac
import re
from typing import TypeVar

import msgspec

from mdserver.cluster.messages import AnyPeerMessage
from mdserver.codec.frames import Frame, FrameReader, frame
from mdserver.core.text import safe_text
from mdserver.errors import RemoteProtocolError
from mdserver.limits import (
    PEER_FRAME_BYTES_MAX,
    PEER_GREETING_BYTES_MAX,
    PEER_MESSAGE_BYTES_MAX,
)

PEER_PROTOCOL = 2
NONCE_BYTES = 32

GREETING = 0x01
PROOF = 0x02
REFUSAL = 0x03
TERMS = 0x04
MESSAGE = 0x10
PART = 0x11
TLS_HANDSHAKE = b"\x16"  # RFC 8446, 5.1: how the first record of a TLS connection begins

UNPROVEN = b"refused"
_NAME = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,270}")

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(AnyPeerMessage)


class Greeting(msgspec.Struct, frozen=True):
    """The name of a side. `protocol` has to be the same on both sides."""

    member: str
    nonce: bytes
    protocol: int = PEER_PROTOCOL


class Terms(msgspec.Struct, frozen=True):
    """The parameters that have to be the same on both sides, sent only after a valid proof."""

    groups: int
    seeds: list[str]
    mode: str


class RefusedError(RemoteProtocolError):
    """The other side refused the link, and said why."""


class Side(enum.Enum):
    """The role of a side, which is part of its proof, so that a proof cannot be sent back."""

    DIALER = b"dialer"
    LISTENER = b"listener"


class Handshake:
    """One side's part in the opening of a link, without I/O.

    `begin` returns what to send first; `feed` takes what came and returns what to send. The other
    side has proved that it is a member once `proven`; the link is open once `done`. Raises
    RemoteProtocolError if the other side is no member of this cluster; a `refusal` then tells it
    so. Messages may follow the last terms at once: they are `early`, and `reader` goes on from
    there. `expected` is the address that was dialed; `binding` is the channel binding of an
    encrypted connection, empty for a plain one.
    """

    def __init__(
        self,
        side: Side,
        greeting: Greeting,
        terms: Terms,
        password: str,
        expected: str = "",
        binding: bytes = b"",
    ) -> None:
        self._side = side
        self._own = greeting
        self._terms = terms
        self._key = password.encode()
        self._expected = expected
        self._binding = binding
        self._theirs: Greeting | None = None
        self._theirs_sent = b""
        self.reader = FrameReader(
            frozenset((GREETING, PROOF, REFUSAL, TERMS, MESSAGE, PART)), PEER_FRAME_BYTES_MAX
        )
        self.early: list[Frame] = []
        self.proven = False
        self.done = False

    @property
    def peer(self) -> str:
        """The address of the other member."""
        assert self._theirs is not None
        return self._theirs.member

    def begin(self) -> bytes:
        """Return this side's greeting."""
        return frame(GREETING, _encode(self._own))

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the other side, and return what to send to it.

        Raises RemoteProtocolError.
        """
        if self._theirs is None and not self.reader.pending and data[:1] == TLS_HANDSHAKE:
            raise RemoteProtocolError(
                "the other member's links are encrypted: ClusterMemberKeyStore is not set at "
                f"{self._own.member}"
            )
        answer = b""
        for kind, payload in self.reader.feed(data):
            if self.done:
                self.early.append((kind, payload))
            else:
                if len(payload) > PEER_GREETING_BYTES_MAX:
                    raise RemoteProtocolError("a greeting is too long")
                answer += self._take(kind, payload)
        if not self.done and self.reader.pending > PEER_GREETING_BYTES_MAX:
            raise RemoteProtocolError("a greeting is too long")
        return answer

    def _take(self, kind: int, payload: bytes) -> bytes:
        """Take one frame of the handshake, and return what to send in answer."""
        if kind == REFUSAL:
            if payload == UNPROVEN and self._theirs is not None and self._side is Side.DIALER:
                raise RefusedError(
                    "the other member refused the proof: ClusterPassword differs between the two "
                    "members"
                )
            text = safe_text(payload.decode(errors="replace"), 500)
            raise RefusedError(f"the other member refused the link: {text}")
        if kind == GREETING and self._theirs is None:
            self._theirs = decoded(payload, Greeting)
            self._theirs_sent = payload
            self._compare(self._theirs)
            return self._proof(self._side) if self._side is Side.DIALER else b""
        if kind == PROOF and self._theirs is not None and not self.proven:
            other = Side.LISTENER if self._side is Side.DIALER else Side.DIALER
            if not hmac.compare_digest(frame(PROOF, payload), self._proof(other)):
                between = ", or somebody stands between them" if self._binding else ""
                raise RemoteProtocolError(
                    f"ClusterPassword differs between the two members{between}"
                )
            self.proven = True
            terms = frame(TERMS, _encode(self._terms))
            return self._proof(self._side) + terms if self._side is Side.LISTENER else terms
        if kind == TERMS and self.proven:
            self._agree(decoded(payload, Terms))
            self.done = True
            return b""
        raise RemoteProtocolError(f"a frame of type {kind} is out of place in the handshake")

    def _compare(self, theirs: Greeting) -> None:
        if not _NAME.fullmatch(theirs.member):
            raise RemoteProtocolError("a member's name is its address, host:port")
        self._same("protocol", self._own.protocol, theirs.protocol)
        if theirs.member == self._own.member:
            raise RemoteProtocolError(f"both members are called {theirs.member}")
        if self._expected and theirs.member != self._expected:
            raise RemoteProtocolError(
                f"{self._expected} was called, and {theirs.member} answered: its "
                "ClusterMemberListen is not the address by which others know it"
            )
        if len(theirs.nonce) != NONCE_BYTES:
            raise RemoteProtocolError(f"a nonce has {NONCE_BYTES} bytes")

    def _agree(self, theirs: Terms) -> None:
        for name in ("mode", "groups", "seeds"):
            self._same(name, getattr(self._terms, name), getattr(theirs, name))

    def _same(self, name: str, ours: object, other: object) -> None:
        if ours != other:
            raise RemoteProtocolError(
                f"{PARAMETER_NAMES[name]} is {safe_text(repr(other), 500)} at {self.peer} and "
                f"{ours!r} at {self._own.member}"
            )

    def _proof(self, side: Side) -> bytes:
        # The greeting as it came: one of a later version may have fields that are not known here,
        # and the proof of its sender covers them.
        ours, theirs = _encode(self._own), self._theirs_sent
        first, second = (ours, theirs) if self._side is Side.DIALER else (theirs, ours)
        text = b"mdserver peer %s %d %s %d %s %s" % (
            side.value,
            len(first),
            first,
            len(second),
            second,
            self._binding,
        )
        return frame(PROOF, hmac.new(self._key, text, hashlib.sha256).digest())


PARAMETER_NAMES = {
    "protocol": "the version of the peer protocol",
    "groups": "ClusterSubjectGroups",
    "seeds": "the list of seeds",
    "mode": "ClusterDeliveryMode",
}


def decoded(payload: bytes, type_: type[T]) -> T:
    """Return the value of this type that is in `payload`. Raises RemoteProtocolError."""
    try:
        return msgspec.msgpack.decode(payload, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a greeting cannot be understood: {error}") from None


def refusal(error: RemoteProtocolError, *, proven: bool) -> bytes:
    """Return the frame that refuses the other side, with the reason if it has proved itself.

    A side that has not is only told that it is refused, so that a stranger learns nothing.
    """
    return frame(REFUSAL, error.reason.encode()[:500] if proven else UNPROVEN)


def message_frame(message: AnyPeerMessage, bytes_max: int = PEER_FRAME_BYTES_MAX) -> bytes:
    """Return a message as one frame, the same for every member that it goes to.

    If it is too large for one, it becomes several PART frames, and a MESSAGE with its end.
    """
    data = _encode(message)
    if len(data) <= bytes_max:
        return frame(MESSAGE, data)
    last = (len(data) - 1) // bytes_max * bytes_max
    parts = [frame(PART, data[at : at + bytes_max]) for at in range(0, last, bytes_max)]
    return b"".join([*parts, frame(MESSAGE, data[last:])])


class MessageAssembler:
    """Puts the messages of one link together from its frames."""

    def __init__(self, bytes_max: int = PEER_MESSAGE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, frames: list[Frame]) -> list[AnyPeerMessage]:
        """Return the messages that are complete with these frames.

        Raises RemoteProtocolError for another kind of frame, a message that is too long, and one
        that cannot be decoded.
        """
        found: list[AnyPeerMessage] = []
        for kind, payload in frames:
            if kind not in (MESSAGE, PART):
                raise RemoteProtocolError("the handshake is over")
            self._size += len(payload)
            if self._size > self._bytes_max:
                raise RemoteProtocolError(f"a message is longer than {self._bytes_max} bytes")
            if kind == PART:
                self._parts.append(payload)
                continue
            found.append(_decoded(b"".join([*self._parts, payload]) if self._parts else payload))
            self._parts, self._size = [], 0
        return found


def messages(frames: list[Frame]) -> list[AnyPeerMessage]:
    """Return the messages in frames that hold whole ones. Raises RemoteProtocolError."""
    return MessageAssembler().take(frames)


def _decoded(payload: bytes) -> AnyPeerMessage:
    try:
        message: AnyPeerMessage = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a message of a member cannot be understood: {error}") from None
    return message
