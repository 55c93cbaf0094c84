"""A neighbour's round trip and the server's memory while an attacker is at work.

The server and each attacker are processes of their own. Machines that run tests are busy, so the
bound on the round trip is ten times that of `python -m mdserver.bench hostile`.
"""

import pytest

from mdserver.bench import hostile
from mdserver.bench.attackers import FLOODS, HOLDS, UNFINISHED_CONNECTIONS
from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.results import Row
from mdserver.cli.memory import CONNECTION_BYTES
from mdserver.limits import KB, UNFINISHED_BYTES_MAX, UNFINISHED_FREE_BYTES

SECONDS = 1.5
LOAD = hostile.HostileLoad(encoding=ENCODINGS["json"], seconds=SECONDS)
HELD_KIB_MAX = 160 * 1024
UNFINISHED_KIB_MAX = (
    UNFINISHED_BYTES_MAX + UNFINISHED_CONNECTIONS * (UNFINISHED_FREE_BYTES + CONNECTION_BYTES)
) // KB
"""What docs/security.md adds up for so many connections, of which strangers may have half."""
ALLOCATOR = 1.25
"""What the allocator keeps beside what is in use varies by a quarter from one run to the next."""
ADDED_MS_MAX = 10 * hostile.ADDED_MS_MAX


def shown(row: Row) -> str:
    """The figures, for whoever reads the test's output."""
    return (
        f"{row.mode}: p50 {row.p50_ms:.1f} ms, p99 {row.p99_ms:.1f} ms, "
        f"resident {row.resident_kib} KiB, of which the attack added {row.kib_each:.0f}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("attack", FLOODS)
def test_a_flood_costs_a_neighbour_little(attack: str) -> None:
    quiet = hostile.measured(LOAD, None)
    row = hostile.measured(LOAD, attack)
    print(f"\n{shown(quiet)}\n{shown(row)}")
    assert row.count > 0
    assert (row.p99_ms or 0) < (quiet.p99_ms or 0) + ADDED_MS_MAX
    assert (row.kib_each or 0) < 64 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("attack", HOLDS)
def test_what_attackers_hold_is_bounded(attack: str) -> None:
    row = hostile.measured(LOAD, attack)
    print(f"\n{shown(row)}")
    assert row.count > 0
    assert (row.kib_each or 0) < HELD_KIB_MAX


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["unfinished-messages", "unfinished-bodies"])
def test_what_is_unfinished_takes_no_more_than_the_documented_sum(attack: str) -> None:
    """Those that are refused give back what they hold, and more of them is not kept."""
    row = hostile.measured(LOAD, attack)
    print(f"\n{shown(row)}")
    assert (row.kib_each or 0) < ALLOCATOR * UNFINISHED_KIB_MAX
