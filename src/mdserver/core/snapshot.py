"""The snapshot of a subject: the sum of its retained messages.

Its content is the latest one; its fields are the union of all, each with its latest value
(features: "Snapshot"). Messages that are not retained leave it alone.

The union is bounded by the number of names and by bytes. A member refuses a publication with which
the union would exceed a bound; what this member has proposed and is not committed yet counts too
(`ProposedFields`). Several members may still propose too much together. So there is a second rule,
which depends on the log alone and is therefore the same on all members: a snapshot that would
exceed a bound begins anew with the message that is applied.
"""

import msgspec
from attrs import frozen

from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType


def fields_bytes(fields: dict[str, str] | None) -> int:
    """Return the size of all names and values, in UTF-8 bytes.

    Raises UnicodeEncodeError if a text has half of a surrogate pair.
    """
    if not fields:
        return 0
    return sum(len(name.encode()) + len(value.encode()) for name, value in fields.items())


@frozen
class Bounds:
    """The bounds of a snapshot: how many fields, and how many bytes of their names and values."""

    fields_max: int
    bytes_max: int


def growth(before: dict[str, str], fields: dict[str, str]) -> tuple[int, int]:
    """Return how many names and bytes the fields `before` gain with `fields`."""
    names = size = 0
    for name, value in fields.items():
        old = before.get(name)
        if old is None:
            names += 1
            size += len(name.encode()) + len(value.encode())
        else:
            size += len(value.encode()) - len(old.encode())
    return names, size


class ProposedFields:
    """The fields of a snapshot as they will be when everything proposed here is committed.

    `count` is how many publications with fields have no result yet. After the last result the cache
    drops this object, and only the committed snapshot counts. Until then it may hold fields of
    publications that failed, which errs on the safe side.
    """

    __slots__ = ("bytes", "count", "fields")

    def __init__(self, snapshot: "Snapshot | None") -> None:
        self.fields = {} if snapshot is None else dict(snapshot.fields or {})
        self.bytes = 0 if snapshot is None else snapshot.fields_bytes
        self.count = 0

    def take(self, fields: dict[str, str], bounds: Bounds) -> str | None:
        """Count a publication in, or return the bound that it would break."""
        more, size = growth(self.fields, fields)
        names = len(self.fields) + more
        if names > bounds.fields_max:
            return f"{names} fields: at most {bounds.fields_max} are allowed"
        if self.bytes + size > bounds.bytes_max:
            return f"fields of {self.bytes + size} bytes: at most {bounds.bytes_max} are allowed"
        self.fields.update(fields)
        self.bytes += size
        self.count += 1
        return None

    def note(self, fields: dict[str, str]) -> None:
        """Count in the names of a committed publication, which another member may have proposed."""
        for name, value in fields.items():
            if name not in self.fields:
                self.fields[name] = value
                self.bytes += len(name.encode()) + len(value.encode())


class Snapshot:
    """The sum of the retained messages of one subject; `bytes` is the size of its parts."""

    __slots__ = ("_delivery", "bytes", "fields", "fields_bytes", "latest")

    def __init__(self, entry: Entry) -> None:
        publication = entry.publication
        self.latest = entry
        self.fields = publication.fields
        self.fields_bytes = fields_bytes(publication.fields)
        self.bytes = len(publication.content) + self.fields_bytes
        self._delivery: Delivery | None = None

    def apply(self, entry: Entry, bounds: Bounds) -> None:
        """Add the next retained message; if a bound would be exceeded, the fields begin anew."""
        publication = entry.publication
        self._delivery = None
        if publication.fields is not None:
            self._add(publication.fields, bounds)
        self.bytes = len(publication.content) + self.fields_bytes
        self.latest = entry

    def _add(self, fields: dict[str, str], bounds: Bounds) -> None:
        before = self.fields
        if before is None or before.keys() == fields.keys():
            self.fields, self.fields_bytes = fields, fields_bytes(fields)
            return
        names, size = growth(before, fields)
        if len(before) + names > bounds.fields_max or self.fields_bytes + size > bounds.bytes_max:
            # Only the log and the configuration may decide here. With anything else, such as what
            # this member has proposed, the snapshots of members would differ.
            self.fields, self.fields_bytes = fields, fields_bytes(fields)
            return
        # A new dict: the old one may be shared with a delivery that is still on its way.
        self.fields = {**before, **fields}
        self.fields_bytes += size

    def entry(self) -> Entry:
        """Return the snapshot as one message, at the position of the latest retained one."""
        latest = self.latest
        if self.fields == latest.publication.fields:
            return latest
        publication = msgspec.structs.replace(latest.publication, fields=self.fields)
        return Entry(latest.epoch, latest.seq, publication, latest.place)

    def delivery(self, match: str | None = None) -> Delivery:
        """Return the snapshot for a subscriber; the same object for all without a pattern."""
        if match is not None:
            return Delivery(self.entry(), MessageType.SNAPSHOT, match)
        if self._delivery is None:
            self._delivery = Delivery(self.entry(), MessageType.SNAPSHOT)
        return self._delivery
