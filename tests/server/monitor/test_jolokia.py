"""JMX over HTTP, as Jolokia's clients speak it."""

import http.client
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.server.monitor.jolokia import Row, fits, read_path, search, split
from tests.live import live_server, post
from tests.server.monitor.test_statistics import arguments, monitor, monitor_port

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Asks a running server: a path, or something to be sent as JSON."""
    folder = tmp_path_factory.mktemp("server")
    with live_server(folder, *arguments("Monitor=HTTP,JMX")) as server:
        port = monitor_port(server)
        post(server.url, "/a/b")

        def asked(path: str = "", body: Any = None) -> Any:
            if body is None:
                return monitor(port, "GET", f"/jolokia{path}")[1]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                content = body if isinstance(body, bytes) else json.dumps(body)
                connection.request("POST", "/jolokia/", content)
                answer = connection.getresponse()
                assert answer.status == 200
                return json.loads(answer.read())
            finally:
                connection.close()

        yield asked


pytestmark = pytest.mark.slow


def test_the_version_is_told_at_the_root(ask: Ask) -> None:
    for path in ("", "/", "/version"):
        answer = ask(path)
        assert answer["status"] == 200
        assert answer["value"]["protocol"] == "7.2"
        assert answer["request"] == {"type": "version"}
        assert answer["timestamp"] > 1_600_000_000


def test_attributes_are_read_by_path_and_by_post(ask: Ask) -> None:
    answer = ask("/read/mdserver:type=Total/MessagesIn")
    assert answer["value"] == 1
    assert answer["request"] == {
        "type": "read",
        "mbean": "mdserver:type=Total",
        "attribute": "MessagesIn",
    }
    assert ask("/read/mdserver:type=Total/MessagesIn,MessagesOut")["value"] == {
        "MessagesIn": 1,
        "MessagesOut": 0,
    }
    # The keys of a name come in any order.
    name = "mdserver:window=1h,type=Window,indicator=sessions"
    assert set(ask(body={"type": "read", "mbean": name})["value"]) == {
        "Seconds",
        "Maximum",
        "Average",
        "Deviation",
    }


def test_a_path_leads_into_what_is_read(ask: Ask) -> None:
    answer = ask("/read/mdserver:type=Total/MessagesIn,MessagesOut/MessagesIn")
    assert answer["value"] == 1
    assert answer["request"]["path"] == "MessagesIn"
    for path in ("/read/mdserver:type=Total/MessagesIn/Further", "/read/*:type=Total/MessagesIn/a"):
        answer = ask(path)
        assert answer["status"] == 404
        assert "The path leads nowhere at" in answer["error"]
    asked = {"type": "read", "mbean": "*:type=Total", "path": "mdserver:type=Total/MessagesIn"}
    assert ask(body=asked)["value"] == 1


def test_patterns_read_and_find_several(ask: Ask) -> None:
    found = ask("/search/mdserver:type=Latency,*")["value"]
    assert len(found) == 3
    read = ask(body={"type": "read", "mbean": "mdserver:type=Latency,*", "attribute": "Count"})
    assert set(read["value"]) == set(found)
    assert ask("/search/mdserver:type=Latency")["value"] == []
    assert len(ask("/search/*:*")["value"]) == len(ask("/list/mdserver")["value"])
    assert ask("/search/java.lang:*")["value"] == []


def test_the_list_describes_what_can_be_read(ask: Ask) -> None:
    for keys, bean in ask("/list")["value"]["mdserver"].items():
        values = ask(body={"type": "read", "mbean": f"mdserver:{keys}"})["value"]
        assert set(bean["attr"]) == set(values)
    path = "/list/mdserver/type=Server/attr/Ready"
    assert ask(path)["value"] == {"rw": False, "type": "boolean", "desc": "Ready"}


def test_several_requests_come_together_and_fail_apart(ask: Ask) -> None:
    answers = ask(
        body=[
            {"type": "read", "mbean": "mdserver:type=Server", "attribute": "Ready"},
            {"type": "read", "mbean": "mdserver:type=Nothing"},
            {"type": "read", "mbean": "mdserver:type=Server", "attribute": "Nothing"},
            {"type": "read", "mbean": "nonsense"},
            {"type": "write", "mbean": "mdserver:type=Server", "attribute": "Ready", "value": 1},
            {"type": "exec", "mbean": "java.lang:type=Memory", "operation": "gc"},
            {"type": "magic"},
            {"type": "search"},
            {"type": "search", "mbean": "*" * 300 + ":*"},
            7,
        ]
    )
    assert [one["status"] for one in answers] == [200, 404, 404, 400, 403, 403, 400, 400, 400, 400]
    assert answers[0]["value"] is True
    assert all("error" in one and "error_type" in one for one in answers[1:])


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 50_000, b"\xff", [{}] * 201])
def test_what_is_no_request_is_refused_in_a_sentence(ask: Ask, body: Any) -> None:
    answer = ask(body=body)
    assert answer["status"] == 400
    assert answer["error"].endswith(".")


def test_a_path_that_is_too_long_is_refused_in_a_sentence(ask: Ask) -> None:
    path = "a" * 4000 + "!"
    for answer in (ask(f"/list/{path}"), ask(body={"type": "list", "path": path})):
        assert answer["status"] == 400
        assert "characters: at most 2048 are allowed." in answer["error"]


def test_without_jmx_there_is_no_such_path(tmp_path: Path) -> None:
    with live_server(tmp_path, *arguments("Monitor=HTTP")) as server:
        assert monitor(monitor_port(server), "GET", "/jolokia/version")[0] == 404


@given(st.lists(st.text("a/!,=", min_size=1), min_size=1))
def test_each_part_of_a_path_comes_back(parts: list[str]) -> None:
    path = "/".join(part.replace("!", "!!").replace("/", "!/") for part in parts)
    assert split(path) == parts


def test_a_path_is_read_in_one_pass() -> None:
    def seconds(path: str) -> float:
        begun = time.process_time()
        assert split(path)
        return time.process_time() - begun

    assert seconds("a" * 40_000 + "!") < 10 * max(seconds("a" * 40_000), 0.1)


@given(st.text("a*?", max_size=8), st.text("ab", max_size=8))
def test_wildcards_match_as_a_regular_expression_does(pattern: str, value: str) -> None:
    expression = "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern)
    assert fits(pattern, value) == (re.fullmatch(expression, value) is not None)


@given(st.text(max_size=40) | st.text("!/", max_size=3))
def test_no_text_breaks_paths_and_patterns(text: str) -> None:
    beans: dict[str, Row] = {"mdserver:type=Now": {"Sessions": 1}}
    read_path(text)
    if ":" in text:
        search(text, beans)
