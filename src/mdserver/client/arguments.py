"""Checks of the arguments that an application passes to the client.

The client checks arguments in the call that passes them, so that the traceback of a mistake leads
to its place, and the message says what would be right. Each function raises ArgumentError, or its
subclass ArgumentTypeError if the type is wrong.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from mdserver.client.core.schedule import ReconnectPolicy, ReconnectSettings
from mdserver.client.core.values import ClientSettings, Numbering
from mdserver.client.errors import ArgumentError, ArgumentTypeError
from mdserver.client.message import deflated
from mdserver.core.commands import Publish
from mdserver.core.message import Qos


def texts(name: str, value: Iterable[str], example: str) -> list[str]:
    """Return a list of texts; reject a single text, which would be taken for a list of letters."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{name} is a list such as [{example!r}], not {_shown(value)}")
    return [text(f"each of {name}", one) for one in value]


def text(name: str, value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} is a str, not {_shown(value)}")
    return value


def subject(value: Any) -> None:
    """Check that one argument of `subscribe` is a text and not a list of them."""
    if isinstance(value, list | tuple | set):
        raise ArgumentTypeError("subscribe takes subjects one by one: subscribe(*subjects)")
    text("a subject", value)


def optional_text(name: str, value: Any) -> None:
    """Check that a value is a text or None."""
    if value is not None:
        text(name, value)


def choice(name: str, value: Any, allowed: Mapping[str, Any]) -> Any:
    """Return the value that a word stands for."""
    if not isinstance(value, str) or value not in allowed:
        words = " or ".join(repr(word) for word in allowed)
        raise ArgumentError(f"{name} is {words}, not {_shown(value)}")
    return allowed[value]


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{name} is an integer, {least} or more, not {_shown(value)}")
    if value < least:
        raise ArgumentError(f"{name} is an integer, {least} or more, not {value}")
    return value


def flag(name: str, value: Any) -> None:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is True or False, not {_shown(value)}")


def seconds(name: str, value: Any) -> None:
    """Check that a timeout is a positive number of seconds, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"{name} is a number of seconds or None, not {_shown(value)}")
    if not value > 0:
        raise ArgumentError(f"{name} is a number of seconds above 0, not {value}")


def kind(name: str, value: Any, wanted: type) -> None:
    """Check that a value is an instance of a class, or None."""
    if value is not None and not isinstance(value, wanted):
        raise ArgumentTypeError(f"{name} is of the class {wanted.__name__}, not {_shown(value)}")


def reconnecting(values: Mapping[str, Any]) -> None:
    """Check values for the fields of `ReconnectSettings`."""
    for name, value in values.items():
        if name == "policy":
            if not isinstance(value, ReconnectPolicy):
                raise ArgumentTypeError(f"{name} is a ReconnectPolicy, not {_shown(value)}")
        elif not name.endswith("_s"):
            whole(name, value)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentTypeError(f"{name} is a number of seconds, not {_shown(value)}")
        elif not value >= 0:
            raise ArgumentError(f"{name} is a number of seconds, 0 or more, not {value}")


def settings(
    *,
    client: str,
    name: str,
    publisher: Any,
    publisher_key: Any,
    numbering: Any,
    token: Any,
    keepalive_ms: Any,
    encryption: Any,
    reconnect: Any,
) -> ClientSettings:
    """Return the settings of a client for these arguments of its constructor.

    `name` is the name of a publisher that is given none.
    """
    for argument, given in (
        ("token", token),
        ("publisher", publisher),
        ("publisher_key", publisher_key),
    ):
        optional_text(argument, given)
    if publisher_key is not None and not publisher:
        raise ArgumentError("publisher_key goes with the publisher that it belongs to")
    if keepalive_ms is not None:
        whole("keepalive_ms", keepalive_ms)
    kind("numbering", numbering, Numbering)
    kind("reconnect", reconnect, ReconnectSettings)
    reconnecting(attrs.asdict(reconnect, recurse=False))
    flag("encryption", encryption)
    return ClientSettings(
        client=client,
        publisher=name if publisher == "" else publisher,
        publisher_key=publisher_key,
        numbering=numbering,
        token=token,
        keepalive_ms=keepalive_ms,
        encryption=encryption,
        reconnect=reconnect,
    )


def publication(
    subject: Any,
    content: Any,
    fields: Any,
    closure: Any,
    retained: Any,
    qos: Any,
    compressed: Any,
    reply_subject: Any,
) -> Publish:
    """Return the `publish` command for these arguments.

    The rules of the server (subject, sizes, rights) are left to the server, which answers with a
    status. Raises ArgumentError.
    """
    text("subject", subject)
    if not isinstance(content, str | bytes):
        write = "json.dumps(...)" if isinstance(content, dict | list) else "str(...)"
        raise ArgumentTypeError(
            f"content is a str or bytes, not {_shown(content)}: write {write} around it"
        )
    try:
        qos = Qos(qos)
    except ValueError:
        shown = _shown(qos)
        raise ArgumentTypeError(f"qos is Qos.GUARANTEED or Qos.STANDARD, not {shown}") from None
    flag("retained", retained)
    flag("compressed", compressed)
    optional_text("closure", closure)
    optional_text("reply_subject", reply_subject)
    words: str | None = None
    octets: bytes | None = None
    if compressed:
        octets = deflated(content)
    elif isinstance(content, str):
        words = content
    else:
        octets = content
    return Publish(
        subject=subject,
        content=words,
        content_base64=octets,
        fields=_fields(fields),
        closure=closure,
        retained=retained,
        qos=qos,
        compressed=compressed,
        reply_subject=reply_subject,
    )


def _fields(fields: Any) -> dict[str, str] | None:
    if not fields:
        return None
    if not isinstance(fields, Mapping):
        raise ArgumentTypeError(
            f'fields is a dict from names to texts such as {{"volume": "6.62M"}}, not '
            f"{_shown(fields)}"
        )
    for name, value in fields.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"the names of fields are str, not {_shown(name)}")
        if not isinstance(value, str):
            raise ArgumentTypeError(
                f"fields[{name!r}] is a str, not {_shown(value)}: write str(...) around it"
            )
    return dict(fields)


def _shown(value: object) -> str:
    """Return a value as a sentence shows it: short, with its class."""
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"
