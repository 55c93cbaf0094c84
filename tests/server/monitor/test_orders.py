"""What operators look up and order over the monitor of a server process."""

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from tests.live import LiveServer, lines_about, live_server, post, wait_for_line
from tests.server.monitor.test_statistics import arguments, eventually, monitor, monitor_port

PATIENCE_S = 30


def session(server: LiveServer, stack: ExitStack, **given: Any) -> tuple[ClientConnection, str]:
    """A session and its name, as it was told."""
    url = server.url.replace("http", "ws") + "/ws"
    websocket = stack.enter_context(connect(url, open_timeout=PATIENCE_S))
    websocket.send(json.dumps({"op": "connect", **given}))
    told = json.loads(websocket.recv(PATIENCE_S))
    return websocket, (told[0] if isinstance(told, list) else told)["session"]


@pytest.mark.slow
def test_sessions_are_filtered_sorted_and_paged_and_one_is_disconnected(tmp_path: Path) -> None:
    audit = ("Extension.Audit.Access=true", f"LogFolder={tmp_path}")
    with live_server(tmp_path, *arguments(*audit)) as server, ExitStack() as stack:
        server.log = tmp_path / "mdserver.log"
        port = monitor_port(server)
        opened = [session(server, stack, client=f"number {n}") for n in range(3)]
        names = [name for _, name in opened]
        websocket = opened[1][0]
        websocket.send('{"op":"subscribe","subjects":["/a/b","/c/**"]}')
        websocket.send('{"op":"ping","t":1}')
        while "pong" not in str(websocket.recv(PATIENCE_S)):
            pass

        def rows(query: str) -> Any:
            return monitor(port, "GET", f"/sessions?{query}")[1]

        assert [row["session"] for row in rows("sort=waiting_ms")] == names
        assert [row["session"] for row in rows("limit=1&offset=2&sort=waiting_ms")] == names[2:]
        assert rows("slow=true") == []
        assert rows("address=10.0.0.1") == []
        (row,) = rows(f"session={names[1]}&subscriptions=true")
        assert (row["client"], row["subscriptions"]) == ("number 1", 2)
        assert row["names"] == ["/a/b", "/c/**"]
        assert "names" not in rows("")[0]
        assert monitor(port, "GET", "/sessions?sort=colour")[0] == 400
        status, answer = monitor(port, "POST", f"/sessions/disconnect?session={names[1]}")
        assert (status, answer) == (200, {"disconnected": names[1]})
        with pytest.raises(ConnectionClosedError) as closed:
            websocket.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4000
        status, said = monitor(port, "POST", "/sessions/disconnect?session=nobody-1")
        assert (status, "nobody-1" in said) == (404, True)
        assert [row["session"] for row in rows("sort=waiting_ms")] == [names[0], names[2]]
        order = wait_for_line(tmp_path / "audit-access.log", '"order"')
        assert "/sessions/disconnect" in str(order["reason"])
        assert order["user"] == "admin"
        wait_for_line(server.log, '"order"', 1)  # refused ones as well


@pytest.mark.slow
def test_top_subjects_and_one_of_them(tmp_path: Path) -> None:
    with live_server(tmp_path, *arguments()) as server:
        port = monitor_port(server)
        for subject, count, size in (("/a/many", 6, 1), ("/a/large", 2, 5000), ("/a/one", 1, 1)):
            for _ in range(count):
                post(server.url, subject, content="x" * size)

        def top(sort: str) -> list[str]:
            rows = monitor(port, "GET", f"/subjects?sort={sort}&limit=2")[1]
            return [row["subject"] for row in rows]

        assert top("rate") == ["/a/many", "/a/large"]
        assert top("messages") == ["/a/many", "/a/large"]
        assert top("bytes") == ["/a/large", "/a/many"]
        assert monitor(port, "GET", "/subjects?subject=/a/one")[1][0]["seq"] == 1
        assert monitor(port, "GET", "/subjects?subject=/a/none")[0] == 404
        for subject, mistake in (("a/one", "does not start"), ("/a/*", "wildcard"), ("", "empty")):
            status, said = monitor(port, "GET", f"/subjects?subject={subject}")
            assert (status, mistake in said) == (400, True), said
        text = monitor(port, "GET", "/subjects?format=text")[1].splitlines()
        assert text[0].split()[0] == "subject"
        assert len(text) == 4


@pytest.mark.slow
def test_configuration_version_reload_and_a_log_level_for_some_minutes(tmp_path: Path) -> None:
    file = tmp_path / "mdserver.conf"
    lines = "Listen = 127.0.0.1:0\nMonitorHTTP.Listen = 127.0.0.1:0\nEntitlement = Basic\n"
    file.write_text(lines + "EntitlementAllowToken = first-secret\n")
    with live_server(tmp_path, "--config", str(file)) as server:
        port = monitor_port(server)
        shown = monitor(port, "GET", "/configuration")[1]
        assert shown["Entitlement"] == "Basic"
        assert "first-secret" not in json.dumps(shown)
        assert "Entitlement = Basic\n" in monitor(port, "GET", "/configuration?format=text")[1]
        assert monitor(port, "GET", "/version")[1]["version"]
        file.write_text(lines + "EntitlementAllowToken = second-secret\nMaxSubjects = 7\n")
        status, done = monitor(port, "POST", "/reload")
        assert status == 200
        assert done == {"taken": ["EntitlementAllowToken"], "needs_restart": ["MaxSubjects"]}
        file.write_text("Nonsense = 1\n")
        status, said = monitor(port, "POST", "/reload")
        assert (status, "Nonsense" in said) == (409, True)
        assert monitor(port, "GET", "/reload")[0] == 405
        post(server.url, "/a/b", token="wrong")
        assert not lines_about(server.log, "client refused")
        assert monitor(port, "POST", "/log-level?level=debug&minutes=0")[0] == 200
        eventually(lambda: monitor(port, "GET", "/version")[0] == 200)
        assert monitor(port, "POST", "/log-level?level=debug&minutes=1")[0] == 200
        post(server.url, "/a/b", token="wrong")
        wait_for_line(server.log, "client refused")
        assert monitor(port, "POST", "/log-level?level=loud")[0] == 400
        # A thread writes the log: the last line may come after the answer.
        eventually(lambda: len(lines_about(server.log, '"order"')) == 5)


@pytest.mark.slow
def test_who_orders_without_the_right_is_audited_as_well(tmp_path: Path) -> None:
    with live_server(tmp_path, *arguments("MonitorPassword=s3cret")) as server:
        port = monitor_port(server)
        path = "/sessions/disconnect?session=mdserver-1"
        wrong = {"Authorization": "Basic " + base64.b64encode(b"admin:guessed").decode()}
        right = {"Authorization": "Basic " + base64.b64encode(b"admin:s3cret").decode()}
        assert monitor(port, "POST", path, wrong)[0] == 401
        assert monitor(port, "POST", path, right)[0] == 404
        assert monitor(port, "POST", "/sessions/disconnect?session=", right)[0] == 400
        wait_for_line(server.log, '"order"', 2)
        told = [(one["status"], one["user"]) for one in lines_about(server.log, '"order"')]
        assert told == [(401, ""), (404, "admin"), (400, "admin")]


@pytest.mark.slow
def test_the_cluster_is_told_as_text_as_well(tmp_path: Path) -> None:
    with live_server(tmp_path, *arguments()) as server:
        port = monitor_port(server)
        status, text = monitor(port, "GET", "/cluster/status?format=text")
        assert status == 200
        lines = text.splitlines()
        heads = " ".join(lines[0].split())
        assert heads == "address at name seed state incarnation groups behind unwritten"
        assert lines[1].split()[2] == "mdserver"
        assert "quorum True" in lines
        assert sum(line.startswith("group ") for line in lines) == 1
        status, said = monitor(port, "GET", "/cluster/status?member=mdserver")
        assert (status, "no parameter `member`" in said) == (400, True)
