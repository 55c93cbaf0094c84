"""Run the models of a profile and print what came out."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from spec import tlc
from spec.models import Model

EXPECTED = {"holds": "holds", "witness": "violated", "mutant": "violated"}
TIMEOUT_S = {"quick": 120, "ci": 600, "full": 3600}


def fault(model: Model, run: tlc.Run) -> str | None:
    """Why the run is not what the model asks for; None if it is."""
    if run.verdict != EXPECTED[model.kind]:
        wanted = {"holds": "must hold", "witness": "must be reached", "mutant": "must be refuted"}
        return f"{wanted[model.kind]}, but: {run.verdict} {run.broken or ''}".rstrip()
    if model.kind == "holds":
        unused = sorted(set(run.idle) - set(model.idle))
        if unused:
            return f"actions that were never taken: {', '.join(unused)}"
    return None


def run_models(models: Iterable[Model], profile: str, jobs: int) -> Iterator[tuple[Model, tlc.Run]]:
    """Each model with its run, as they finish; `jobs` at a time, one worker each."""
    with ThreadPoolExecutor(jobs) as pool:
        runs = {
            pool.submit(
                tlc.check,
                model.module,
                model.config(),
                timeout_s=TIMEOUT_S[profile],
                behaviours=model.behaviours,
            ): model
            for model in models
        }
        try:
            for done in as_completed(runs):
                yield runs[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            tlc.end_running()
            raise


@contextmanager
def advancing(console: Console, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar where someone watches."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("models", total=total)
        yield lambda: progress.advance(task)


def check_models(models: tuple[Model, ...], profile: str, jobs: int | None = None) -> bool:
    """Check the models and print a table; whether each came out as it must."""
    console, errors = Console(width=None if os.isatty(1) else 110), Console(stderr=True)
    tlc.jar()
    tlc.java()
    results: dict[str, tuple[tlc.Run, str | None]] = {}
    with advancing(errors, len(models)) as advance:
        for model, run in run_models(models, profile, jobs or os.cpu_count() or 1):
            results[model.name] = (run, fault(model, run))
            advance()
    table = Table(title=f"Specification, profile {profile}")
    for column in ("module", "model"):
        table.add_column(column)
    for column in ("distinct states", "depth", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for model in models:
        run, problem = results[model.name]
        verdict = run.verdict if run.broken is None else f"{run.verdict}: {run.broken}"
        table.add_row(
            model.module,
            model.name,
            f"{run.states:,}",
            str(run.depth),
            f"{run.seconds:.1f}",
            f"ok ({verdict})" if problem is None else f"WRONG: {problem}",
        )
    console.print(table)
    wrong = [(name, run) for name, (run, problem) in results.items() if problem]
    for name, run in wrong:
        console.print(f"{name}:\n{run.output[-4000:]}", markup=False, highlight=False)
    states = sum(run.states for run, _ in results.values())
    console.print(f"{len(models)} models, {states:,} distinct states, {len(wrong)} wrong")
    return not wrong
