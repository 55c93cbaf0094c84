"""Three server processes: members are killed, paused and started again under publications."""

import http.client
import json
import signal
import subprocess
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.cluster.live_cluster import LiveCluster
from tests.server.certificates import Authority

pytestmark = pytest.mark.slow
SUBJECTS = [f"/s/{index}" for index in range(12)]


def publish_all(cluster: LiveCluster, index: int, content: str) -> None:
    """Publish once to each subject through a member, again until it is acknowledged."""
    for subject in SUBJECTS:
        cluster.wait(lambda: cluster.produce(index, subject, content), 15, subject)  # noqa: B023


def histories(cluster: LiveCluster, index: int) -> dict[str, list[tuple[int, int, str]]]:
    return {subject: cluster.consume(index, subject) for subject in SUBJECTS}


def agree(cluster: LiveCluster, *indexes: int) -> dict[str, list[tuple[int, int, str]]]:
    """What all these members hold, once it is the same."""
    found: list[dict[str, list[tuple[int, int, str]]]] = []

    def same() -> bool:
        found[:] = [histories(cluster, index) for index in indexes]
        return all(history == found[0] for history in found)

    cluster.wait(same, 15, "the same histories")
    for messages in found[0].values():
        assert [seq for _, seq, _ in messages] == list(range(1, len(messages) + 1))
    return found[0]


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_member_costs_no_acknowledged_publication(tmp_path: Path, victim: int) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        publish_all(cluster, 0, "one")
        first, second = (index for index in range(3) if index != victim)
        cluster.kill(victim)
        publish_all(cluster, first, "two")
        held = agree(cluster, first, second)
        assert all({"one", "two"} <= {text for _, _, text in row} for row in held.values())
        cluster.start(victim)
        cluster.wait_ready(victim)
        publish_all(cluster, victim, "three")
        held = agree(cluster, 0, 1, 2)
        assert all({"one", "two", "three"} <= {t for _, _, t in row} for row in held.values())


def test_a_rolling_restart_of_all_members_loses_nothing(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        for index in range(3):
            publish_all(cluster, (index + 1) % 3, f"before {index}")
            cluster.kill(index)
            publish_all(cluster, (index + 1) % 3, f"without {index}")
            cluster.start(index)
            cluster.wait_ready(index)
        held = agree(cluster, 0, 1, 2)
        wanted = {f"{when} {index}" for when in ("before", "without") for index in range(3)}
        assert all(wanted <= {text for _, _, text in row} for row in held.values())


def test_a_paused_coordinator_is_replaced_and_forks_nothing(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        publish_all(cluster, 0, "one")
        cluster.pause(0)
        publish_all(cluster, 1, "two")
        cluster.resume(0)
        cluster.wait_ready(0)
        publish_all(cluster, 0, "three")
        held = agree(cluster, 0, 1, 2)
        assert all({"one", "two", "three"} <= {t for _, _, t in row} for row in held.values())


def test_a_member_that_is_no_seed_comes_back_with_what_it_missed(tmp_path: Path) -> None:
    """From whom it has that depends on who greets it first; test_copying.py has both ways."""
    with LiveCluster(tmp_path, 4) as cluster:
        cluster.kill(3)
        publish_all(cluster, 0, "one")
        cluster.start(3)
        cluster.wait_ready(3, 60)
        publish_all(cluster, 3, "two")
        held = agree(cluster, 0, 3)
        assert all({"one", "two"} <= {text for _, _, text in row} for row in held.values())


def whole_stream(cluster: LiveCluster, method: str, path: str) -> str:
    """Return what member 0 sends over a stream that it ends itself."""
    connection = http.client.HTTPConnection(cluster.clients[0], timeout=5)
    connection.request(method, path)
    answer = connection.getresponse()
    assert answer.status == 200
    text = answer.read().decode()
    connection.close()
    assert '"op":"closed","code":4002' in text
    return text


def test_without_a_quorum_nothing_is_taken_and_with_it_all_goes_on(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        publish_all(cluster, 0, "one")
        cluster.pause(1)
        cluster.pause(2)
        cluster.wait(lambda: cluster.ready(0) is not None, 10, "no quorum is noticed")
        assert not cluster.produce(0, "/s/1", "lost")
        for path in ("/rest/consume", "/snapshot"):
            status, answer = cluster.get(0, f"{path}?subject=/s/1")
            assert (status, "no majority of the seeds is in sight" in str(answer)) == (503, True)
        for method, path in (("GET", "/sse?subject=/s/1"), ("POST", "/stream")):
            assert "no majority of the seeds is in sight" in whole_stream(cluster, method, path)
        cluster.resume(1)
        cluster.resume(2)
        for index in range(3):
            cluster.wait_ready(index)
        publish_all(cluster, 2, "two")
        held = agree(cluster, 0, 1, 2)
        assert all({"one", "two"} <= {text for _, _, text in row} for row in held.values())


def test_a_full_restart_starts_anew_under_another_history_id(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        publish_all(cluster, 0, "one")
        for index in range(3):
            cluster.kill(index)
        for index in range(3):
            cluster.start(index)
        for index in range(3):
            cluster.wait_ready(index)
        publish_all(cluster, 0, "two")
        held = agree(cluster, 0, 1, 2)
        assert all({text for _, _, text in row} == {"two"} for row in held.values())


def vote_file(cluster: LiveCluster, index: int) -> Path:
    port = cluster.peers[index].rpartition(":")[2]
    (found,) = cluster.folder.glob(f"votes-*{port}.json")
    return found


def told(cluster: LiveCluster, index: int, op: str, *commands: object) -> dict[str, object]:
    """The first event of a kind that a new session at a member gets."""
    with connect(f"ws://{cluster.clients[index]}/ws") as client:
        client.send(json.dumps(commands))
        while True:
            found = json.loads(client.recv(timeout=30))
            for event in found if isinstance(found, list) else [found]:
                if event["op"] == op:
                    return dict(event)


@pytest.mark.parametrize("damaged", [(), (0,), (1,)])
def test_two_of_three_start_anew_when_an_operator_accepts_the_loss(
    tmp_path: Path, damaged: tuple[int, ...]
) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        publish_all(cluster, 0, "one")
        subject = SUBJECTS[0]
        epoch, seq, _ = cluster.consume(0, subject)[-1]
        before = told(cluster, 0, "connected", {"op": "ping"})["history"]
        for index in range(3):
            cluster.kill(index)
        for index in damaged:
            vote_file(cluster, index).write_bytes(b"damaged")
        cluster.start(0)
        cluster.start(1)
        refused = "acknowledged messages that only others hold would be lost"
        cluster.wait(lambda: refused in cluster.command(0, "cold-start").stderr, 30, "the warning")
        order = ("cold-start", "--accept-loss")
        cluster.wait(lambda: cluster.command(0, *order).returncode == 0, 30, "the order")
        cluster.wait_ready(0, 60)
        cluster.wait_ready(1, 60)
        position = {"history": before, "epoch": epoch, "seq": seq}
        command = {"op": "subscribe", "subjects": [subject], "positions": {subject: position}}
        reset = told(cluster, 1, "reset", command)
        assert reset["subjects"] == [subject]
        assert reset["history"] != before
        publish_all(cluster, 1, "two")
        cluster.start(2)
        cluster.wait_ready(2, 60)
        held = agree(cluster, 0, 1, 2)
        assert all({text for _, _, text in row} == {"two"} for row in held.values())


def test_operators_see_the_cluster_and_drain_members(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        assert json.loads(cluster.command(1, "status", "--json").stdout)["quorum"] is True
        status = json.loads(cluster.command(1, "status", "--format", "json").stdout)
        assert status["quorum"] is True
        assert [row["state"] for row in status["members"]] == ["NORMAL"] * 3
        assert [row["group"] for row in status["groups"]] == list(range(16))
        shown = cluster.command(0, "status")
        assert cluster.peers[2] in shown.stdout
        assert [row["name"] for row in status["members"]] == ["member-2", "member-1", "member-3"]
        done = cluster.command(0, "drain", "member-3")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "member-3 has handed over its groups\n"
        coordinating = {row["coordinator"] for row in cluster.status(0)["groups"]}
        assert cluster.peers[2] not in coordinating
        assert "drained" in str(cluster.ready(2))
        assert cluster.get(2, "/health/live")[0] == 200
        for member, name in (("member-1", "member-1"), (cluster.peers[1], "member-2")):
            refused = cluster.command(0, "drain", member)
            assert refused.returncode == 1
            assert f"member-3 drained already: without {name} only 1" in refused.stderr
        assert "there is no member m-9" in cluster.command(0, "drain", "m-9").stderr
        assert "there is no member m-9" in cluster.command(0, "readmit", "m-9").stderr
        undone = cluster.command(1, "drain", "member-3", "--undo", "--format", "json")
        assert json.loads(undone.stdout) == {"member": "member-3", "action": "undrain"}
        cluster.wait_ready(2)
        drained = cluster.command(1, "drain", "member-3", "--format", "json")
        assert json.loads(drained.stdout) == {"member": "member-3", "action": "drain", "groups": 0}
        cluster.kill(2)
        refused = cluster.command(0, "drain", cluster.peers[1])
        assert refused.returncode == 1
        assert "only 1 of 3 seeds would vote" in refused.stderr
        nothing = cluster.command(0, "cold-start")
        assert "nothing to start" in nothing.stderr


def test_the_monitor_listener_asks_for_its_password(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        connection = http.client.HTTPConnection(cluster.monitors[0], timeout=10)
        for authorization in ({}, {"Authorization": "Basic YWRtaW46d3Jvbmc="}):
            connection.request("GET", "/cluster/status", headers=authorization)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 401
        connection.close()


def test_a_member_with_another_password_is_refused_and_both_sides_say_so(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        cluster.kill(2)
        cluster.start(2, password="another one, long enough")
        cluster.wait(lambda: "ClusterPassword differs" in cluster.log(2), 15, "the reason")
        cluster.wait(lambda: "ClusterPassword differs" in cluster.log(0), 15, "the reason")
        publish_all(cluster, 0, "one")
        assert "secret of the tests" not in cluster.log(0) + cluster.log(2)


def all_led(cluster: LiveCluster, index: int) -> bool:
    """Whether every group has a coordinator that the member knows, and it is no dead one."""
    status = json.loads(cluster.command(index, "status", "--json").stdout)
    alive = {row["address"] for row in status["members"] if row["state"] != "unreachable"}
    return len(alive) == 2 and all(row["coordinator"] in alive for row in status["groups"])


def test_a_seed_without_its_vote_file_is_taken_back_by_an_operator(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        publish_all(cluster, 0, "one")
        cluster.kill(1)
        cluster.wait(lambda: all_led(cluster, 0), 15, "the others coordinate every group")
        vote_file(cluster, 1).write_bytes(b"damaged")
        cluster.start(1)
        cluster.wait(lambda: "readmit" in (cluster.ready(1) or ""), 15, "it waits")
        assert cluster.get(1, "/health/live")[0] == 200
        readmit = ("readmit", cluster.peers[1], "--format", "json")
        done = [subprocess.CompletedProcess[str]([], 1)]

        def readmitted() -> bool:
            done.append(cluster.command(0, *readmit))
            return done[-1].returncode == 0

        cluster.wait(readmitted, 15, "it is in sight")
        assert json.loads(done[-1].stdout) == {"member": cluster.peers[1], "action": "readmit"}
        cluster.wait_ready(1)
        cluster.kill(2)
        publish_all(cluster, 0, "two")
        held = agree(cluster, 0, 1)
        assert all({"one", "two"} <= {text for _, _, text in row} for row in held.values())


def test_members_with_certificates_and_an_authority_that_is_taken_in_while_they_run(
    tmp_path: Path,
) -> None:
    authority, other = Authority(tmp_path / "authority.pem"), Authority(tmp_path / "other.pem")

    def files(key_store: Path, trusted: Path) -> dict[str, str]:
        return {
            "ClusterMemberKeyStore": str(key_store),
            "ClusterMemberCertificateAuthority": str(trusted),
        }

    settings = files(authority.issue(tmp_path / "member.pem"), authority.file)
    with LiveCluster(tmp_path, 3, settings=settings) as cluster:
        publish_all(cluster, 0, "one")
        cluster.kill(2)
        publish_all(cluster, 1, "two")
        stranger = other.issue(tmp_path / "stranger.pem")
        cluster.settings = files(stranger, other.file)
        cluster.start(2)
        cluster.wait(lambda: "certificate is refused" in cluster.log(2), 60, "its own complaint")
        cluster.wait(lambda: "says why: unknown ca" in cluster.log(0), 60, "the others' complaint")
        assert cluster.ready(2) is not None
        cluster.kill(2)
        authority.file.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
        for index in (0, 1):
            cluster.processes[index].send_signal(signal.SIGHUP)
            cluster.wait(lambda: '"reloaded"' in cluster.log(index), 60, "reloading")  # noqa: B023
        cluster.settings = files(stranger, authority.file)
        cluster.start(2)
        cluster.wait_ready(2, 60)
        publish_all(cluster, 2, "three")
        held = agree(cluster, 0, 1, 2)
        assert all({"one", "two", "three"} <= {t for _, _, t in row} for row in held.values())


def test_half_of_what_encrypts_links_is_an_error_at_the_start(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 3, settings={"ClusterMemberKeyStore": "member.pem"})
    cluster.start(0)
    process = cluster.processes[0]
    assert process.wait(60) != 0
    assert "ClusterMemberCertificateAuthority go together" in cluster.log(0)


def test_a_member_without_a_majority_is_an_error_in_its_log(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        for index in (1, 2):
            cluster.kill(index)
        cluster.wait(lambda: "member out of service" in cluster.log(0), 60, "the error")
        for index in (1, 2):
            cluster.start(index)
        cluster.wait(lambda: "member in service again" in cluster.log(0), 60, "the all-clear")
        lines = [json.loads(line) for line in cluster.log(0).splitlines() if "service" in line]
        assert [line["level"] for line in lines] == ["error", "warning"]
        assert "majority" in lines[0]["reason"]
