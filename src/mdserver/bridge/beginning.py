"""Where the copy of a partition begins: by the row that a bridge kept, if there is one."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from attrs import frozen

from mdserver.client import Numbering
from mdserver.limits import KAFKA_BRIDGE_RECORDS

Count = Annotated[int, msgspec.Meta(ge=0)]


class NumberingRow(msgspec.Struct):
    """The numbering of a partition's publisher as a row has it."""

    groups: Count
    taken: dict[int, int]
    publisher: str | None
    publisher_key: str | None


class PartitionRow(msgspec.Struct):
    """What a row of a partition has to be."""

    topic: str
    offset: Count
    rules: str
    numbering: NumberingRow
    beyond: list[Count] = []


@frozen
class PartitionNow:
    """What Kafka says of a partition: `low` is its first offset, `high` the one after the last."""

    topic: str
    number: int
    topic_id: str
    low: int
    high: int

    @property
    def name(self) -> str:
        """The key of its row."""
        return f"{self.topic}/{self.number}"


@frozen
class Beginning:
    """The first offset to copy, and under which numbers; None begins to count anew.

    `beyond`: later offsets that were copied already. `told`: what the user has to know.
    """

    offset: int
    numbering: Numbering | None = None
    beyond: frozenset[int] = frozenset()
    told: str | None = None


def beginning(
    now: PartitionNow, rows: Mapping[str, Any], digest: str, *, from_beginning: bool
) -> Beginning:
    """Return where a partition begins; `digest` stands for the rules that number its records."""
    row = rows.get(now.name)
    if row is None:
        # A partition that a known topic got since the last start holds what was not copied yet.
        known = any(key.rpartition("/")[0] == now.topic for key in rows)
        return Beginning(now.low if from_beginning or known else now.high)
    if row["topic"] != now.topic_id:
        return Beginning(now.low, told=f"{now.topic} was created again: copied from its beginning")
    offset = int(row["offset"])
    if offset > now.high:
        told = (
            f"{now.name}: Kafka has lost records: it ends at {now.high}, and {offset} was reached: "
            "copied from its beginning"
        )
        return Beginning(now.low, told=told)
    gone = removed(now, offset)
    beyond = frozenset(map(int, row.get("beyond", ())))
    if row["rules"] == digest:
        return Beginning(max(offset, now.low), _numbering(row["numbering"]), beyond, gone)
    again = (
        f"the rules are others than before: up to {KAFKA_BRIDGE_RECORDS} records of {now.name} "
        "may be copied twice"
    )
    return Beginning(max(offset, now.low), None, beyond, again if gone is None else gone)


def removed(now: PartitionNow, offset: int) -> str | None:
    """Return what to tell of records that are gone before they were copied; None if none are."""
    if offset >= now.low:
        return None
    return (
        f"{now.name}: retention removed the records from {offset} to {now.low - 1} "
        "before they were copied"
    )


def _numbering(kept: Mapping[str, Any]) -> Numbering:
    taken = {int(group): number for group, number in kept["taken"].items()}
    return Numbering(kept["groups"], taken, kept["publisher"], kept["publisher_key"])
