"""Plans of chaos runs, who may be killed when, and what counts as silence."""

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from mdserver.limits import NS_PER_S
from simulation.chaos.cluster import Cluster
from simulation.chaos.faults import Faults
from simulation.chaos.loopback import Loopback
from simulation.chaos.members import at_wrong_times
from simulation.chaos.namespaces import Namespaces
from simulation.chaos.parts import MIXED, less, over_all, possible
from simulation.chaos.plan import (
    BLACKOUT,
    CLOCK,
    HALF_CUT,
    LOSE_RESULTS,
    OTHER_KINDS,
    PROCESS_KINDS,
    SERVED_WITHIN_S,
    make,
)
from simulation.chaos.profiles import CHANGES, PROFILES, make_rounds
from simulation.chaos.proxy import Connection, Proxy
from simulation.chaos.run import WHOLE_S
from simulation.chaos.silence import SERVED_MAX_S, WALL_MAX_S, Availability, Silence
from simulation.plan import Fault


def test_a_plan_follows_from_its_seed_and_a_minute_has_every_kind() -> None:
    plans = [make(seed, 60, 5, clocks=True) for seed in range(50)]
    assert plans == [make(seed, 60, 5, clocks=True) for seed in range(50)]
    wanted = {*PROCESS_KINDS, *OTHER_KINDS, CLOCK}
    assert all(len(wanted - set(plan.kinds)) <= plan.reckless for plan in plans)
    assert {plan.seeds for plan in plans} == {3, 5}
    assert all((BLACKOUT in plan.kinds) == plan.reckless for plan in plans)
    assert any(plan.reckless for plan in plans)
    assert CLOCK not in make(1, 60, 3, clocks=False).kinds


def test_half_cut_networks_are_faults_of_their_own_and_last() -> None:
    (short,) = make(1, 15, 3, clocks=False, only=[HALF_CUT]).faults
    long = make(1, 300, 4, clocks=False, only=[HALF_CUT]).faults
    assert short.lasting == 2 * SERVED_WITHIN_S * NS_PER_S
    assert [fault.lasting for fault in long] == [60 * NS_PER_S] * 4
    assert all(a.at + a.lasting < b.at for a, b in pairwise(long))
    assert long[-1].at + long[-1].lasting <= 300 * NS_PER_S
    with pytest.raises(ValueError, match="half-cut is a fault of its own"):
        make(1, 15, 3, clocks=False, only=[HALF_CUT, "kill"])


def test_short_runs_differ_in_what_they_do() -> None:
    assert len({make(seed, 10, 3, clocks=True).kinds for seed in range(20)}) > 10


@pytest.mark.parametrize(("members", "seeds"), [(3, 3), (5, 5)])
def test_no_seed_may_end_that_the_majority_needs(tmp_path: Path, members: int, seeds: int) -> None:
    plan = next(p for s in range(9) if (p := make(s, 9, members, clocks=False)).seeds == seeds)
    cluster = Cluster(plan, Loopback(members), tmp_path, lambda _: None)
    majority = seeds // 2 + 1
    for count, member in enumerate(cluster.members):
        member.prove()
        # Without this one there are as many as were proven before it.
        assert cluster.spare(member) == (count >= majority)
    cluster.doomed = dict.fromkeys(range(seeds - majority))
    last = cluster.members[-1]
    assert not cluster.spare(last)
    cluster.doomed.popitem()
    assert cluster.spare(last)


def test_while_seeds_change_a_majority_of_either_list_is_needed(tmp_path: Path) -> None:
    cluster = Cluster(make_rounds("seeds", 1, 8), Loopback(5), tmp_path, lambda _: None)
    for member in cluster.members:
        member.prove()

    def spared() -> list[int]:
        return [member.number for member in cluster.members if cluster.spare(member)]

    assert cluster.seeds == [0, 1, 2]
    assert spared() == [0, 1, 2, 3, 4]
    cluster.next = [0, 1, 2, 3]
    assert spared() == [3, 4], "the new one does not vote yet: of four, all three others have to"
    cluster.seeds, cluster.next = cluster.next, [1, 2, 3]
    assert spared() == [0, 1, 2, 3, 4]
    cluster.doomed[0] = None
    assert spared() == [0, 4]
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as process:
        for member in cluster.members[1:3]:
            member.running = process
        assert not cluster.able(), "two of four"
        cluster.members[3].running = process
        assert cluster.able()
        cluster.next = [0, 1, 2]
        assert cluster.able()
        cluster.next = [0, 1, 4]
        assert not cluster.able(), "one of three"


def test_silence_counts_only_while_publications_could_be_taken() -> None:
    available = Availability()
    available.acked(1.0)
    assert available.longest_s == 0
    available.now_able(True, 10.0)
    available.now_able(True, 11.0)
    available.acked(13.0)
    assert available.longest_s == 3.0
    available.acked(14.0)
    available.now_able(False, 14.5)
    available.now_able(True, 60.0)
    available.acked(62.0)
    assert available.longest_s == 3.0
    available.now_able(False, 70.0)
    assert available.longest_s == 8.0


def test_silence_has_a_bound_by_each_clock() -> None:
    silence = Silence()
    silence.now_able(True, 0.0, 0.0)
    silence.acked(SERVED_MAX_S, SERVED_MAX_S)
    assert silence.problem() is None
    silence.acked(SERVED_MAX_S + WALL_MAX_S, SERVED_MAX_S + 1)
    assert silence.problem() is None
    silence.acked(SERVED_MAX_S + 2 * WALL_MAX_S + 1, SERVED_MAX_S + 1)
    hangs = silence.problem()
    assert hangs is not None
    assert hangs.startswith(f"nothing was acknowledged for {WALL_MAX_S + 1}.0 s")
    assert "whoever had the processors" in hangs
    silence.acked(200.0, 2 * SERVED_MAX_S + 3)
    served = silence.problem()
    assert served is not None
    assert "and had a processor" in served


def test_members_change_in_rounds_of_every_kind() -> None:
    plan = make_rounds("members", 1, 6)
    assert plan == make_rounds("members", 1, 6)
    assert [fault.kind for fault in plan.faults] == [*CHANGES, *CHANGES]
    assert (plan.members, plan.seeds) == (4, 3)
    assert all(a.at < b.at for a, b in pairwise(plan.faults))


def test_a_run_of_seeds_that_is_judged_as_a_whole_lets_a_publisher_repeat() -> None:
    rounds = -(-WHOLE_S // PROFILES["seeds"].round_s)
    for seed in range(20):
        assert LOSE_RESULTS in make_rounds("seeds", seed, rounds).kinds


async def test_a_cut_of_clients_waits_until_there_are_any(tmp_path: Path) -> None:
    cluster = Cluster(make_rounds("seeds", 1, 8), Loopback(5), tmp_path, lambda _: None)
    cluster.doors = [Proxy(("127.0.0.1", 9)) for _ in cluster.members]
    faults = Faults(cluster, lambda: None, lambda: None, lambda _: None, lambda _: [])
    fault = Fault(0, "cut-clients", 0, 0, 0, 7)
    cut: list[bool] = []

    async def do() -> None:
        cut.append(await faults._cut_clients(fault))

    near, far = trio.testing.lockstep_stream_pair()
    connection = Connection(near, far, trio.CancelScope())  # type: ignore[arg-type]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(do)
            await trio.testing.wait_all_tasks_blocked()
            assert cut == []
            cluster.doors[2].route().connections[connection] = None
            cluster.looked.unpark_all()
    assert cut == [True]
    assert connection.left == 1 + 7


def test_lists_follow_who_moves_leaves_and_comes_back(tmp_path: Path) -> None:
    wire = Loopback(4)
    wire.proxies = [Proxy(("127.0.0.1", 9)) for _ in range(4)]
    for number, proxy in enumerate(wire.proxies):
        proxy.address = ("127.0.0.1", number + 1)
    cluster = Cluster(make_rounds("members", 1, 6), wire, tmp_path, lambda _: None)
    for number in range(4):
        cluster.enlist(number)
    cluster.members[1].moved_to = ("127.0.0.1", 20)
    cluster.enlist(1)
    cluster.strike(3)
    cluster.spread()
    lists = {path.read_text() for path in tmp_path.glob("m*.conf")}
    assert lists == {"ClusterMembers = 127.0.0.1:1, 127.0.0.1:2@127.0.0.1:20, 127.0.0.1:3\n"}
    cluster.enlist(3)
    cluster.spread()
    assert (tmp_path / "m0.conf").read_text().endswith("127.0.0.1:3, 127.0.0.1:4\n")


def test_a_member_that_has_just_begun_reads_another_list_once_it_is_proven(tmp_path: Path) -> None:
    plan = next(p for s in range(9) if (p := make(s, 9, 3, clocks=False)).seeds == 3)
    member = Cluster(plan, Loopback(3), tmp_path, lambda _: None).members[0]
    program = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])\n"
        "print('begun', flush=True)\n"
        "assert sys.stdin.readline() == 'pending?\\n'\n"
        "print(signal.SIGHUP in signal.sigpending(), flush=True)\n"
        "signal.sigwait([signal.SIGHUP])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            member.running = process
            member.reload()
            process.stdin.write(b"pending?\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"False\n"
            member.prove()
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_has_each_of_its_faults_and_one_can_do_them(name: str, tmp_path: Path) -> None:
    profile = PROFILES[name]
    plan = make_rounds(name, 3, 2 * len(profile.kinds))
    assert plan == make_rounds(name, 3, 2 * len(profile.kinds))
    assert plan != make_rounds(name, 4, 2 * len(profile.kinds))
    assert Counter(fault.kind for fault in plan.faults) == Counter(2 * profile.kinds)
    assert all(0 <= fault.first < plan.members for fault in plan.faults)
    if not plan.upgraded:  # which unpacks the release before
        cluster = Cluster(plan, Loopback(plan.members), tmp_path, lambda _: None)
        known = Faults(cluster, lambda: None, lambda: None, lambda _: None, lambda _: [])
        assert known.knows(plan.kinds)


def test_the_long_profile_has_all_others_and_tells_once_what_it_leaves_out() -> None:
    told: list[str] = []
    names: list[str] = []
    for part in possible(over_all(1), Loopback, told.append):
        names.append(part.name)
        if part.plan.seed == 3:
            break
    assert len(told) == len({line.split(":")[0] for line in told})
    left_out = {line.split(":")[0].rpartition(" ")[2] for line in told}
    assert {"disks", "packets"} <= left_out
    assert {MIXED, HALF_CUT, *PROFILES} == {*names} | left_out


def test_a_run_that_encrypts_less_here_says_so() -> None:
    encrypted, plain = make_rounds("tls", 1, 2), make_rounds("journal", 1, 2)
    said = less(encrypted, Loopback(3))
    assert said is not None
    assert said.startswith("TLS for clients only")
    assert less(encrypted, Namespaces(3)) is None
    assert less(plain, Loopback(3)) is None


def test_lines_of_a_wrong_clock_are_told_from_those_of_the_run(tmp_path: Path) -> None:
    plan = make_rounds("clocks", 1, 6)
    members = Cluster(plan, Loopback(3), tmp_path, lambda _: None).members
    lines = [
        '{"time":"2026-01-01T12:00:00.5Z","event":"ready"}',
        '{"time":"2026-01-01T11:59:30.123456Z","event":"a moment before"}',
        '{"time":"2026-01-01T11:00:00.000000Z","event":"an hour before"}',
        '{"time":"2026-01-02T12:00:00.000000Z","event":"a day after"}',
        '{"event":"without"}',
        "Traceback (most recent call last):",
        "[]",
    ]
    members[0].log.write_text("\n".join(lines), encoding="utf-8")
    since = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert at_wrong_times(members, since, since + timedelta(minutes=2)) == 2
