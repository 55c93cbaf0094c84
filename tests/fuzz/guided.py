"""`python -m tests.fuzz.guided`: look for bytes that break a parser, led by its branches.

atheris (libFuzzer) changes what `seeds/` has, and goes on from whatever reaches a new branch. Bytes
that break a parser are saved in `build/fuzz/`; add them to `seeds/NAME` with the fix, so that
`tests/hostile/test_parsers.py` reads them again for ever. `--keep` writes the smallest set that
reaches as much back into `seeds/`.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

TOP = Path(__file__).parents[2]
FAILED = TOP / "build" / "fuzz"
BYTES_MAX = 600
PROGRAM = """
import sys, atheris
with atheris.instrument_imports(include=["mdserver", "h11", "wsproto"]):
    from tests.fuzz.parsers import PARSERS
atheris.Setup([sys.argv[0], *sys.argv[2:]], PARSERS[sys.argv[1]])
atheris.Fuzz()
"""


def fuzz(name: str, *options: object) -> int:
    """Run libFuzzer on one parser; its exit status."""
    words = [sys.executable, "-c", PROGRAM, name, f"-max_len={BYTES_MAX}", *map(str, options)]
    return subprocess.run(words, cwd=TOP, check=False).returncode


def steps(parse: Callable[[bytes], None], one: bytes) -> set[tuple[object, int, int]]:
    """Return from which line to which line of the server's code a parser goes."""
    taken: set[tuple[object, int, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if "mdserver" not in frame.f_code.co_filename:
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal last
            taken.add((frame.f_code, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    sys.settrace(trace)
    try:
        parse(one)
    finally:
        sys.settrace(None)
    return taken


def least(parse: Callable[[bytes], None], inputs: Sequence[bytes]) -> list[bytes]:
    """Choose inputs that together take every step that all of them take; short ones first."""
    kept: list[bytes] = []
    known: set[tuple[object, int, int]] = set()
    for one in sorted(inputs, key=len):
        taken = steps(parse, one)
        if not taken <= known:
            known |= taken
            kept.append(one)
    return kept


def main() -> int:
    """Exit status 1 if a parser was broken."""
    from tests.fuzz.parsers import PARSERS, corpus, keep  # noqa: PLC0415 - not needed for --help

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PARSERS], help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each; default 60")
    parser.add_argument("--keep", action="store_true", help="write what was reached to seeds/")
    given = parser.parse_args()
    broken = []
    FAILED.mkdir(parents=True, exist_ok=True)
    for name in given.names or PARSERS:
        with tempfile.TemporaryDirectory(prefix="mdserver-fuzz-") as folder:
            found = Path(folder)
            for number, one in enumerate(corpus(name)):
                (found / f"seed-{number}").write_bytes(one)
            limit = f"-max_total_time={given.seconds}"
            artifacts = f"-artifact_prefix={FAILED}/{name}-"
            if fuzz(name, limit, artifacts, "-verbosity=0", found):
                broken.append(name)
            elif given.keep:
                inputs = sorted({*corpus(name), *(path.read_bytes() for path in found.iterdir())})
                keep(name, least(PARSERS[name], inputs))
    print("broken:", ", ".join(broken) or "none")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
