"""What a chaos run publishes, and what the archive must have of it.

The content of each message begins with a number of its own, by which its row is found again,
however the row looks.
"""

import random
import zlib
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from mdserver.client import Qos

NUMBER_DIGITS = 10
LONG_SEGMENT = 250
LARGE_BYTES = 60_000
WORDS = ("plain", "a é=%+&'~ b", '\\"quoted"', "line\u2028end", "\U0001f600")
KINDS = {"text": 8, "bytes": 3, "compressed": 3, "large text": 1, "large bytes": 1}
ODD_BYTES = bytes(range(256))


@frozen
class Given:
    """A publication as its publisher gave it; `content` is what readers get, not compressed."""

    number: int
    subject: str
    content: bytes
    text: bool
    compressed: bool
    fields: Mapping[str, str] | None
    closure: str | None
    retained: bool
    qos: Qos
    reply_subject: str | None
    epoch: int = field(default=0)
    seq: int = field(default=0)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `Client.publish` behind the subject and the content."""
        return {
            "fields": self.fields,
            "closure": self.closure,
            "retained": self.retained,
            "qos": self.qos,
            "compressed": self.compressed,
            "reply_subject": self.reply_subject,
        }

    def row(self) -> dict[str, Any]:
        """The columns of its row in the archive, once it is acknowledged."""
        return {
            "subject": self.subject,
            "content": self.content,
            "text": self.text,
            "compressed": self.compressed,
            "fields": dict(self.fields) if self.fields else None,
            "closure": self.closure,
            "retained": self.retained,
            "qos": self.qos.value,
            "reply_subject": self.reply_subject,
            "epoch": self.epoch,
            "seq": self.seq,
        }


def drawn(rng: random.Random, number: int) -> Given:
    """A publication of any kind."""
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    large = LARGE_BYTES if kind.startswith("large") else 0
    begin = f"{number:0{NUMBER_DIGITS}d}"
    text = kind in {"text", "large text"}
    if text:
        content = (begin + rng.choice(WORDS) * rng.randrange(4) + "x" * large).encode()
    else:
        content = begin.encode() + rng.randbytes(rng.randrange(40)) + ODD_BYTES * (large // 256)
    first = rng.choice(["p", "q", "long" * (LONG_SEGMENT // 4 + 1), rng.choice(WORDS[:3])])
    return Given(
        number=number,
        subject=f"/{first}/{rng.randrange(50)}",
        content=content,
        text=text,
        compressed=kind == "compressed",
        fields=_fields(rng),
        closure=rng.choice([None, None, "closed", rng.choice(WORDS)]),
        retained=rng.random() < 0.7,
        qos=Qos.STANDARD if rng.random() < 0.05 else Qos.GUARANTEED,
        reply_subject=rng.choice([None, None, f"/replies/{number % 7}"]),
    )


def _fields(rng: random.Random) -> dict[str, str] | None:
    if rng.random() < 0.5:
        return None
    return {f"{rng.choice(WORDS)}{n}": rng.choice(WORDS) for n in range(rng.randrange(1, 4))}


def number_of(content: bytes) -> int:
    """The number at the begin of a content, -1 if there is none."""
    begin = content[:NUMBER_DIGITS]
    return int(begin) if begin.isdigit() and len(begin) == NUMBER_DIGITS else -1


def plain(content: bytes, *, compressed: bool) -> bytes:
    """The content as its publisher gave it."""
    return zlib.decompress(content) if compressed else content
