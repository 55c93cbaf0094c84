import re
from pathlib import Path
from xml.etree import ElementTree as ET

from mdserver.bench.plots import distribution, per_percentile
from mdserver.bench.report import write_report
from mdserver.bench.results import Latencies, Moment, Row

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


def well_formed(svg: str) -> None:
    ET.fromstring(svg)  # noqa: S314 - we have made it


def measured() -> Row:
    latencies = Latencies()
    for ms in range(1, 1000):
        latencies.add(ms * 1_000_000, 3)
    row = Row(
        bench="latency",
        mode="<deliveries>",
        encoding="json",
        connections=10,
        count=2997,
        seconds=3.0,
        per_s=999.0,
        course=[Moment(at / 10, 30.0, 1.0, 2.0, 3.0 + at) for at in range(10)]
        + [Moment(1.0, 0.0, None, None, None)],
    )
    latencies.fill(row)
    return row


def test_a_report_has_tables_and_plots_and_loads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, [measured()], "mdserver bench latency --seconds 3", ["p99_ms is <990>"])
    page = path.read_text()
    plots = SVG.findall(page)
    assert len(plots) == 4
    for plot in plots:
        well_formed(plot)
        assert "nan" not in plot
    assert "&lt;deliveries&gt;" in page
    assert "p99_ms is &lt;990&gt;" in page
    assert "mdserver bench latency --seconds 3" in page
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=|url\(|http://|https://|<script", page)


def test_a_row_without_latencies_has_no_plots(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    row = Row(bench="idle", mode="-", encoding="json", connections=1, count=1, seconds=1, per_s=1)
    write_report(path, [row], "mdserver bench idle")
    assert "<svg" not in path.read_text()


def test_plots_show_even_one_latency_or_equal_ones() -> None:
    one = Latencies()
    one.add(5_000_000, 1)
    well_formed(per_percentile("p", [(0.0, one.max_ms)]))
    well_formed(distribution("d", [(one.max_ms, 1)]))
    assert distribution("d", []) == ""
