"""A market of real prices that never ends: one JSON object a line, at the pace of the market.

    python docs/examples/market.py | mdserver pub --stdin

The prices are the monthly ones of stocks.py. Each subject `/market/SYMBOL/MONTH` follows a company
from another month on, a month a tick, and begins anew at the end: 200 subjects, 5 ticks a second.
"""

import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from stocks import publications
from vega_datasets import local_data

LINES = 40
TICKS_PER_S = 5


def ticks() -> Iterator[list[dict[str, object]]]:
    """Gives what each tick changes, for ever."""
    prices: dict[str, list[tuple[str, float]]] = {}
    for row in publications(Path(local_data.stocks.filepath)):
        symbol = str(row["subject"]).rpartition("/")[2]
        date = row["fields"]["date"]  # type: ignore[index]
        prices.setdefault(symbol, []).append((date, float(str(row["content"]))))
    for tick in itertools.count():
        yield [
            publication(symbol, history, start, tick)
            for symbol, history in prices.items()
            for start in range(LINES)
        ]


def publication(
    symbol: str, history: list[tuple[str, float]], start: int, tick: int
) -> dict[str, object]:
    """The price of one line at a tick, with what became of it since the line's first month."""
    now = start + tick % (len(history) - start)
    seen = [price for _, price in history[start : now + 1]]
    date, price = history[now]
    fields = {
        "date": date[:7],
        "change": f"{100 * (price / seen[0] - 1):+.1f}",
        "low": f"{min(seen):.2f}",
        "high": f"{max(seen):.2f}",
    }
    subject = f"/market/{symbol}/{history[start][0][:7]}"
    return {"subject": subject, "content": f"{price:.2f}", "fields": fields}


def main() -> None:
    """Writes tick after tick, until nobody reads any more."""
    began = time.monotonic()
    for number, changes in enumerate(ticks()):
        time.sleep(max(0, began + number / TICKS_PER_S - time.monotonic()))
        sys.stdout.write("".join(json.dumps(change) + "\n" for change in changes))
        sys.stdout.flush()


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(ending, signal.SIG_DFL)  # ends without a traceback, as other filters do
    main()
