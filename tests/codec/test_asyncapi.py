"""docs/asyncapi.yaml is an AsyncAPI 3 document, and says what the codec does."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from mdserver import limits
from mdserver.codec.json_form import JSON, JsonClient
from mdserver.codec.reading import OPS
from mdserver.core.commands import Malformed
from mdserver.core.events import Event, MessageEvent, StatusName, WireEvent

ROOT = Path(__file__).parents[2]
DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / "docs/asyncapi.yaml").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
MESSAGES = DOCUMENT["components"]["messages"]
EVENTS: dict[str, type[Event]] = {
    str(kind.__struct_config__.tag): kind for kind in (*WireEvent.__args__, MessageEvent)
}


def checker(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    )


def examples() -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, example["payload"])
        for name, message in MESSAGES.items()
        for example in message["examples"]
    ]


def test_it_is_an_asyncapi_3_document() -> None:
    """By the structure of AsyncAPI 3.0.0, written down in asyncapi_3.schema.json beside this."""
    schema = json.loads((Path(__file__).parent / "asyncapi_3.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(DOCUMENT)


@pytest.mark.parametrize(
    "change",
    [
        {"asyncapi": "2.6.0"},
        {"info": {"title": "no version"}},
        {"channel": {}},
        {"operations": {"x": {"action": "publish", "channel": {"$ref": "#/channels/session"}}}},
        {"operations": {"x": {"action": "send"}}},
        {"channels": {"x": {"path": "/ws"}}},
        {"servers": {"x": {"url": "ws://localhost"}}},
    ],
    ids=str,
)
def test_the_structure_is_strict(change: dict[str, Any]) -> None:
    schema = json.loads((Path(__file__).parent / "asyncapi_3.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(DOCUMENT | change)


def test_every_reference_leads_somewhere() -> None:
    def walk(node: object) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                target: Any = DOCUMENT
                for part in node["$ref"].removeprefix("#/").split("/"):
                    target = target[part]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(DOCUMENT)
    for operation in DOCUMENT["operations"].values():
        channel = operation["channel"]["$ref"]
        assert all(one["$ref"].startswith(f"{channel}/messages/") for one in operation["messages"])


def test_it_has_every_command_and_event() -> None:
    assert set(MESSAGES) == set(OPS) | set(EVENTS)


@pytest.mark.parametrize("name", sorted({**OPS, **EVENTS}))
def test_keys_are_those_of_the_code(name: str) -> None:
    kind = OPS.get(name) or EVENTS[name]
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(kind)}
    assert set(SCHEMAS[name]["properties"]) == {"op", *fields}
    required = {key for key, needed in fields.items() if needed}
    assert set(SCHEMAS[name]["required"]) == {"op", *required}


def test_values_are_those_of_the_code() -> None:
    status = SCHEMAS["status"]["properties"]["status"]["enum"]
    assert status == [name.value for name in StatusName]
    assert SCHEMAS["subjects"]["maxItems"] == limits.SUBJECTS_PER_COMMAND_MAX
    assert SCHEMAS["fields"]["maxProperties"] == limits.FIELDS_MAX
    assert SCHEMAS["publish"]["properties"]["closure"]["maxLength"] == limits.CLOSURE_BYTES_MAX
    assert SCHEMAS["token"]["properties"]["token"]["maxLength"] == limits.TOKEN_BYTES_MAX
    assert SCHEMAS["connect"]["properties"]["client"]["maxLength"] == limits.PUBLISHER_BYTES_MAX


@pytest.mark.parametrize(("name", "example"), examples(), ids=str)
def test_examples_are_valid_and_understood(name: str, example: dict[str, Any]) -> None:
    checker(name).validate(example)
    text = json.dumps(example).encode()
    if name in OPS:
        (command,) = JSON.commands(text)
        assert type(command) is OPS[name]
    else:
        (event,) = JsonClient().events(text)
        assert type(event) is EVENTS[name]
        if isinstance(event, WireEvent):
            assert json.loads(JSON.event(event)) == example


BAD = [
    ("subscribe", {"op": "subscribe"}),
    ("subscribe", {"op": "subscribe", "subjects": "/a/b"}),
    ("subscribe", {"op": "subscribe", "subjects": [], "history": -1}),
    ("subscribe", {"op": "subscribe", "subjects": [], "positions": {"/a": {"epoch": 1}}}),
    ("publish", {"op": "publish", "subject": "/a/b"}),
    ("publish", {"op": "publish", "subject": "/a/b", "content": "x", "content_base64": "eA=="}),
    ("publish", {"op": "publish", "subject": "/a/b", "content": "x", "number": 0}),
    ("publish", {"op": "publish", "subject": "/a/b", "content": "x", "qos": "BEST"}),
    ("token", {"op": "token"}),
    ("ping", {"op": "ping", "id": True}),
    ("connect", {"op": "connect", "client": "x" * 129}),
]


@pytest.mark.parametrize(("name", "bad"), BAD, ids=str)
def test_the_document_and_the_codec_refuse_the_same(name: str, bad: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        checker(name).validate(bad)
    (command,) = JSON.commands(json.dumps(bad).encode())
    assert isinstance(command, Malformed)
