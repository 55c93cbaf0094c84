"""Images: what one member sends another of what it holds, in place of entries of a log.

The image of a group goes with a length of the group's log: it has what the entries up to there left
in the cache, and those behind it follow. Images are values, so they can be encoded later than made.
"""

import msgspec

from mdserver.core.message import NO_FLOOR, Entry, GroupFloor


class SubjectImage(msgspec.Struct, frozen=True, array_like=True):
    """A subject as one member sends it to another; `snapshot` is one message with all fields."""

    subject: str
    epoch: int
    seq: int
    floor: int
    entries: list[Entry]
    snapshot: Entry | None
    dropped: int = 0


class GroupImage(msgspec.Struct, frozen=True, array_like=True):
    """Everything that a member holds of a subject group.

    `floor` stands for the subjects that were forgotten; members of earlier versions leave it out.
    """

    history: str
    subjects: list[SubjectImage]
    floor: GroupFloor = NO_FLOOR


def placed(image: SubjectImage, length: int) -> SubjectImage:
    """Return an image with places, which members of earlier versions leave out.

    Everything in the image is among the first `length` entries of the group's log, so `length` is
    used for a place that is unknown. A place that is too late has a client receive a message twice;
    one that is too early would have it miss one.
    """
    entries = [
        entry if entry.place else msgspec.structs.replace(entry, place=length)
        for entry in image.entries
    ]
    dropped = length if image.floor and not image.dropped else image.dropped
    return msgspec.structs.replace(image, entries=entries, dropped=dropped)
