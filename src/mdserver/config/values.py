"""The forms in which parameter values are written: one `Kind` for each form.

A `parse` function takes the text after `=`, without surrounding blanks, and raises `ValueError`
with one clause that says what would be right. `show` writes a value in the same form, so that
parsing it again gives the same value.
"""

import enum
import ipaddress
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from attrs import frozen

from mdserver.limits import GB, KB, MB, NS_PER_MS, NS_PER_S

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_DURATION_UNITS = {
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": 86400 * NS_PER_S,
}
_MEANT = {
    unit: f"{what} are written `{right}`"
    for right, what, words in (
        ("ms", "milliseconds", "msec msecs millis millisecond milliseconds"),
        ("s", "seconds", "sec secs second seconds"),
        ("min", "minutes", "m mins minute minutes"),
        ("h", "hours", "hr hrs hour hours"),
        ("d", "days", "day days"),
        ("B", "bytes", "byte bytes"),
        ("KB", "kilobytes (1,024 bytes)", "k kib kilobyte kilobytes"),
        ("MB", "megabytes (1,024 KB)", "m mib megabyte megabytes"),
        ("GB", "gigabytes (1,024 MB)", "g gib gigabyte gigabytes"),
    )
    for unit in ((right, word) for word in words.split())
}
_SIZE_UNITS = {"B": 1, "KB": KB, "MB": MB, "GB": GB}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


@frozen
class Kind(Generic[T]):
    """A form of value; `form` names it in the documentation and in error messages."""

    form: str
    parse: Callable[[str], T]
    show: Callable[[T], str]


class Address(NamedTuple):
    """A place to listen or connect; `host` is a name, an IP address, or `*` for every address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MemberPlace(NamedTuple):
    """The name of a cluster's member, which is the address it began with, and where it is now."""

    name: Address
    at: Address

    def __str__(self) -> str:
        return str(self.name) if self.name == self.at else f"{self.name}@{self.at}"


def loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def whole(least: int, most: int) -> Kind[int]:
    """Return the kind of a whole number between two bounds, both included."""
    form = f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"expected {form}")
        return int(text)

    return Kind(form, parse, str)


def size(least: int, most: int) -> Kind[int]:
    """Return the kind of a size in bytes, written with B, KB, MB or GB (1,024 each)."""
    form = f"a size from {show_size(least)} to {show_size(most)}"
    return Kind(form, _quantity(_SIZE_UNITS, 1, least, most, form), show_size)


def duration(least: int, most: int, unit: str = "s") -> Kind[int]:
    """Return the kind of a time in nanoseconds, written with ms, s, min, h or d.

    `least` and `most` are in nanoseconds too; `unit` is that of a bare number.
    """
    form = (
        f"a time from {show_duration(least)} to {show_duration(most)}, "
        f"with one of the units ms, s, min, h, d ({unit} if none is given)"
    )
    return Kind(
        form, _quantity(_DURATION_UNITS, _DURATION_UNITS[unit], least, most, form), show_duration
    )


def _quantity(
    units: dict[str, int], bare: int, least: int, most: int, form: str
) -> Callable[[str], int]:
    by_lower_case = {name.lower(): factor for name, factor in units.items()}

    def parse(text: str) -> int:
        match = _QUANTITY.fullmatch(text)
        if match is None or len(match[1]) > 18:
            raise ValueError(f"expected {form}")
        factor = by_lower_case.get(match[2].lower()) if match[2] else bare
        if factor is None:
            raise ValueError(_unknown_unit(match[2], units, form))
        value = math.floor(float(match[1]) * factor)
        if not least <= value <= most:
            raise ValueError(f"out of bounds, expected {form}")
        return value

    return parse


def _unknown_unit(given: str, units: dict[str, int], form: str) -> str:
    for right in units:
        meant = _MEANT.get((right, given.lower()))
        if meant is not None:
            return f"unknown unit {given}: {meant}"
    return f"unknown unit {given}, expected {form}"


def show_size(value: int) -> str:
    """Return bytes in the largest unit that divides them."""
    return _show_quantity(value, _SIZE_UNITS)


def show_duration(value: int) -> str:
    """Return nanoseconds in the largest unit that divides them."""
    return _show_quantity(value, _DURATION_UNITS)


def _show_quantity(value: int, units: dict[str, int]) -> str:
    smallest = next(iter(units))
    for name, factor in reversed(units.items()):
        if value and value % factor == 0:
            return f"{value // factor} {name}"
    return f"{value / units[smallest]:g} {smallest}"


def optional(kind: Kind[T], word: str) -> Kind[T | None]:
    """Return the same kind, extended by a word that stands for None."""

    def parse(text: str) -> T | None:
        return None if text.lower() == word.lower() else kind.parse(text)

    def show(value: T | None) -> str:
        return word if value is None else kind.show(value)

    return Kind(f"{kind.form}, or {f'`{word}`' if word else 'empty'}", parse, show)


def fraction() -> Kind[float]:
    """Return the kind of a number from 0 to 1."""
    form = "a number from 0 to 1"

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18}", text, re.ASCII):
            raise ValueError(f"expected {form}")
        value = float(text)
        if value > 1:
            raise ValueError(f"out of bounds, expected {form}")
        return value

    return Kind(form, parse, lambda value: f"{value:.18f}".rstrip("0").rstrip("."))


def choice(options: type[E]) -> Kind[E]:
    """Return the kind of a word out of an enumeration; capitals make no difference."""
    by_lower_case = {str(option.value).lower(): option for option in options}
    form = "one of " + ", ".join(str(option.value) for option in options)

    def parse(text: str) -> E:
        option = by_lower_case.get(text.lower())
        if option is None:
            raise ValueError(f"expected {form}")
        return option

    return Kind(form, parse, lambda option: str(option.value))


def text(characters_max: int) -> Kind[str]:
    """Return the kind of any text, which may be empty."""
    form = f"text of at most {characters_max} characters"

    def parse(value: str) -> str:
        if len(value) > characters_max:
            raise ValueError(f"expected {form}")
        return value

    return Kind(form, parse, str)


def listed(kind: Kind[T], items_max: int, form: str) -> Kind[tuple[T, ...]]:
    """Return the kind of a list: values with commas between them, each at most once.

    An empty text is an empty list. `form` names the list in the documentation.
    """

    def parse_item(word: str, count: int) -> T:
        try:
            return kind.parse(word)
        except ValueError as error:
            if count == 1 or word in str(error):
                raise
            raise ValueError(f"{word}: {error}") from None

    def parse(value: str) -> tuple[T, ...]:
        words = [word.strip() for word in value.split(",")] if value else []
        items = tuple(parse_item(word, len(words)) for word in words)
        if len(items) > items_max:
            raise ValueError(f"expected at most {items_max} values")
        if len(dict.fromkeys(items)) < len(items):
            raise ValueError("the same value is listed twice")
        return items

    def show(values: tuple[T, ...]) -> str:
        return ", ".join(kind.show(value) for value in values)

    return Kind(form, parse, show)


def address(default_port: int) -> Kind[Address]:
    """Return the kind of `host:port`, `host`, `*:port` or an IPv6 address in brackets."""
    form = "`host:port`, `*:port` or `[IPv6]:port`"

    def parse(value: str) -> Address:
        host, port = _split_port(value, form)
        number = int(port) if port else default_port
        if not 0 <= number <= 65535:
            raise ValueError("a port is a number up to 65535")
        return Address(host, number)

    return Kind(form, parse, str)


def places(default_port: int, items_max: int) -> Kind[tuple[MemberPlace, ...]]:
    """Return the kind of a list of members: `host:port`, or `host:port@host:port` if one moved."""
    one = address(default_port)

    def parse_place(value: str) -> MemberPlace:
        name, moved, at = value.partition("@")
        where = one.parse(name.strip())
        return MemberPlace(where, one.parse(at.strip()) if moved else where)

    form = "a comma list of `host:port`, and `host:port@host:port` for a member that has moved"
    several = listed(Kind(one.form, parse_place, str), items_max, form)

    def parse(value: str) -> tuple[MemberPlace, ...]:
        found = several.parse(value)
        for what in ("name", "at"):
            addresses = [str(getattr(place, what)) for place in found]
            twice = [address for address in addresses if addresses.count(address) > 1]
            if twice:
                raise ValueError(f"{twice[0]} stands for two members")
        return found

    return Kind(form, parse, several.show)


def _split_port(value: str, form: str) -> tuple[str, str]:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.%A-Za-z]+)\](?::([0-9]{1,5}))?", value, re.ASCII)
    if bracketed:
        try:
            ipaddress.IPv6Address(bracketed[1])
        except ValueError:
            raise ValueError("not an IPv6 address between the brackets") from None
        return bracketed[1], bracketed[2] or ""
    plain = re.fullmatch(r"(\*|[^:\[\]]+)(?::([0-9]{1,5}))?", value, re.ASCII)
    if plain is None or not (plain[1] == "*" or _HOST.fullmatch(plain[1])):
        raise ValueError(f"expected {form}" if value else f"nothing: expected {form}")
    return plain[1], plain[2] or ""


def _parse_boolean(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("expected true or false")
    return value.lower() == "true"


def _parse_switch(value: str) -> bool:
    if value.lower() not in {"off", "on"}:
        raise ValueError("expected off or on")
    return value.lower() == "on"


def _parse_network(value: str) -> Network:
    try:
        return ipaddress.ip_network(value)
    except ValueError as error:
        raise ValueError(
            f"{error}; expected an IP address or a network such as 10.0.0.0/8 or fd00::/8"
        ) from None


def _parse_path(value: str) -> Path:
    if not value or "\0" in value:
        raise ValueError("expected a path")
    return Path(value)


BOOLEAN: Kind[bool] = Kind("true or false", _parse_boolean, lambda value: str(value).lower())
SWITCH: Kind[bool] = Kind("off or on", _parse_switch, lambda value: "on" if value else "off")
NETWORK: Kind[Network] = Kind("an IP address or network", _parse_network, str)
PATH: Kind[Path] = Kind(
    "a path, relative to the folder of the configuration file", _parse_path, str
)
