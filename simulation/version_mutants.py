"""Deliberate bugs that show only beside members of another version."""

from collections.abc import Callable
from typing import Any

import msgspec

from mdserver.cluster import votes
from mdserver.cluster.messages import Ack, AckItem, AnyPeerMessage
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.codec import peer
from mdserver.codec.frames import frame
from mdserver.codec.peer import MESSAGE
from simulation import profiles
from simulation.mutant import Mutant, stored

NOTHING = b""
"""What no reader takes: it is refused by the reader itself, in its own words."""


def a_field_before_others(original: Callable[[AnyPeerMessage], bytes]) -> Any:
    """An ack has a new field before its length; members of this version know that."""

    def message_frame(message: AnyPeerMessage, *more: int) -> bytes:
        if not isinstance(message, Ack):
            return original(message, *more)
        items = [
            [item.group, item.epoch, message.incarnation, item.length] for item in message.items
        ]
        return frame(MESSAGE, msgspec.msgpack.encode([10, message.incarnation, items]))

    return message_frame


def read_with_a_field_before_others(original: Callable[[bytes], AnyPeerMessage]) -> Any:
    def decoded(payload: bytes) -> AnyPeerMessage:
        read = msgspec.msgpack.decode(payload)
        if read[0] == 10 and all(len(item) == 4 for item in read[2]):
            items = [AckItem(group, epoch, length) for group, epoch, _, length in read[2]]
            return Ack(read[1], items)
        return original(payload)

    return decoded


def refused_with_more(original: Callable[[bytes], AnyPeerMessage]) -> Any:
    def decoded(payload: bytes) -> AnyPeerMessage:
        message = original(payload)
        if len(payload) > len(msgspec.msgpack.encode(message)):
            original(NOTHING)
        return message

    return decoded


def refused_with_less(original: Callable[[bytes], AnyPeerMessage]) -> Any:
    def decoded(payload: bytes) -> AnyPeerMessage:
        message = original(payload)
        if len(payload) < len(msgspec.msgpack.encode(message)):
            original(NOTHING)
        return message

    return decoded


def record_with_more_is_damaged(original: Callable[[bytes], VoteRecord]) -> Any:
    def read(content: bytes) -> VoteRecord:
        record = original(content)
        if set(msgspec.json.decode(content)) - set(VoteRecord.__struct_encode_fields__):
            original(NOTHING)
        return record

    return read


def proof_of_what_is_known(original: Callable[..., bytes]) -> Any:
    """The proof leaves out what is not known of the other side's greeting."""

    def proof(self: peer.Handshake, side: peer.Side) -> bytes:
        self._theirs_sent = msgspec.msgpack.encode(self._theirs)
        return original(self, side)

    return proof


def promises_in_a_new_field(original: Callable[[VoteRecord], bytes]) -> Any:
    """Promises are in a field that the version before does not know, and leaves out."""

    def encode(self: VoteRecord) -> bytes:
        blank = msgspec.structs.replace(self, promised=[Vote()] * len(self.promised))
        known = msgspec.json.decode(original(blank))
        return msgspec.json.encode(known | {"promises": self.promised})

    return encode


def promises_from_a_new_field(original: Callable[[bytes], VoteRecord]) -> Any:
    def read(content: bytes) -> VoteRecord:
        record = original(content)
        found = msgspec.json.decode(content).get("promises")
        if found is not None:
            record.promised = msgspec.convert(found, list[Vote])
        return record

    return read


OF_VERSIONS = (
    Mutant(
        "a new field stands before those that the version before knows",
        (
            (peer, "message_frame", a_field_before_others),
            (peer, "_decoded", read_with_a_field_before_others),
        ),
        profiles.upgrade,
        beside_release=True,
    ),
    Mutant(
        "messages without the newest fields are refused",
        ((peer, "_decoded", refused_with_less),),
        stored("refusals-of-the-version-before"),
        beside_release=True,
    ),
    Mutant(
        "promises are where the version before does not look, and drops them",
        (
            (VoteRecord, "encode", promises_in_a_new_field),
            (votes, "read", promises_from_a_new_field),
        ),
        stored("downgraded-voter"),
        beside_release=True,
    ),
    Mutant(
        "messages with a field that is not known are refused",
        ((peer, "_decoded", refused_with_more),),
        profiles.upgrade_to_the_next,
    ),
    Mutant(
        "a vote record with a field that is not known is damaged",
        ((votes, "read", record_with_more_is_damaged),),
        profiles.upgrade_to_the_next,
    ),
    Mutant(
        "the proof of a link drops what is not known of a greeting",
        ((peer.Handshake, "_proof", proof_of_what_is_known),),
        profiles.upgrade_to_the_next,
    ),
)
