"""`python -m tests.mutation.hunt SECONDS`: simulated runs of all kinds, until one fails.

The seconds are of the processor, so that other work on the machine changes nothing. The last line
says what failed; the exit status is 1 then. A run that does not end is killed by SIGXCPU.
"""

import resource
import sys
import time
from collections.abc import Iterator
from itertools import count

from attrs import evolve

from simulation import disk_profiles, profiles
from simulation.plan import Plan, make
from simulation.run import run
from simulation.stored import load

DIRECTED = (
    profiles.crowded,
    profiles.stale_tail,
    profiles.slow_successor,
    profiles.forgetful_voter,
    profiles.hasty,
    disk_profiles.put_back,
    disk_profiles.slow_disks,
    profiles.lagging_peer,
    profiles.disturbed_start,
    profiles.half_cut,
    profiles.repeated,
    profiles.forgetful,
    profiles.joining,
)
REDRAWN = 3
GRACE_S = 30
"""Processor time beyond the seconds that are asked for, after which a run is taken as endless."""


def plans() -> Iterator[tuple[str, Plan]]:
    """Yield the stored plans, then drawn ones of each kind in turn.

    How long messages take in a stored plan is drawn anew a few times, as any change shifts it.
    """
    for again in range(REDRAWN):
        for name, stored in load().items():
            yield name, evolve(stored.plan, seed=stored.plan.seed + again)
    for seed in count(1):
        for directed in DIRECTED:
            yield f"{directed.__name__} {seed}", directed(seed)
        for again in range(3):
            number = 3 * seed + again
            yield f"seed {number}", make(number)


def main(seconds: float) -> int:
    """Return 1 if a run fails."""
    limit = int(seconds + GRACE_S)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    for name, plan in plans():
        if time.process_time() > seconds:
            break
        problems = run(plan)[0].problems
        if problems:
            print(f"{name}: {problems[0]}"[:200])
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
