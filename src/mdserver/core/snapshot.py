"""The snapshot of a subject: what its retained messages add up to.

Its content is the latest one; its fields are the union of all, each with its latest value
(features: "Snapshot"). Messages that are not retained leave it alone.
"""

import msgspec

from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType


def fields_bytes(fields: dict[str, str] | None) -> int:
    """The size of names and values, in UTF-8 bytes.

    Raises UnicodeEncodeError where a text has half of a surrogate pair.
    """
    if not fields:
        return 0
    return sum(len(name.encode()) + len(value.encode()) for name, value in fields.items())


class Snapshot:
    """The sum of the retained messages of one subject; `bytes` is the size of its parts."""

    __slots__ = ("_delivery", "bytes", "fields", "latest")

    def __init__(self, entry: Entry) -> None:
        publication = entry.publication
        self.latest = entry
        self.fields = publication.fields
        self.bytes = len(publication.content) + fields_bytes(publication.fields)
        self._delivery: Delivery | None = None

    def apply(self, entry: Entry) -> None:
        """Take the next retained message in."""
        publication = entry.publication
        self._delivery = None
        if publication.fields is None:
            self.bytes += len(publication.content) - len(self.latest.publication.content)
        else:
            # A new dict: the old one may be shared with a delivery that is still on its way.
            self.fields = (
                publication.fields
                if self.fields is None or self.fields.keys() == publication.fields.keys()
                else {**self.fields, **publication.fields}
            )
            self.bytes = len(publication.content) + fields_bytes(self.fields)
        self.latest = entry

    def entry(self) -> Entry:
        """The snapshot as one message, at the position of the latest retained one."""
        latest = self.latest
        if self.fields == latest.publication.fields:
            return latest
        publication = msgspec.structs.replace(latest.publication, fields=self.fields)
        return Entry(latest.epoch, latest.seq, publication)

    def delivery(self, match: str | None = None) -> Delivery:
        """The snapshot for a subscriber; the same object for all without a pattern."""
        if match is not None:
            return Delivery(self.entry(), MessageType.SNAPSHOT, match)
        if self._delivery is None:
            self._delivery = Delivery(self.entry(), MessageType.SNAPSHOT)
        return self._delivery
