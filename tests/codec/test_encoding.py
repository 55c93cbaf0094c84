"""The command table decodes from both encodings."""

import msgspec

from mdserver.core.commands import Publish, WireCommand


def test_one_table_serves_json_and_messagepack() -> None:
    command = Publish(subject="/a/b", content="x", closure="c1", number=2)
    as_json = msgspec.json.decode(msgspec.json.encode(command), type=WireCommand)
    as_msgpack = msgspec.msgpack.decode(msgspec.msgpack.encode(command), type=WireCommand)
    assert as_json == as_msgpack == command
