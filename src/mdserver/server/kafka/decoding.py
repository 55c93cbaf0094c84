"""`Kafka.Decoder.Class`: a Python class of the operator makes content of the values of records.

The class is instantiated once, without arguments, and has a function

    decode(topic: str, key: bytes | None, value: bytes, headers: dict[str, bytes])

which returns a `Decoded`, or None if the record is to be shown as it is. Tombstones have no value
and are not decoded. Whatever else comes of a call makes a poison record of that one record: an
exception, another result, and a call that takes longer than the deadline.

The function runs in a thread of its own, one for each consumer, which waits for it: a call that
takes long delays the records behind it and nothing else. Python cannot end a thread, so a call that
exceeds the deadline goes on without anyone waiting for it, and another thread takes what follows.
At most `KAFKA_DECODERS_STUCK_MAX` calls are left behind like this. Beyond that nothing is decoded
until one of them returns.
"""

import inspect
import threading
import time
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import msgspec
from attrs import Factory, frozen

from mdserver.cluster.kafka_records import OWN, KafkaRecord
from mdserver.core.text import safe_text
from mdserver.errors import ConfigError
from mdserver.limits import KAFKA_DECODERS_STUCK_MAX, KAFKA_POLL_S, NS_PER_S

REASON_CHARS_MAX = 300
METHODS = ("decode",)


@frozen
class Decoded:
    """What clients get of a record.

    `content` is text or bytes. `fields` are added to those that the headers make; the decoder's
    count if both have a name.
    """

    content: str | bytes
    fields: Mapping[str, str] = Factory(dict)


@frozen
class DecoderSettings:
    """The operator's object, and how long one call may take."""

    decoder: Any
    deadline_s: float


def decoder_settings(decoder: Any, deadline: int) -> DecoderSettings:
    """Return the settings for an object with the function; `deadline` in ns. Raises ConfigError."""
    if inspect.iscoroutinefunction(decoder.decode):
        raise ConfigError(
            "Kafka.Decoder.Class: decode runs in a thread: write `def decode`, not `async def`"
        )
    return DecoderSettings(decoder, deadline / NS_PER_S)


class _Turn:
    """Records that one thread decodes in order.

    `results` grows while it does; `since` is when it began with the next one (s).
    """

    def __init__(self, records: Sequence[KafkaRecord]) -> None:
        self.records = records
        self.results: list[KafkaRecord] = []
        self.since = time.monotonic()
        self.ended = threading.Event()
        self.abandoned = False


class Decoding:
    """Has the records of one consumer decoded; used by the thread of that consumer alone."""

    def __init__(self, settings: DecoderSettings, stopping: threading.Event) -> None:
        self._decoder = settings.decoder
        self._deadline_s = settings.deadline_s
        self._stopping = stopping
        self._turns: SimpleQueue[_Turn | None] | None = None
        """The turns of the thread that decodes now; None if there is none."""
        self._stuck: list[_Turn] = []

    def decoded(self, records: Sequence[KafkaRecord]) -> list[KafkaRecord] | None:
        """Return the records as clients are to see them; None if the server ends meanwhile."""
        found: list[KafkaRecord] = []
        while len(found) < len(records):
            rest = records[len(found) :]
            self._stuck = [turn for turn in self._stuck if not turn.ended.is_set()]
            if len(self._stuck) >= KAFKA_DECODERS_STUCK_MAX:
                reason = f"{len(self._stuck)} calls of the decoder have not returned"
                return found + [_poisoned(record, reason) for record in rest]
            turn = _Turn(rest)
            self._give(turn)
            if not self._ends(turn):
                self._abandon(turn)
                if self._stopping.is_set():
                    return None
                # Copied: the call may return at last, and add its result to the list.
                found += turn.results[: len(rest)]
                if len(found) < len(records):
                    reason = f"the decoder took longer than {self._deadline_s:g} s"
                    found.append(_poisoned(records[len(found)], reason))
            else:
                found += turn.results
        return found

    def close(self) -> None:
        """End the thread once its call has returned."""
        if self._turns is not None:
            self._turns.put(None)
            self._turns = None

    def _give(self, turn: _Turn) -> None:
        """Give a turn to the thread, which is started if there is none."""
        if self._turns is None:
            self._turns = SimpleQueue()
            # A daemon, so that a call that never returns does not keep the process.
            threading.Thread(
                target=self._work, args=(self._turns,), name="decoder", daemon=True
            ).start()
        self._turns.put(turn)

    def _ends(self, turn: _Turn) -> bool:
        """Wait for a turn; return False if a call takes too long, or if the server ends."""
        while not turn.ended.wait(min(KAFKA_POLL_S, self._deadline_s)):
            if self._stopping.is_set() or time.monotonic() - turn.since > self._deadline_s:
                return False
        return True

    def _abandon(self, turn: _Turn) -> None:
        """Wait no more for a turn, nor for its thread."""
        turn.abandoned = True
        self._stuck.append(turn)
        self.close()

    def _work(self, turns: "SimpleQueue[_Turn | None]") -> None:
        """Decode turn after turn, until there is none or nobody waits for this one any more."""
        while (turn := turns.get()) is not None:
            for record in turn.records:
                turn.since = time.monotonic()
                result = self._one(record)
                if turn.abandoned:
                    break
                turn.results.append(result)
            turn.ended.set()

    def _one(self, record: KafkaRecord) -> KafkaRecord:
        """Return a record with what the operator's function makes of it, or as poison."""
        if record.value is None:
            return record
        headers = {name: value or b"" for name, value in record.headers or ()}
        try:
            given = self._decoder.decode(record.topic, record.key, record.value, headers)
            return record if given is None else _shown(record, given)
        except BaseException as error:  # sys.exit() in an operator's class as well
            return _poisoned(record, f"the decoder raised {type(error).__name__}: {error}")


class _NonsenseError(Exception):
    """What a decoder returned cannot be shown; the message says why."""


def _shown(record: KafkaRecord, given: object) -> KafkaRecord:
    """Return a record with what its decoder made of it, or as poison if that is nonsense."""
    try:
        content, text, fields = _checked(given)
    except _NonsenseError as error:
        return _poisoned(record, f"the decoder returned {error}")
    return msgspec.structs.replace(record, value=content, text=text, fields=fields)


def _checked(given: object) -> tuple[bytes, bool, dict[str, str]]:
    """Return content, whether it is text, and fields. Raises _NonsenseError."""
    if not isinstance(given, Decoded):
        raise _NonsenseError(f"a {type(given).__name__} in place of a Decoded")
    content, fields = given.content, dict(given.fields)
    if not isinstance(content, str | bytes):
        raise _NonsenseError(f"content that is a {type(content).__name__}, not a str or bytes")
    for name, value in fields.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise _NonsenseError("fields that are no texts")
        if name.startswith(OWN):
            raise _NonsenseError(
                f"the field {name}: those that begin with `{OWN}` are the server's own"
            )
    try:
        for text in (*fields, *fields.values()):
            text.encode()
        if isinstance(content, str):
            return content.encode(), True, fields
    except UnicodeEncodeError:
        raise _NonsenseError("text that cannot be written as UTF-8") from None
    return content, False, fields


def _poisoned(record: KafkaRecord, reason: str) -> KafkaRecord:
    if record.value is None:
        return record
    return msgspec.structs.replace(record, poison=safe_text(reason, REASON_CHARS_MAX))
