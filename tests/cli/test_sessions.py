"""`mdserver sessions`: sorted, filtered and paged."""

import json

from websockets.sync.client import connect

from tests.cli.conftest import Monitored
from tests.cli.test_mistakes import Ran, mdserver


def test_sessions_are_sorted_filtered_and_paged(monitored: Monitored) -> None:
    server, monitor = monitored.server, monitored.monitor

    def sessions(*words: str) -> Ran:
        return mdserver("sessions", "--monitor", monitor, *words, **monitored.password)

    assert sessions() == Ran(0, "", ["mdserver: no session is connected"])
    url = server.url.replace("http", "ws") + "/ws"
    with connect(url) as one, connect(url) as other:
        for socket, subject in ((one, "/a/b"), (other, "/c/d")):
            socket.send(json.dumps({"op": "subscribe", "subjects": [subject]}))
            socket.recv()
        shown = sessions()
        head, *lines = shown.out.splitlines()
        assert head.split()[:3] == ["session", "address", "transport"]
        assert len(lines) == 2
        rows = [json.loads(line) for line in sessions("--format", "json").out.splitlines()]
        name = rows[1]["session"]
        one_of_them = sessions("--session", name, "--subscriptions", "--format", "json")
        (row,) = one_of_them.out.splitlines()
        assert json.loads(row)["names"] in (["/a/b"], ["/c/d"])
        second = sessions(
            "--limit", "1", "--offset", "1", "--sort", "silent_ms", "--format", "json"
        )
        assert len(second.out.splitlines()) == 1
        for words in (["--slow"], ["--address", "192.0.2.1"]):
            assert sessions(*words).told == ["mdserver: no session is like that"]
