"""The notebooks of docs/notebooks run from the first cell to the last, on tables that are known."""

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from deltalake import write_deltalake

from mdserver.pipeline.common import delta, schema

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
START = dt.datetime(2026, 3, 1, 8, tzinfo=dt.UTC)
PRICES = [100.0, 110.0, 90.0, 105.0]
"""Of each stock in each minute."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stocks for three minutes, a message that is no price, some subscribers, and a fault.

    A receipt of ann is there twice, cid's is conflated, nobody confirms dan's.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    stocks = [
        message(f"/stocks/{name}", 4 * minute + n + 1, 60 * minute + 10 * n, b"%g" % price)
        for name in ("abc", "xyz")
        for minute in range(3)
        for n, price in enumerate(PRICES)
    ]
    append(folder, "messages", [*stocks, message("/stocks/abc", 13, 200, b"halted")])
    cid = receipt("cid", 1, 12) | {"n": 4, "conflated": 8}
    of_dan = receipt("dan", 1, 12) | {"verified": False}
    told = [receipt("ann", 1, 12), receipt("bob", 5, 12), cid, of_dan]
    repeated = receipt("ann", 1, 12) | {"opened_ts": START + dt.timedelta(milliseconds=1)}
    append(folder, "receipts", [*told, repeated, receipt("eve", 1, 3) | {"history": "older"}])
    found = {"kind": "altered", "proof": "member", "subscriber": "bob", "subject": "/stocks/abc"}
    rows = [found | {"n": 8, "first_bad_seq": 7}, found | {"kind": "unjudged", "n": 1}]
    append(folder, "audit_findings", rows)
    return folder


def append(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, schema=schema.TABLES[name])
    write_deltalake(delta.table(folder, name), table, mode="append")


def message(subject: str, seq: int, second: int, content: bytes) -> dict[str, Any]:
    moment = START + dt.timedelta(seconds=second)
    flags = {"text": True, "compressed": False, "qos": "GUARANTEED", "dt": "2026-03-01"}
    place = {"root": "stocks", "subject": subject, "history": "h", "epoch": 1, "seq": seq}
    return {**place, **flags, "content": content, "ts_server": moment, "crc": 1}


def receipt(subscriber: str, low: int, high: int) -> dict[str, Any]:
    ends = {"opened_ts": START, "closed_ts": START + dt.timedelta(minutes=3)}
    place = {"session": f"s-{subscriber}", "subject": "/stocks/abc", "history": "h", "epoch": 1}
    numbers = {"seq_lo": low, "seq_hi": high, "n": high - low + 1}
    return {"subscriber": subscriber, **place, **ends, **numbers}


def run(name: str) -> dict[str, Any]:
    """The names that the cells of a notebook leave, run one after the other in one module."""
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    left: dict[str, Any] = {"__name__": name}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            code = compile("".join(cell["source"]), f"{name}:{cell['id']}", "exec")
            exec(code, left)  # noqa: S102 (what a kernel does, without another process)
    return left


@pytest.fixture(autouse=True)
def environment(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "MDSERVER_TABLES", str(archive))
    monkeypatch.setitem(os.environ, "SUBJECT", "/stocks/abc")
    monkeypatch.setitem(os.environ, "SEQ", "3")


def test_every_notebook_has_a_test() -> None:
    assert {path.stem for path in FOLDER.glob("*")} == {"prices", "who_got_what", "capacity"}


def test_prices() -> None:
    left = run("prices")
    assert left["messages"].num_rows == 25
    bars = left["bars"].fetchall()
    assert [bar[0] for bar in bars] == ["/stocks/abc"] * 3 + ["/stocks/xyz"] * 3
    assert {bar[2:] for bar in bars} == {(100.0, 110.0, 90.0, 105.0, 4)}
    assert left["moves"].fetchall() == [
        ("/stocks/abc", pytest.approx(200 / 9)),
        ("/stocks/xyz", pytest.approx(200 / 9)),
    ]


def test_who_got_what() -> None:
    left = run("who_got_what")
    assert [row[:3] for row in left["got"].fetchall()] == [
        *(("ann", 1, 12), ("bob", 1, 8), ("cid", 1, 4), ("eve", 1, 3))
    ]
    assert left["faults"].fetchall() == [("bob", "/stocks/abc", "altered", 8, 7)]
    assert left["takers"].fetchall() == [("h", "ann", "s-ann"), ("older", "eve", "s-eve")]


def test_who_got_what_in_one_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HISTORY", "h")
    assert run("who_got_what")["takers"].fetchall() == [("h", "ann", "s-ann")]


def test_capacity() -> None:
    left = run("capacity")
    assert len(left["busiest"].fetchall()) == 5
    ((day, files, messages, size, each),) = left["days"].fetchall()
    assert (day, files, messages) == ("2026-03-01", 1, 25)
    assert each == pytest.approx(size / 25)
    assert left["lasting"] == 1_000_000_000_000 // size
