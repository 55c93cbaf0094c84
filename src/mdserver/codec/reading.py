"""Reading commands in either encoding, and explaining what is wrong with malformed ones.

msgspec decodes a correct command in one pass. Only a malformed one is taken apart key by key, to
name the key and to say what is expected. That takes far longer, so the mistakes of a sender are
counted and bounded.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from mdserver import limits
from mdserver.core.commands import (
    Command,
    CommandId,
    Connect,
    Malformed,
    Ping,
    Publish,
    Receipts,
    RenewToken,
    Subscribe,
    Unsubscribe,
    WireCommand,
    WireId,
)
from mdserver.core.text import safe_text
from mdserver.errors import RemoteProtocolError

UNKNOWN_OP = "unknown-op"
MISSING_KEY = "missing-key"
WRONG_TYPE = "wrong-type"
INVALID_VALUE = "invalid-value"

_COMMANDS: tuple[type[Command], ...] = (
    Connect,
    Subscribe,
    Unsubscribe,
    Publish,
    RenewToken,
    Ping,
    Receipts,
)
OPS = {str(kind.__struct_config__.tag): kind for kind in _COMMANDS}

_TEXT = "a string"
_COUNT = "an integer, 0 or more"
_MILLISECONDS = "an integer, a number of milliseconds from 0 to 2147483647"
EXPECTED = {
    "op": _TEXT,
    "id": f"a string of at most {limits.CLOSURE_BYTES_MAX} characters or an integer of 64 bits",
    "token": f"a string of at most {limits.TOKEN_BYTES_MAX} characters",
    "client": f"a string of at most {limits.PUBLISHER_BYTES_MAX} characters",
    "publisher": f"a string of at most {limits.PUBLISHER_IDENTITY_CHARS_MAX} characters",
    "publisher_key": f"a string of at most {limits.PUBLISHER_KEY_CHARS_MAX} characters",
    "external_token": f"a string of at most {limits.TOKEN_BYTES_MAX} characters",
    "keepalive_ms": _MILLISECONDS,
    "subjects": f"a list of at most {limits.SUBJECTS_PER_COMMAND_MAX} strings",
    "history": _COUNT,
    "conflation_ms": _MILLISECONDS,
    "positions": "an object from subject to position: history (a string), epoch and seq "
    "(integers, 0 or more)",
    "replay": "true or false",
    "subject": _TEXT,
    "content": _TEXT,
    "content_base64": "base64 in a string (JSON) or bytes (binary form)",
    "fields": f"an object of at most {limits.FIELDS_MAX} names with a string each",
    "closure": f"a string of at most {limits.CLOSURE_BYTES_MAX} characters",
    "retained": "true or false",
    "caught_up": "true or false",
    "qos": '"GUARANTEED" or "STANDARD"',
    "compressed": "true or false",
    "reply_subject": _TEXT,
    "number": "an integer, 1 or more",
    "t": "any value",
    "receipts": f"a list of at most {limits.RECEIPTS_PER_COMMAND_MAX} receipts, objects with the "
    "keys that docs/protocol.md names",
}
NOT_WELL_FORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for bytes that are malformed, or not of an expected type."""

_OTHER_TYPE = re.compile(r", got `")


class Decoder(Protocol):
    """A decoder of msgspec for one type, in either encoding."""

    def decode(self, data: bytes, /) -> Any:
        """Decode `data`. Raises msgspec.ValidationError if it is of another type."""


class Sender(Protocol):
    """The sender of commands; `mistakes` is how many of them could not be understood."""

    mistakes: int


class Unknown:
    """A sender of which nothing was read before."""

    __slots__ = ("mistakes",)

    def __init__(self) -> None:
        self.mistakes = 0


class CommandReader:
    """Reads single commands in one encoding; `decoder` makes msgspec's decoder for a type.

    `echoable` returns a ping whose `t` can be sent back in this encoding.
    """

    def __init__(self, decoder: Callable[[Any], Decoder], echoable: Callable[[Ping], Ping]) -> None:
        self._echoable = echoable
        self._command = decoder(WireCommand)
        self._object = decoder(dict[str, msgspec.Raw])
        self._text = decoder(str)
        self._id = decoder(WireId)
        self._keys = {
            op: [
                (field.encode_name, decoder(field.type), field.required)
                for field in msgspec.structs.fields(kind)
            ]
            for op, kind in OPS.items()
        }

    def read_all(self, parts: Iterable[bytes], sender: Sender) -> list[WireCommand | Malformed]:
        """Return the commands of one message, and count the mistakes of its sender.

        A malformed command becomes a `Malformed` in its place, with an explanation. More than
        MALFORMED_MAX of them raise RemoteProtocolError: explanations take the time of other clients
        and are far longer than what they explain.

        Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for a part that is not even
        well-formed in this encoding.
        """
        commands: list[WireCommand | Malformed] = []
        decode = self._command.decode
        for part in parts:
            try:
                command = decode(part)
                if type(command) is Publish:
                    if (command.content is None) is (command.content_base64 is None):
                        command = _mistaken(sender, _bad_content(command))
                elif type(command) is Ping:
                    command = self._echoable(command)
            except msgspec.ValidationError as error:
                hint = sender.mistakes < limits.HINTS_MAX
                command = _mistaken(sender, self._explain(part, str(error), hint))
            commands.append(command)
        return commands

    def _explain(self, data: bytes, error: str, hint: bool) -> Malformed:
        """Return what is wrong with a command; with `hint`, which one was perhaps meant."""
        try:
            keys: dict[str, bytes] = self._object.decode(data)
        except msgspec.ValidationError:
            return Malformed(
                WRONG_TYPE, "A command is an object with string keys, among them `op`."
            )
        id_: CommandId = None
        reading = "id"
        try:
            id_ = self._id.decode(keys["id"]) if "id" in keys else None
            reading = "op"
            op = self._text.decode(keys["op"]) if "op" in keys else None
        except msgspec.ValidationError as problem:
            return _bad_key(reading, problem, id_)
        if op not in OPS:
            return _bad_op(op, id_, hint)
        return self._explain_keys(op, keys, id_) or Malformed(
            INVALID_VALUE, f"{safe_text(error)}.", id_
        )

    def _explain_keys(self, op: str, keys: dict[str, bytes], id_: CommandId) -> Malformed | None:
        for name, decoder, required in self._keys[op]:
            if name not in keys:
                if required:
                    reason = f'"{op}" needs the key `{name}`: {EXPECTED[name]}.'
                    return Malformed(MISSING_KEY, reason, id_)
                continue
            try:
                decoder.decode(keys[name])
            except msgspec.ValidationError as problem:
                return _bad_key(name, problem, id_)
        return None


class EventReader:
    """Reads single events in one encoding; `events` is the union of the types that may come."""

    def __init__(self, decoder: Callable[[Any], Decoder], events: Any) -> None:
        self._event = decoder(events)
        self._op = decoder(_Op)
        self._ops = frozenset(str(kind.__struct_config__.tag) for kind in events.__args__)

    def read(self, data: bytes) -> list[Any]:
        """Return the event in `data`, in a list that is empty if its `op` is of a later version.

        Raises the exceptions in NOT_WELL_FORMED.
        """
        try:
            return [self._event.decode(data)]
        except msgspec.ValidationError:
            if self._op.decode(data).op in self._ops:
                raise
            return []


class _Op(msgspec.Struct):
    op: str


def _mistaken(sender: Sender, malformed: Malformed) -> Malformed:
    """Count a mistake. Raises RemoteProtocolError beyond MALFORMED_MAX."""
    sender.mistakes += 1
    if sender.mistakes > limits.MALFORMED_MAX:
        raise too_many_malformed()
    return malformed


def _bad_content(command: Publish) -> Malformed:
    """Return what is wrong with a publication that has none or both of the two kinds of content.

    The types of the command table cannot express that exactly one of them is given.
    """
    if command.content is None:
        return Malformed(
            MISSING_KEY,
            '"publish" needs the key `content` (a string) or `content_base64` (bytes).',
            command.id,
        )
    return Malformed(
        INVALID_VALUE,
        '"publish" takes either `content` or `content_base64`, not both.',
        command.id,
    )


def too_many_malformed() -> RemoteProtocolError:
    """Return the error for a client with more than MALFORMED_MAX malformed commands."""
    return RemoteProtocolError(
        f"More than {limits.MALFORMED_MAX} commands of one session cannot be understood."
    )


def ill_formed(error: Exception, form: str) -> RemoteProtocolError:
    """Return the error for the sender of bytes that are not well-formed in `form`."""
    if isinstance(error, RecursionError):
        return RemoteProtocolError(f"The {form} is nested too deeply.")
    if isinstance(error, UnicodeDecodeError):
        return RemoteProtocolError(f"The {form} has a string that is not valid UTF-8.")
    return RemoteProtocolError(f"That is not well-formed {form}: {safe_text(error)}.")


def _bad_key(name: str, problem: msgspec.ValidationError, id_: CommandId) -> Malformed:
    code = WRONG_TYPE if _OTHER_TYPE.search(str(problem)) else INVALID_VALUE
    return Malformed(code, f"`{name}` must be {EXPECTED[name]}.", id_)


def mistakes_in(commands: Sequence[object]) -> int:
    """Return how many of the commands could not be understood."""
    return list(map(type, commands)).count(Malformed)


def _bad_op(op: str | None, id_: CommandId, hint: bool) -> Malformed:
    known = ", ".join(f'"{known}"' for known in OPS)
    if op is None:
        return Malformed(MISSING_KEY, f"A command needs the key `op`: {known}.", id_)
    shown = safe_text(op, 32)
    near = difflib.get_close_matches(shown, OPS, 1) if hint else []
    instead = f'the nearest is "{near[0]}"' if near else f"there are {known}"
    return Malformed(UNKNOWN_OP, f'There is no command "{shown}": {instead}.', id_)
