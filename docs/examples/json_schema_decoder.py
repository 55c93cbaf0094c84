"""Shows what Confluent's serializer for JSON Schema wrote as the JSON text that is in it.

    Kafka.Decoder.Class = json_schema_decoder:JsonSchemaDecoder

Such a value is a zero byte, the number of a schema in four bytes, and JSON. It is decoded if it is
valid under that schema, and the message has a field `schema` with the number. Other values are left
as they are. The environment variable SCHEMAS says what has the schemas: the address of a schema
registry (`http://schemas:8081`), or a folder with a file for each (`7.json`). Needs `jsonschema`.
"""

import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

from jsonschema import Draft7Validator
from jsonschema.validators import validator_for
from referencing import Registry

from mdserver.server.kafka.decoding import Decoded

TIMEOUT_S = 2  # of the registry; below Kafka.Decoder.Deadline
BYTES_MAX = 1_000_000
AGAIN_S = 10  # after which a schema that could not be had is asked for again
REMEMBERED_MAX = 10_000


class JsonSchemaDecoder:
    """The decoder; a schema never changes under its number, so each is fetched once."""

    def __init__(self) -> None:
        self._source = os.environ["SCHEMAS"]
        self._validators: dict[int, Any] = {}
        self._failed: dict[int, tuple[float, str]] = {}

    def decode(
        self,
        topic: str,  # noqa: ARG002
        key: bytes | None,  # noqa: ARG002
        value: bytes,
        headers: dict[str, bytes],  # noqa: ARG002
    ) -> Decoded | None:
        """Return the JSON of a framed value; None if it is not framed. Raises ValueError."""
        if len(value) < 5 or value[0] != 0:
            return None
        number = int.from_bytes(value[1:5], "big")
        text = value[5:].decode()
        validator = self._validators.get(number) or self._fetch(number)
        for error in validator.iter_errors(json.loads(text, parse_constant=refuse)):
            raise ValueError(f"schema {number}: {error.json_path}: {error.message}")
        return Decoded(text, {"schema": str(number)})

    def _fetch(self, number: int) -> Any:
        until, reason = self._failed.get(number, (0.0, ""))
        if until > time.monotonic():
            raise ValueError(reason)
        try:
            found = self._read(number)
            made = validator_for(found, default=Draft7Validator)
            made.check_schema(found)
        except Exception as error:
            if len(self._failed) >= REMEMBERED_MAX:
                self._failed.clear()
            reason = f"schema {number}: {error}"
            self._failed[number] = time.monotonic() + AGAIN_S, reason
            raise ValueError(reason) from None
        if len(self._validators) >= REMEMBERED_MAX:
            self._validators.clear()
        # An empty registry of references: a schema must not make this server fetch addresses.
        validator = self._validators[number] = made(found, registry=Registry())
        return validator

    def _read(self, number: int) -> Any:
        """Return a schema. Raises OSError and ValueError."""
        if not self._source.startswith(("http://", "https://")):
            return json.loads((Path(self._source) / f"{number}.json").read_text(encoding="utf-8"))
        address = f"{self._source.rstrip('/')}/schemas/ids/{number}"
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:  # noqa: S310
            told = json.loads(answer.read(BYTES_MAX))
        if told.get("schemaType") != "JSON":
            raise ValueError(f"it is of the type {told.get('schemaType', 'AVRO')}, not JSON")
        return json.loads(told["schema"])


def refuse(constant: str) -> NoReturn:
    """Refuse what Python reads and JSON does not have, such as NaN."""
    raise ValueError(f"{constant} is no JSON")
