"""Processes that do nothing but runs, one after the other."""

import gc
from concurrent.futures import ProcessPoolExecutor

YOUNG_MAX = 200_000  # what some fifteen drawn plans leave behind: 30 MB


def pool(jobs: int | None) -> ProcessPoolExecutor:
    """Return processes for runs; None for as many as there are cores."""
    return ProcessPoolExecutor(jobs, initializer=collect_seldom)


def collect_seldom() -> None:
    """Have the garbage collector look at what runs leave behind, and seldom.

    A run makes a world that lives until its end, so to look at it meanwhile finds next to nothing.
    What was imported stays for good.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, 2, 2)
