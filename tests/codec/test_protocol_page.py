"""docs/protocol.md names everything that is on the wire, and its example is real."""

import re
from pathlib import Path

import msgspec
import pytest

from mdserver import limits
from mdserver.codec import binary_form, message_payload, reading
from mdserver.codec.binary_form import BINARY, BinaryClient
from mdserver.core.commands import Subscribe
from mdserver.core.events import MessageEvent, StatusName, WireEvent
from mdserver.core.message import MessageType

PAGE = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
KINDS = [*reading.OPS.values(), *WireEvent.__args__, MessageEvent]
KEYS = sorted({field.encode_name for kind in KINDS for field in msgspec.structs.fields(kind)})
CODES = (reading.UNKNOWN_OP, reading.MISSING_KEY, reading.WRONG_TYPE, reading.INVALID_VALUE)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_named(key: str) -> None:
    assert f"`{key}`" in PAGE


@pytest.mark.parametrize("name", [name.value for name in StatusName] + list(CODES))
def test_every_status_and_error_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_close_code_is_named() -> None:
    codes = [
        value
        for name, value in vars(limits).items()
        if name.startswith("CLOSE_4")
        or (name.startswith("CLOSE_") and isinstance(value, int) and 4000 <= value < 4200)
    ]
    assert len(codes) >= 8
    for code in codes:
        assert f"| {code} |" in PAGE


@pytest.mark.parametrize(
    "name", ["COMMAND", "EVENT", "ALIAS", "UPDATE_TEXT", "UPDATE_BYTES", "MESSAGE"]
)
def test_frame_types(name: str) -> None:
    assert f"| `{getattr(binary_form, name):#04x}` | {name} |" in PAGE


@pytest.mark.parametrize(
    "name",
    [
        "TEXT",
        "STANDARD",
        "NOT_RETAINED",
        "COMPRESSED",
        "ALIASED",
        "MATCH",
        "FIELDS",
        "CLOSURE",
        "REPLY_SUBJECT",
        "PREV",
    ],
)
def test_flags(name: str) -> None:
    bit = getattr(message_payload, name).bit_length() - 1
    assert re.search(rf"^\| {bit} \| {name}\b", PAGE, re.MULTILINE)


def test_the_example_is_real() -> None:
    block = PAGE.partition("### Example")[2].partition("```text")[2].partition("```")[0]
    lines = re.findall(r"^([0-9a-f]{2}(?: +[0-9a-f]{2})*)$", block, re.MULTILINE)
    command, *events = (bytes.fromhex(line.replace(" ", "")) for line in lines)
    assert BINARY.commands(command) == [Subscribe(subjects=["/a/b"])]
    snapshot, first, second = BinaryClient().events(b"".join(events))
    assert isinstance(snapshot, MessageEvent)
    assert (snapshot.type, snapshot.fields, snapshot.seq) == (
        MessageType.SNAPSHOT,
        {"bid": "190"},
        6,
    )
    for event, seq, content in ((first, 7, "193"), (second, 8, "192")):
        assert isinstance(event, MessageEvent)
        assert (event.subject, event.epoch, event.seq, event.content) == ("/a/b", 1, seq, content)
