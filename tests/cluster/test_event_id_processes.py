"""The id of a server-sent event is good at every member, also at one that was started again."""

import http.client
import json
from pathlib import Path

import pytest

from tests.cluster.live_cluster import LiveCluster

SUBJECTS = [f"/many/{number}" for number in range(100)]
READ_TIMEOUT_S = 30


class Source:
    """What `EventSource` does, with one connection."""

    def __init__(self, cluster: LiveCluster, index: int, last: str = "") -> None:
        self.last = last
        self._connection = http.client.HTTPConnection(
            cluster.clients[index], timeout=READ_TIMEOUT_S
        )
        headers = {"Last-Event-ID": last} if last else {}
        self._connection.request("GET", "/sse?subject=/many/*", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200

    def messages(self, count: int) -> list[tuple[str, str, str]]:
        """Subject, content and type of the next messages."""
        found: list[tuple[str, str, str]] = []
        name = data = ""
        while len(found) < count:
            key, _, value = self._answer.readline().decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                data = value
            elif key == "id":
                self.last = value
                if name == "message":
                    message = json.loads(data)
                    found.append((message["subject"], message["content"], message["type"]))
                name = ""
        return found

    def close(self) -> None:
        self._connection.close()


@pytest.mark.slow
def test_a_client_comes_back_to_another_member_that_was_started_again(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 3) as cluster:
        source = Source(cluster, 0)
        for subject in SUBJECTS:
            assert cluster.produce(1, subject, "live")
        assert len(source.messages(len(SUBJECTS))) == len(SUBJECTS)
        source.close()
        cluster.kill(2)
        for subject in SUBJECTS[20:]:
            assert cluster.produce(0, subject, "missed")
        cluster.start(2)
        cluster.wait_ready(2, 60)
        again = Source(cluster, 2, source.last)
        missed = again.messages(80)
        assert sorted(missed) == sorted(
            (subject, "missed", "RECOVERED") for subject in SUBJECTS[20:]
        )
        assert cluster.produce(1, SUBJECTS[0], "last")
        assert again.messages(1) == [(SUBJECTS[0], "last", "UPDATE")]
        again.close()
