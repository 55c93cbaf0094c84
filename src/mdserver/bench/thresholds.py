"""Thresholds for `--fail-if`: what must not be true of any row of a measurement."""

import difflib
import math
import operator
import re
from collections.abc import Callable, Sequence

from attrs import frozen

from mdserver.bench.results import Row, columns
from mdserver.errors import ConfigError

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_FORM = re.compile(
    r"(?:(?P<mode>[^:]+):)?\s*(?P<column>\w+)\s*(?P<sign>[<>]=?|[=!]=)\s*(?P<bound>\S+)"
)
_TEXTS = ("bench", "mode", "encoding")


@frozen
class Threshold:
    """A comparison of a column with a number, for the rows of one mode or for all of them."""

    text: str
    column: str
    sign: str
    bound: float
    mode: str | None = None

    @classmethod
    def read(cls, text: str) -> "Threshold":
        """Read `p99_ms > 50` or `storm: p99_ms > 100`.

        Raises ConfigError that says what would be right.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"{text!r}: expected COLUMN > NUMBER, as in 'p99_ms > 50'")
        try:
            bound = float(match["bound"])
        except ValueError:
            raise ConfigError(f"{text!r}: {match['bound']!r} is no number") from None
        if not math.isfinite(bound):
            raise ConfigError(f"{text!r}: expected a finite number, not {match['bound']!r}")
        known = [name for name in columns() if name not in _TEXTS]
        if match["column"] not in known:
            close = difflib.get_close_matches(match["column"], known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"{text!r}: there is no column {match['column']!r}; {hint}")
        mode = match["mode"]
        return cls(text, match["column"], match["sign"], bound, mode.strip() if mode else None)

    def broken_by(self, rows: Sequence[Row]) -> list[str]:
        """Return what is wrong with the rows, a sentence for each.

        A threshold that no row has a figure for is broken, too: it would never tell.
        """
        figures = [
            (row, figure)
            for row in rows
            if self.mode in (None, row.mode) and (figure := getattr(row, self.column)) is not None
        ]
        if not figures:
            modes = ", ".join(repr(row.mode) for row in rows)
            return [f"--fail-if {self.text!r}: no row has that figure; the rows are {modes}"]
        return [
            f"--fail-if {self.text!r}: {self.column} is {figure:g} in {row.bench}, {row.mode}"
            for row, figure in figures
            if _OPERATORS[self.sign](figure, self.bound)
        ]
