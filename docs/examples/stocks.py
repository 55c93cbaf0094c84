"""Monthly prices of five companies as publications: one JSON object a line, oldest first.

    python docs/examples/stocks.py | mdserver pub --stdin --rate 50

The data set is `stocks.csv` of the package vega_datasets: symbol, date, price. The price is the
content of a message about `/stocks/SYMBOL`, the rest are its fields.
"""

import csv
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from vega_datasets import local_data


def publications(file: Path) -> list[dict[str, object]]:
    """The rows of the data set as `publish` commands, in the order of their dates."""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    dated = [(datetime.strptime(row["date"], "%b %d %Y").replace(tzinfo=UTC), row) for row in rows]
    dated.sort(key=lambda pair: pair[0])
    return [
        {
            "subject": f"/stocks/{row['symbol']}",
            "content": row["price"],
            "fields": {"date": f"{date:%Y-%m-%d}", "currency": "USD"},
        }
        for date, row in dated
    ]


if __name__ == "__main__":
    for publication in publications(Path(local_data.stocks.filepath)):
        sys.stdout.write(json.dumps(publication) + "\n")
