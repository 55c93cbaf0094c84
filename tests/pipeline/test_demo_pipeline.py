"""`make pipeline-demo`: everything arrives, is archived, judged whole, and asked about."""

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

DEMO = Path(__file__).parents[2] / "docs" / "examples" / "pipeline_demo.py"
PRICES = 560
TIMEOUT_S = 900

pytestmark = [pytest.mark.pipeline, pytest.mark.slow, pytest.mark.soak]


def test_the_demo(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    run = subprocess.run(
        [sys.executable, str(DEMO), str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "560 prices were published and received" in run.stdout
    assert "derived: /alerts/GOOG  GOOG trades at 404.91" in run.stdout
    assert ", 0 not whole, 0 gaps" in run.stdout
    stocks = DeltaTable(folder / "tables" / "messages").to_pyarrow_table(
        filters=[("root", "=", "stocks")]
    )
    assert stocks.num_rows == PRICES
    assert "Everything that was promised was delivered." in (folder / "audit.html").read_text()
