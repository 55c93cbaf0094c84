"""What publishers and subscribers saw, in the order in which they saw it.

The simulator and the chaos runs with real processes both write these; `simulation.checker` reads
them; `line_of` and `event_of` turn them into lines of JSON and back. Times are nanoseconds of one
clock that all clients of a history share. A publication is named by any text that stands for it
alone; a message carries that text (as its content, for example).
"""

import json

import msgspec
from attrs import asdict, frozen


@frozen
class Published:
    """A publisher handed a publication to its client, for the first time.

    Without `once` it is not numbered: its repeats cannot be told from it, and may have places too.
    """

    at: int
    publication: str
    subject: str
    publisher: str = ""
    number: int = 0
    once: bool = True


@frozen
class Acked:
    """PUBLISH_OK; `epoch` 0: the number was taken so long ago that its place is forgotten."""

    at: int
    publication: str
    subject: str
    history: str
    epoch: int
    seq: int


@frozen
class Refused:
    """The publisher gave up after PUBLISH_FAILED; `certain`: surely never taken."""

    at: int
    publication: str
    certain: bool


@frozen
class Subscribed:
    """A client subscribes without a position: it knows nothing of the subject any more.

    Up to `gone` messages were removed before the member had them, so its snapshot may be older.
    """

    at: int
    client: str
    subject: str
    gone: int = 0


@frozen
class Confirmed:
    """A client's subscription was confirmed, and it had no message of this very subject yet.

    From here on it misses nothing without being told. `seq` of `history` is where the subject stood
    by what the client knows, 0 if it knows nothing of that.
    """

    at: int
    client: str
    subject: str
    history: str = ""
    seq: int = 0


@frozen
class Delivered:
    """A message reached an application; duplicates by position are dropped before that.

    A `conflated` one stands for those before it as well. `anew`: the member says that nothing lies
    between it and the one before, however great the step.
    """

    at: int
    client: str
    publication: str
    subject: str
    history: str
    epoch: int
    seq: int
    snapshot: bool = False
    conflated: bool = False
    anew: bool = False


@frozen
class Gap:
    """DATA_RESYNC: the client was told that messages up to `seq` are missing."""

    at: int
    client: str
    subject: str
    seq: int


@frozen
class Reset:
    """The client was told of a new history id."""

    at: int
    client: str
    subject: str
    history: str


@frozen
class Settled:
    """At the end, the client was subscribed to the subject and had time to catch up."""

    at: int
    client: str
    subject: str


Event = Published | Acked | Refused | Subscribed | Confirmed | Delivered | Gap | Reset | Settled

KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (Published, Acked, Refused, Subscribed, Confirmed, Delivered, Gap, Reset, Settled)
}


def line_of(event: Event) -> str:
    """An event as a line of JSON: its fields, and under "event" what it is."""
    return json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"


def event_of(line: str) -> Event:
    """The event of such a line. Raises ValueError for what is none."""
    values = json.loads(line)
    kind = KINDS.get(values.pop("event", "")) if isinstance(values, dict) else None
    if kind is None:
        raise ValueError(f"no event of a history: {line.strip()[:100]}")
    return msgspec.convert(values, kind)
