"""What a seed writes down of its logs, so that they are there again after its restart.

Records of a group follow its log in the order of their writing: `Held` says what the log is from a
place on, `Added` what came after its end, `Learned` how much is committed. Read again they give the
same logs, committed up to the last `Learned`; what lies beyond it is learned anew. Records before a
group's first `Held` that says all of its log mean nothing. `Begun` and `Ended` are for the driver,
which decides by them whether what it found can be relied on (docs/operations.md).
"""

from collections.abc import Sequence

import msgspec
from attrs import frozen

from mdserver.cluster.log import Run
from mdserver.cluster.messages import State
from mdserver.core.cache import GroupImage
from mdserver.core.message import Entry
from mdserver.core.outputs import ClusterOutput


class Noted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all records."""


class Begun(Noted, frozen=True, tag=1):
    """A member started to write. `boot` names the run of its machine, `synced`: acks waited.

    `seeds` are the cluster's, in their order; earlier versions left them out.
    """

    member: str
    cluster: str
    groups: int
    incarnation: int
    boot: str
    synced: bool
    seeds: list[str] = []


class Ended(Noted, frozen=True, tag=2):
    """It stopped, and all that it had written was on the disk."""


class Renewed(Noted, frozen=True, tag=3):
    """All groups have this history id from here on, and keep what they hold."""

    history: str


class Held(Noted, frozen=True, tag=4):
    """The log of a group from `start` on, after `state` or after what stood there already.

    `normal`: the seed votes in the group.
    """

    group: int
    epoch: int
    history: str
    start: int
    entries: list[Entry]
    runs: list[Run]
    committed: int
    normal: bool
    state: State | None


class Unencoded(msgspec.Struct, frozen=True, array_like=True):
    """A `State` whose cache is not encoded yet; its objects do not change any more."""

    tables: msgspec.Raw
    cache: GroupImage


class Image(Noted, frozen=True, tag=4):
    """A `Held` whose state may be long, so that the driver encodes it piece by piece."""

    group: int
    epoch: int
    history: str
    start: int
    entries: list[Entry]
    runs: list[Run]
    committed: int
    normal: bool
    state: Unencoded


class Added(Noted, frozen=True, tag=5):
    """Entries were added to a group's log at its end, `start`."""

    group: int
    start: int
    entries: list[Entry]
    runs: list[Run]


class Learned(Noted, frozen=True, tag=6):
    """So many entries of a group are committed, and every one of them was handed on."""

    group: int
    length: int


class Resumed(Noted, frozen=True, tag=9):
    """Records were left out before this one.

    Those of a group that follow mean nothing until its next `Held` that says all of its log.
    """


AnyRecord = Begun | Ended | Renewed | Held | Added | Learned | Resumed


@frozen
class Record(ClusterOutput):
    """Write these records in order; answered by `Recorded`."""

    request: int
    records: Sequence[AnyRecord | Image]


@frozen
class Recorded:
    """The records of this request, and of all before it, are on the disk."""

    request: int


@frozen
class Picture:
    """Write down all that is held of these groups, so that older records of them can go."""

    groups: Sequence[int]


@frozen
class Conclude:
    """The member ends: write down how much is committed by now."""
