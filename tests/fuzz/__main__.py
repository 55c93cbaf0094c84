"""`python -m tests.fuzz`: drive a live server with hostile input and see that it stays well.

Inputs come from a seed, which is printed, and from those in `corpus/`. After each batch the process
has to be alive, a well-behaved client has to be served, and the log may hold no error. What failed
is saved in `build/fuzz/`, alone if it does so alone: copy it into `corpus/` with the fix, so that
`tests/hostile/test_corpus.py` sends it again for ever.
"""

import argparse
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from tests.fuzz.inputs import Input, Inputs
from tests.fuzz.kept import corpus, save
from tests.fuzz.target import Target, Unwell, target

FOLDERS = "mdserver-fuzz-"
BATCH = 200
FAILED = Path("build/fuzz")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if the server did not stay well."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    inputs = Inputs(random.Random(given.seed), corpus())
    with tempfile.TemporaryDirectory(prefix=FOLDERS) as folder, target(Path(folder)) as one:
        failed = drive(one, inputs, given.seconds)
        if failed is None:
            return 0
        one.server.process.kill()
        one.server.process.wait()
    culprits = alone(failed)
    for path in save(FAILED, culprits):
        print(f"saved {path}")
    return 1


def drive(one: Target, inputs: Inputs, seconds: float) -> Sequence[Input] | None:
    """Send batches for so long; the batch after which the server was not well, None if none was."""
    ends = time.monotonic() + seconds
    sent = shown = 0
    while time.monotonic() < ends:
        batch = [inputs.next() for _ in range(BATCH)]
        try:
            trio.run(played, one, batch)
        except Unwell as error:
            print(f"after {sent + len(batch)} inputs: {error}", flush=True)
            return batch
        sent += len(batch)
        if sent >= 2 * shown or time.monotonic() >= ends:
            shown = sent
            print(f"{sent} inputs, {one.resident_kib()} KiB resident", flush=True)
    return None


def alone(batch: Sequence[Input]) -> Sequence[Input]:
    """Which input of a batch does it alone, at a server of its own; all of them if none does."""
    for single in batch:
        with tempfile.TemporaryDirectory(prefix=FOLDERS) as folder:
            try:
                with target(Path(folder)) as one:
                    trio.run(played, one, [single])
            except (Unwell, AssertionError) as error:
                print(f"alone: {single.kind} {single.data[:200]!r}: {error}", flush=True)
                return [single]
    return batch


async def played(one: Target, batch: Sequence[Input]) -> None:
    """Send a batch and see how the server is."""
    await one.play(batch)
    await one.check()


if __name__ == "__main__":
    sys.exit(main())
