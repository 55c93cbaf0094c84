"""How many rows that were set aside are kept: a rule that refuses each message fills no disk."""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field

ROWS_MAX = 1_000
"""The most rows of a rule within an hour before only some are kept: they show what is wrong."""
HOUR_S = 3_600


@define
class RowsAside:
    """The count of rows that were set aside within an hour, by rule; lines count as one rule.

    `now` is the clock (s). A process that is started again begins to count anew.
    """

    _now: Callable[[], float]
    _hour: int = 0
    _counts: dict[str, int] = field(factory=dict)

    def kept(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows to keep.

        Behind `ROWS_MAX` rows it is the row at each doubling, whose reason says how many there are.
        """
        hour = int(self._now() // HOUR_S)
        if hour != self._hour:
            self._hour, self._counts = hour, {}
        found = []
        for row in rows:
            rule = _rule_of(row["reason"])
            count = self._counts[rule] = self._counts.get(rule, 0) + 1
            if count <= ROWS_MAX:
                found.append(row)
            elif count % ROWS_MAX == 0 and (count // ROWS_MAX).bit_count() == 1:
                said = f"{row['reason']} (row {count:,} within the hour; most of them are not kept)"
                found.append(row | {"reason": said})
        return found


def _rule_of(reason: str) -> str:
    """Return the part of a reason that names the rule, "" for a line that cannot be used."""
    return reason.partition(": ")[0] if reason.startswith("rule ") else ""
