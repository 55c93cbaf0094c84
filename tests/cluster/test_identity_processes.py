"""Seeds that are started with a parameter of another cluster: refused, and nothing is written."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mdserver.bench.processes import free_ports
from tests.cluster.live_cluster import LiveCluster

pytestmark = pytest.mark.slow

SUBJECTS = [f"/s/{index}" for index in range(6)]
END_TIMEOUT_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """Three seeds that keep what they acknowledge, with something to keep."""
    settings = {
        "Journal": "on",
        "JournalFsync": "commit",
        "JournalFolder": f"{tmp_path}/journal-INDEX",
    }
    with LiveCluster(tmp_path, 3, settings=settings) as started:
        for subject in SUBJECTS:
            started.wait(lambda s=subject: started.produce(0, s, "kept"), 60, subject)
        yield started


def kept(cluster: LiveCluster) -> dict[str, bytes]:
    """Every file that a start relies on, with its content."""
    names = ("votes-*", "journal-*/log/seg-*", "journal-*/messages/seg-*")
    return {str(path): path.read_bytes() for name in names for path in cluster.folder.glob(name)}


def incarnations(cluster: LiveCluster) -> dict[str, int]:
    """Return how often each member was started, as the vote files say."""
    files = cluster.folder.glob("votes-*.json")
    return {path.name: json.loads(path.read_bytes())["incarnation"] for path in files}


def refused(cluster: LiveCluster, index: int, **changed: Any) -> str:
    """Start a member that must end by itself; returns what it says why."""
    before = len(cluster.log(index))
    cluster.start(index, **changed)
    status = cluster.processes.pop(index).wait(END_TIMEOUT_S)
    said = cluster.log(index)[before:]
    assert status == 1, said
    assert "Traceback" not in said
    return said


def kill_all(cluster: LiveCluster) -> None:
    for index in list(cluster.processes):
        cluster.kill(index)


def start_all(cluster: LiveCluster) -> None:
    for index in range(3):
        cluster.start(index)
    for index in range(3):
        cluster.wait_ready(index, 60)


def changes(cluster: LiveCluster) -> dict[str, tuple[dict[str, str], list[str]]]:
    """What is changed -> the parameters, and what the refusal has to say."""
    one, two, three = cluster.peers
    others = f"{cluster.folder}/other-INDEX"
    return {
        "groups": ({"ClusterSubjectGroups": "64"}, ["ClusterSubjectGroups = 16", "64"]),
        "order": (
            {"ClusterMembers": f"{two}, {one}, {three}"},
            ["the order of ClusterMembers", f"{one}, {two}, {three}", f"{two}, {one}, {three}"],
        ),
        "fewer": ({"ClusterSeedMemberCount": "1"}, ["3 seeds", "1 seed", "ClusterSeedMemberCount"]),
        "more": (
            {"ClusterMembers": f"{one}, {two}, {three}, 127.0.0.1:1, 127.0.0.1:2"},
            ["3 seeds", "5 seeds"],
        ),
        "mode": (
            {"ClusterDeliveryMode": "Standard"},
            ["ClusterDeliveryMode = Guaranteed", "Standard"],
        ),
        "alone": ({"ClusterMembers": ""}, ["a member of a cluster", "a single server"]),
        "fsync": ({"JournalFsync": "interval"}, ["JournalFsync = commit", "interval"]),
        "no journal": ({"Journal": "off"}, ["Journal = on", "Journal = off"]),
        "journal": ({"JournalFolder": f"{others}/journal"}, ["JournalFolder", "has no log"]),
        "votes": (
            {"ClusterMemberCoordinationFolder": others},
            ["no vote file", "other-", "journal-"],
        ),
        "address": (
            {"ClusterMemberListen": "127.0.0.1:1", "ClusterMembers": f"{one}, {two}, 127.0.0.1:1"},
            ["ClusterMemberListen", "127.0.0.1:1"],
        ),
    }


def test_every_parameter_of_the_identity_changed_on_all_members_and_set_back(
    cluster: LiveCluster,
) -> None:
    history = cluster.status(0)["history"]
    kill_all(cluster)
    before = kept(cluster)
    for name, (changed, expected) in changes(cluster).items():
        for index in range(3):
            parameters = {key: v.replace("INDEX", str(index)) for key, v in changed.items()}
            said = refused(cluster, index, **parameters)
            for word in expected:
                assert word in said, (name, said)
        assert kept(cluster) == before, name
    start_all(cluster)
    assert cluster.status(0)["history"] == history
    for index in range(3):
        assert "recovering" not in cluster.log(index)
        for subject in SUBJECTS:
            assert [text for _, _, text in cluster.consume(index, subject)] == ["kept"]


def test_one_member_with_other_parameters_is_refused_while_the_others_go_on(
    cluster: LiveCluster,
) -> None:
    cluster.kill(2)
    for changed, expected in changes(cluster).values():
        parameters = {key: v.replace("INDEX", "2") for key, v in changed.items()}
        said = refused(cluster, 2, **parameters)
        assert all(word in said for word in expected), said
        assert cluster.produce(0, SUBJECTS[0], "meanwhile")
    cluster.start(2)
    cluster.wait_ready(2, 60)
    found = [text for _, _, text in cluster.consume(2, SUBJECTS[0])]
    assert found == ["kept", *["meanwhile"] * len(changes(cluster))]


def states(cluster: LiveCluster) -> list[str]:
    """Return the state of each member as the third sees it."""
    return [row["state"] for row in cluster.status(2)["members"]]


def test_two_of_three_seeds_restored_from_a_backup_are_noticed_and_nothing_is_lost(
    cluster: LiveCluster,
) -> None:
    """The third knows of a later start of both: an operator begins with what it holds."""
    kill_all(cluster)
    backup = cluster.folder / "backup"
    backup.mkdir()
    places = [cluster.folder / f"journal-{index}" for index in range(2)]
    places += [
        path
        for path in cluster.folder.glob("votes-*.json")
        if any(peer.replace(".", "-").replace(":", "-") in path.name for peer in cluster.peers[:2])
    ]
    assert len(places) == 4
    for place in places:
        (shutil.copytree if place.is_dir() else shutil.copyfile)(place, backup / place.name)
    start_all(cluster)
    cluster.wait(lambda: cluster.produce(2, SUBJECTS[0], "later"), 60, "an acknowledgement")
    history = cluster.status(2)["history"]
    kill_all(cluster)
    for place in places:
        if place.is_dir():
            shutil.rmtree(place)
            shutil.copytree(backup / place.name, place)
        else:
            shutil.copyfile(backup / place.name, place)
    for index in range(3):
        cluster.start(index)
    for index in range(2):
        cluster.wait(
            lambda n=index: "cluster readmit" in (cluster.ready(n) or ""), 60, "a seed that waits"
        )
    cluster.wait(lambda: states(cluster).count("LOST") == 2, 60, "the third to hear of it")
    answer = cluster.command(2, "cold-start", "--accept-loss")
    assert answer.returncode == 0, answer.stderr
    for index in range(3):
        cluster.wait_ready(index, 60)
        assert [text for _, _, text in cluster.consume(index, SUBJECTS[0])] == ["kept", "later"]
    assert cluster.status(2)["history"] != history


def test_a_member_that_runs_already_is_refused_by_its_vote_file(tmp_path: Path) -> None:
    """Without a journal too: two that vote as one seed could elect two coordinators."""
    with LiveCluster(tmp_path, 3) as running:
        running.wait(lambda: running.produce(0, "/a/b", "one"), 60, "a publication")
        first = running.processes.pop(0)
        try:
            started = incarnations(running)
            ports = free_ports(3)
            other = {
                "Listen": f"127.0.0.1:{ports[0]}",
                "MonitorHTTP.Listen": f"127.0.0.1:{ports[1]}",
                "ClusterMemberBind": f"127.0.0.1:{ports[2]}",
            }
            said = refused(running, 0, **other)
            (told,) = [line for line in said.splitlines() if line.startswith("mdserver: ")]
            assert "is used by another process" in told
            assert "votes-127-0-0-1" in told
            # The members that run may vote meanwhile, but a start would have raised its number.
            assert incarnations(running) == started
            running.wait(lambda: running.produce(0, "/a/b", "two"), 60, "a publication")
        finally:
            first.kill()
            first.wait()
        running.start(0, **other)  # a kill leaves no lock
        running.wait(lambda: "joined" in running.log(0).partition("is used by")[2], 60, "a start")
