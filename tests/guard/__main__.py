"""`python -m tests.guard`: compare what is measured now with docs/performance.json.

Two kinds of figures: counts of the instructions and calls of a publication, which are the same on
any computer with the same Python, and ratios of processor time to a floor in C that takes turns
with the server. A figure that is worse by more than 10 % fails. A ratio that seems so is measured
again, since other load on the computer changes it. Ratios are those of one engine of the fan-out:
where the server has another one they are not measured.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mdserver.bench import fanout, publish, subjects
from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.floor import compiler
from mdserver.config import FanoutEngine
from mdserver.server.clients.fanout import open_fanout
from tests.guard import counts

KEPT = Path(__file__).parents[2] / "docs" / "performance.json"
TOLERANCE = 0.10
ATTEMPTS = 3
Figures = dict[str, float]


def worse(kept: Mapping[str, float], now: Mapping[str, float], less_is_better: bool) -> list[str]:
    """Return the names of the figures that are worse than the kept ones by more than 10 %."""
    found = []
    for name, figure in kept.items():
        measured = now[name]
        if less_is_better:
            bad = measured > figure * (1 + TOLERANCE)
        else:
            bad = measured < figure * (1 - TOLERANCE)
        if bad:
            found.append(name)
    return found


def best_ratios(
    kept: Mapping[str, float], measure: Callable[[], Figures], attempts: int = ATTEMPTS
) -> Figures:
    """Measure ratios, again while one seems worse; return the best of each."""
    best = measure()
    for _ in range(attempts - 1):
        if not worse(kept, best, less_is_better=False):
            break
        for name, figure in measure().items():
            best[name] = max(best.get(name, 0.0), figure)
    return best


def count_figures() -> Figures:
    """Count instructions and calls."""
    return {
        f"{name}: {what}": figure
        for name, counted in counts.measured().items()
        for what, figure in counted.items()
    }


def ratio_figures(seconds: float = 4.0) -> Figures:
    """Measure rates for a second of processor time, of the floor's one message at a time."""
    json_form = ENCODINGS["json"]

    def quiet(_: str) -> None:
        """Show nothing."""

    one, burst = fanout.measure(fanout.FanoutLoad(json_form, seconds=seconds), quiet)
    (many,) = subjects.measure(subjects.SubjectsLoad(json_form, seconds=seconds), quiet)
    pipelined, joined = publish.measure(publish.PublishLoad(json_form, count=50_000), quiet)
    floor = one.floor_per_cpu_s
    rates = {
        "fan-out, one message at a time": one.per_cpu_s,
        "fan-out, bursts of 20": burst.per_cpu_s,
        "1,000 subjects of one subscriber": many.per_cpu_s,
        "acknowledged publications, a WebSocket message each": pipelined.per_cpu_s,
        "acknowledged publications, 50 a WebSocket message": joined.per_cpu_s,
    }
    assert floor is not None
    return {name: rate / floor for name, rate in rates.items() if rate is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a figure is worse by more than 10 %."""
    parser = argparse.ArgumentParser(prog="python -m tests.guard", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what is measured now")
    parser.add_argument("--counts-only", action="store_true", help="leave the ratios out")
    given = parser.parse_args(arguments)
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    here = f"{platform.python_implementation()} {platform.python_version()}"
    console = Console(highlight=False, soft_wrap=True)
    now: dict[str, Figures] = {"counts": count_figures()}
    same = not kept or kept["python"].rpartition(".")[0] == here.rpartition(".")[0]
    if not same:
        console.print(f"counts are kept for {kept['python']}, this is {here}: not compared")
    engine = open_fanout(FanoutEngine.AUTO).engine.value  # a server here has the same one
    if compiler() is None:
        console.print("no C compiler, no floor: ratios are not measured")
    elif not given.write and kept.get("fanout", engine) != engine:
        console.print(f"ratios are kept for {kept['fanout']}, this is {engine}: not measured")
    elif not given.counts_only:
        old = {} if given.write else kept.get("ratios", {})
        now["ratios"] = best_ratios(old, ratio_figures)
    if given.write:
        kept |= {"python": here, **now} | ({"fanout": engine} if "ratios" in now else {})
        KEPT.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")
        return 0
    bad = [
        name
        for kind, figures in now.items()
        if same or kind != "counts"
        for name in worse(kept.get(kind, {}), figures, less_is_better=kind == "counts")
    ]
    table = Table("figure", "kept", "now", "change")
    for kind, figures in now.items():
        for name, figure in figures.items():
            before = kept.get(kind, {}).get(name)
            change = "" if before is None else f"{100 * (figure / before - 1):+.1f} %"
            cells = ["" if each is None else f"{each:.4g}" for each in (before, figure)]
            table.add_row(name, *cells, change, style="red" if name in bad else None)
    console.print(table)
    for name in bad:
        console.print(f"worse by more than {TOLERANCE:.0%}: {name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
