"""The versions of the server that the members of one run are of, side by side.

"this" is the code of this tree. "before" is the release before it: its own modules, loaded beside
these, so that whatever such a member says to others, to clients and to its disk is said and
understood by its own code, byte for byte. "next" is this code with one field more at the end of
all that it says to members and to its disk: what a later version may add
(`mdserver.cluster.messages`).
"""

import importlib
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import msgspec

from mdserver.cluster.votes import VoteRecord
from mdserver.codec import peer
from mdserver.codec.frames import Frame, frame
from mdserver.core.message import Entry
from simulation.chaos import releases

VERSIONS = ("before", "this", "next")
ROOMS = (
    "cluster.messages",
    "cluster.node",
    "cluster.settings",
    "cluster.votes",
    "cluster.wal",
    "codec.binary_form",
    "codec.json_form",
    "codec.peer",
    "core.inputs",
    "core.outputs",
    "core.settings",
)
UNPACKED = releases.ROOT / "build" / "releases"
LATER = "later"
"""The name, and the content, of the field that a later version says more."""

_entries = msgspec.msgpack.Decoder(list[Entry])


class Version:
    """The code of this tree, as far as a simulated member is made of it."""

    def __init__(self, name: str, rooms: Mapping[str, ModuleType]) -> None:
        self.name = name
        self.rooms = rooms
        self.node: Any = rooms["cluster.node"].Node
        self.started: Any = rooms["cluster.votes"].started
        self._wal = msgspec.msgpack.Decoder[Any](rooms["cluster.wal"].AnyWalEntry)

    def own(self, kind: type) -> type:
        """Return what this version has as a class of this tree."""
        return kind

    def own_value(self, value: Any) -> Any:
        """Return a value of this tree as one of this version, with the fields that it knows."""
        return value

    def entries(self, entries: Sequence[Any]) -> Sequence[Entry]:
        """Return entries of this version as those of this tree."""
        return entries

    def codec(self, encoding: str) -> Any:
        """Return what speaks to clients in an encoding."""
        if encoding == "json":
            return self.rooms["codec.json_form"].JsonCodec()
        return self.rooms["codec.binary_form"].BinaryCodec()

    # Members

    def frame(self, message: Any) -> bytes:
        """Return a message to members, encoded."""
        encoded: bytes = self.rooms["codec.peer"].message_frame(message)
        return encoded

    def messages(self, frames: list[Frame]) -> list[Any]:
        """Return the messages of members that are in frames. Raises RemoteProtocolError."""
        found: list[Any] = self.rooms["codec.peer"].messages(frames)
        return found

    def handshake(self, *, dials: bool, me: str, nonce: bytes, terms: tuple[Any, ...]) -> Any:
        """Return one side's part in the opening of a link."""
        code = self.rooms["codec.peer"]
        side = code.Side.DIALER if dials else code.Side.LISTENER
        return code.Handshake(side, code.Greeting(me, nonce), code.Terms(*terms), "simulated")

    # The disk

    def record(self, record: bytes) -> bytes:
        """Return a vote record of this version as it is on the disk."""
        return record

    def wal_entry(self, entry: Any) -> bytes:
        """Return an entry of the write-ahead log as it is on the disk."""
        return msgspec.msgpack.encode(entry)

    def wal(self, entries: Iterable[bytes]) -> list[Any]:
        """Return what a disk has of a write-ahead log."""
        return [self._wal.decode(entry) for entry in entries]


class LaterGreeting(peer.Greeting, frozen=True):
    """A greeting that says more."""

    later: str = LATER


class LaterTerms(peer.Terms, frozen=True):
    """Terms that say more."""

    later: str = LATER


class LaterVersion(Version):
    """This code as a later version: whatever it says has one field more at its end."""

    def frame(self, message: Any) -> bytes:
        """Return a message to members, each structure in it one field longer."""
        return frame(peer.MESSAGE, msgspec.msgpack.encode(longer(message)))

    def handshake(self, *, dials: bool, me: str, nonce: bytes, terms: tuple[Any, ...]) -> Any:
        """Return one side's part in the opening of a link, which says more."""
        side = peer.Side.DIALER if dials else peer.Side.LISTENER
        greeting, longer_terms = LaterGreeting(me, nonce), LaterTerms(*terms)
        return peer.Handshake(side, greeting, longer_terms, "simulated")

    def record(self, record: bytes) -> bytes:
        """Return a vote record with one field more."""
        return msgspec.json.encode(longer(msgspec.json.decode(record, type=VoteRecord)))

    def wal_entry(self, entry: Any) -> bytes:
        """Return an entry of the write-ahead log, each structure in it one field longer."""
        return msgspec.msgpack.encode(longer(entry))


def longer(value: Any) -> Any:
    """Return a value in lists and dicts, with one field more at the end of each structure."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        values = [longer(getattr(value, name)) for name in value.__struct_fields__]
        if config.array_like:
            return [*([] if config.tag is None else [config.tag]), *values, LATER]
        return dict(zip(value.__struct_encode_fields__, values, strict=True)) | {LATER: LATER}
    if isinstance(value, dict):
        return {key: longer(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [longer(one) for one in value]
    return value


class Release(Version):
    """The code of another release. What passes between it and this tree is made anew there."""

    def __init__(self, name: str, rooms: Mapping[str, ModuleType]) -> None:
        super().__init__(name, rooms)
        self._kinds = {
            kind.__name__: kind
            for room in rooms.values()
            for kind in vars(room).values()
            if isinstance(kind, type)
        }

    def own(self, kind: type) -> type:
        """Return the class of the same name; one that it has not stands for itself."""
        return self._kinds.get(kind.__name__, kind)

    def own_value(self, value: Any) -> Any:
        """Return the value as one of the class of the same name."""
        kind = self.own(type(value))
        if kind is type(value):
            return value
        known = [one for one in attrs.fields(kind) if one.init and hasattr(value, one.name)]
        return kind(**{str(one.alias): getattr(value, one.name) for one in known})

    def entries(self, entries: Sequence[Any]) -> Sequence[Entry]:
        """Return the entries as this tree reads them on the wire."""
        return _entries.decode(msgspec.msgpack.encode(entries))


@cache
def named(name: str) -> Version:
    """Return a version by its name. Raises NoReleaseError."""
    if name == "before":
        return Release(name, _loaded(_unpacked()))
    kind = LaterVersion if name == "next" else Version
    return kind(name, {room: importlib.import_module(f"mdserver.{room}") for room in ROOMS})


def _unpacked() -> Path:
    """Return where the modules of the release before are, unpacked once for all processes."""
    folder = UNPACKED / releases.COMMIT
    if not folder.exists():
        UNPACKED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=UNPACKED) as name:
            unpacked = Path(name) / "release"
            releases.unpack(unpacked)
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.exists():  # another process was not faster
                    raise
    return folder / "src"


def _loaded(source: Path) -> dict[str, ModuleType]:
    """Load the modules under a path although others of the same names are loaded already."""
    ours = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    for name in ours:
        del sys.modules[name]
    sys.path.insert(0, str(source))
    importlib.invalidate_caches()
    try:
        return {room: importlib.import_module(f"mdserver.{room}") for room in ROOMS}
    finally:
        sys.path.remove(str(source))
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(ours)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "mdserver"


def shake_hands(
    dialer: tuple[str, Version], listener: tuple[str, Version], terms: tuple[Any, ...]
) -> None:
    """Have two members open a link, each by its own code. Raises what either refuses."""
    sides = [
        version.handshake(dials=not number, me=name, nonce=name.encode().ljust(32), terms=terms)
        for number, (name, version) in enumerate((dialer, listener))
    ]
    said = [side.begin() for side in sides]
    while any(said):
        said = [sides[0].feed(said[1]), sides[1].feed(said[0])]
    assert all(side.done for side in sides), "neither side refused, and the link is not open"
