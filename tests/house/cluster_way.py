"""Measure the way of one publication through a cluster of three members, socket to socket.

The members run in the main thread of one process, under `sys.setprofile`. Publisher, coordinator
and subscriber are at a member each. Members also send heartbeats, so what belongs to the way are
the modules that all of many publications meet.

Run as a program it prints the modules as JSON, in the order in which one publication meets them.
"""

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import structlog
import trio

from mdserver.bench.processes import free_ports
from mdserver.config import load
from mdserver.core.subjects import group_of
from mdserver.server.app import App, build
from tests.house import way

GROUPS = 64
"""So many that each member coordinates some, whatever ports the members have."""
PATIENCE_S = 60


def measured() -> list[str]:
    """Measure in a process of its own, as `way.measured` does."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.house.cluster_way"],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"the measurement failed: {done.stderr}")
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def member(address: str, addresses: list[str], folder: Path) -> App:
    """Return a member that listens where it likes."""
    settings = {
        "ClusterMembers": ",".join(addresses),
        "ClusterMemberListen": address,
        "ClusterPassword": "sixteen or more characters",
        "ClusterMemberCoordinationFolder": folder / address.partition(":")[2],
        "ClusterSubjectGroups": GROUPS,
    }
    more = [f"{name}={value}" for name, value in settings.items()]
    return build(load(overrides=[*way.SETTINGS, *more]).config)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - nobody tells when it begins to hold
            await trio.sleep(0.05)


def coordinated(app: App) -> list[int]:
    """Return the groups that a member coordinates."""
    groups = app.node.statistics().groups
    return [index for index, group in enumerate(groups) if group.active and group.coordinates]


async def ways() -> list[list[str]]:
    """Run three members and their clients; return the calls of each publication."""
    recorder = way.Recorder()
    with tempfile.TemporaryDirectory() as folder:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
        apps = [member(address, addresses, Path(folder)) for address in addresses]
        async with trio.open_nursery() as nursery:
            urls = [(await nursery.start(app.serve))[0] for app in apps]
            contact, coordinator, follower = range(3)
            await until(lambda: all(app.unready() is None and coordinated(app) for app in apps))
            group = coordinated(apps[coordinator])[0]
            numbers = range(1000 * GROUPS)
            subject = next(s for n in numbers if group_of(s := f"/house/{n}", GROUPS) == group)
            ports = [int(urls[index].rpartition(":")[2]) for index in (contact, follower)]
            sys.setprofile(recorder)
            try:
                found = await trio.to_thread.run_sync(way.play, *ports, recorder, subject)
            finally:
                sys.setprofile(None)
            nursery.cancel_scope.cancel()
    return found


def main() -> None:
    """Print the modules that every publication meets."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent)
    found = [way.Way(tuple(calls)).modules for calls in trio.run(ways)]
    common = set.intersection(*map(set, found))
    print(json.dumps([module for module in found[-1] if module in common]))


if __name__ == "__main__":
    main()
