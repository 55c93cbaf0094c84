"""Which record of a Kafka topic is which publication, and the other way round.

A subject `/topic/rest/of/key` is the key `rest/of/key` of the topic `topic`, and `/topic` is its
records without a key. A record becomes a publication like this:

- its value is the content; a record without a value (a tombstone) deletes the subject's snapshot;
- its headers are the fields, except those that begin with `md-`: they hold what Kafka has no place
  for (`HEADERS`), and are left out by producers that do not know mdserver;
- its time is that of the record.

Kafka keeps order within a partition only, so a subject has its order in one partition: the one that
the partitioner chooses for the key, and partition 0 without a key (`Partitioner`). A record that
another producer put into another partition is a *stray*: it has no place in the order of its
subject. It is delivered without a position, as a STANDARD message, and not cached.

A *poison* record cannot become a publication: its key is no UTF-8, the subject would be invalid, it
is too large for clients, or its decoder failed. It is counted and passed over.
"""

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import msgspec
from attrs import frozen

from mdserver.core.message import Publication, Qos
from mdserver.core.snapshot import fields_bytes
from mdserver.core.subjects import RESERVED, group_of, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import KAFKA_KEYS_KNOWN_MAX, NS_PER_MS

OWN = "md-"
"""The beginning of the names of headers that are no fields."""
ID = "md-id"
RETAINED = "md-retained"
QOS = "md-qos"
ENCODING = "md-enc"
CLOSURE = "md-closure"
COMPRESSED = "md-compressed"
REPLY = "md-reply"
HEADERS = {
    ID: "number of a numbered publication, checksum of its subject, and publisher",
    RETAINED: "`0`: the message leaves the snapshot alone",
    QOS: "`STANDARD`: at most once",
    ENCODING: "`binary`: the value is no text",
    CLOSURE: "the publisher's name for the message",
    COMPRESSED: "`1`: the publisher compressed the content",
    REPLY: "the subject to which replies go",
}

Headers = Sequence[tuple[str, bytes | None]]


class KafkaRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as the consumer read it; `time` is its timestamp in ns since the Unix epoch.

    `leader_epoch` counts the leaders of the partition, up to the one that wrote the record.

    A decoder may have made its value: `text` says what it made of it, None without a decoder, and
    `fields` stand beside those of the headers. `poison` says why it could make nothing of it.
    """

    topic: str
    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    text: bool | None = None
    fields: dict[str, str] | None = None
    poison: str | None = None
    leader_epoch: int = 0


class ProducedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record for the producer; `ticket` names it in the report of its delivery."""

    ticket: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    time_ms: int


class PoisonError(Exception):
    """A record cannot become a publication; the message says why."""


@frozen
class KeyPlace:
    """Where the order of a subject is: its topic and key, its partition, and its subject group."""

    subject: str
    topic: str
    key: bytes | None
    partition: int
    group: int
    check: str
    """Binds `md-id` to the subject: a service may copy the headers of what it reads."""


# Partitioners


def murmur2(key: bytes) -> int:
    """Return the hash by which Java producers choose partitions (`Utils.murmur2` of Kafka)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(key)
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(key[at : at + 4], "little") * m) & mask
        k ^= k >> 24
        h = ((h * m) & mask) ^ ((k * m) & mask)
    if length > whole:
        h ^= int.from_bytes(key[whole:], "little")
        h = (h * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    return h ^ (h >> 15)


def _java(key: bytes) -> int:
    """Return what Java producers take modulo the number of partitions; it is never negative."""
    return murmur2(key) & 0x7FFFFFFF


PARTITIONERS: dict[str, Callable[[bytes], int]] = {
    "murmur2_random": _java,
    "murmur2": _java,
    "consistent_random": crc32,
    "consistent": crc32,
}
"""The partitioners of librdkafka under which the partition of a key can be computed."""


# Subjects


def split(subject: str) -> tuple[str, bytes | None]:
    """Return topic and key of a valid subject."""
    topic, slash, key = subject[1:].partition("/")
    return topic, key.encode() if slash else None


def joined(topic: str, key: bytes | None) -> str:
    """Return the subject of a topic's key. Raises PoisonError if that is no subject."""
    if key is None:
        subject = f"/{topic}"
    else:
        try:
            subject = f"/{topic}/{key.decode()}"
        except UnicodeDecodeError:
            raise PoisonError("the key is no UTF-8") from None
    try:
        validate_subject(subject, 1)
    except InvalidSubjectError as error:
        raise PoisonError(str(error)) from None
    if topic == RESERVED:
        raise PoisonError("topics of this name are the server's own")
    return subject


class Places:
    """The places of keys, of which the latest ones are remembered.

    `partitions` has the number of partitions of each topic; it is shared with its owner, who calls
    `forget` after a change.
    """

    def __init__(self, partitions: dict[str, int], partitioner: str, groups: int) -> None:
        self._partitions = partitions
        self._hash = PARTITIONERS[partitioner]
        self._groups = groups
        self._known: dict[tuple[str, bytes | None], KeyPlace] = {}

    def forget(self) -> None:
        """Forget all places: the number of partitions of a topic changed."""
        self._known.clear()

    def of(self, topic: str, key: bytes | None) -> KeyPlace:
        """Return the place of a key in a topic that is consumed. Raises PoisonError."""
        place = self._known.get((topic, key))
        if place is None:
            subject = joined(topic, key)
            home = 0 if key is None else self._hash(key) % self._partitions[topic]
            group = group_of(subject, self._groups)
            place = KeyPlace(subject, topic, key, home, group, f"{crc32(subject.encode()):08x}")
            if len(self._known) >= KAFKA_KEYS_KNOWN_MAX:
                self._known.clear()
            self._known[topic, key] = place
        return place


# Records and publications


def headers_of(message: Any) -> Headers | None:
    """Return the headers of a record as the consumer gave it.

    Raises PoisonError if one has a name that is no UTF-8, which brokers do not check.
    """
    try:
        found: Headers | None = message.headers()
    except (UnicodeDecodeError, SystemError):  # what the wrapper of librdkafka raises
        raise PoisonError("a header has a name that is no UTF-8") from None
    return found


def publication(
    record: KafkaRecord, place: KeyPlace, bytes_max: int, *, stray: bool
) -> Publication:
    """Return what a record says about the subject of its key. Raises PoisonError.

    `bytes_max` bounds content and fields together. A `stray` has no place in its subject's order.
    """
    if record.poison is not None:
        raise PoisonError(record.poison)
    value = record.value
    content = b"" if value is None else value
    fields: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, raw in record.headers or ():
        try:
            text = (raw or b"").decode()
        except UnicodeDecodeError:
            continue  # Fields are text, so bytes of another application are no field.
        (own if name.startswith(OWN) else fields)[name] = text
    if record.fields is not None:
        fields |= record.fields
    size = len(content) + fields_bytes(fields)
    if size > bytes_max:
        raise PoisonError(f"{size} bytes: MaxMessageSize allows {bytes_max}")
    publisher, number = _identity(own.get(ID), place.check)
    standard = stray or own.get(QOS) == Qos.STANDARD.value
    return Publication(
        place.subject,
        content,
        own.get(ENCODING) != "binary" and _is_text(content) if record.text is None else record.text,
        fields or None,
        own.get(CLOSURE),
        value is not None and own.get(RETAINED) != "0",
        Qos.STANDARD if standard else Qos.GUARANTEED,
        own.get(COMPRESSED) == "1",
        own.get(REPLY),
        publisher,
        number,
        record.time,
    )


def _identity(text: str | None, check: str) -> tuple[str, int]:
    """Return publisher and number of a header.

    Neither if it is nonsense, or was copied from a record of another subject.
    """
    number, _, rest = (text or "").partition(" ")
    bound, _, publisher = rest.partition(" ")
    if (
        bound == check
        and publisher
        and number.isascii()
        and number.isdigit()
        and len(number) <= 18
        and int(number)
    ):
        return publisher, int(number)
    return "", 0


def _is_text(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def record_of(ticket: int, place: KeyPlace, published: Publication) -> ProducedRecord:
    """Return the record of a publication. Raises PoisonError if a field has a name of `HEADERS`."""
    headers: list[tuple[str, bytes]] = []
    if published.fields is not None:
        for name, value in published.fields.items():
            if name.startswith(OWN):
                raise PoisonError(f"fields that begin with `{OWN}` are the server's own")
            headers.append((name, value.encode()))
    if published.number:
        headers.append((ID, f"{published.number} {place.check} {published.publisher}".encode()))
    if not published.retained:
        headers.append((RETAINED, b"0"))
    if published.qos is Qos.STANDARD:
        headers.append((QOS, b"STANDARD"))
    if not published.text:
        headers.append((ENCODING, b"binary"))
    if published.closure is not None:
        headers.append((CLOSURE, published.closure.encode()))
    if published.compressed:
        headers.append((COMPRESSED, b"1"))
    if published.reply_subject is not None:
        headers.append((REPLY, published.reply_subject.encode()))
    return ProducedRecord(
        ticket,
        place.topic,
        place.partition,
        place.key,
        published.content,
        headers,
        published.time // NS_PER_MS,
    )


def size_of(record: ProducedRecord) -> int:
    """Return the bytes of a record that the producer keeps until it is acknowledged."""
    size = len(record.value) + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value)
    return size
