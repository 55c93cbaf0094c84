"""Producing and consuming over HTTP, through a real socket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.server.http.router import Router
from tests.server.raw import RawClient, connected
from tests.server.serving import port_of, serving


class Http:
    """One HTTP connection, kept open over the requests."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    async def __call__(
        self, method: str, path: str, body: bytes = b"", *lines: str, **query: Any
    ) -> tuple[int, dict[str, str], bytes]:
        target = path + ("?" + urlencode(query) if query else "")
        head = [
            f"{method} {target} HTTP/1.1",
            "Host: localhost",
            f"Content-Length: {len(body)}",
            *lines,
        ]
        await self._client.send("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        status, *rest = (await self._client.until(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in rest)
        }
        length = 0 if method == "HEAD" else int(headers.get("content-length", "0"))
        return int(status.split(" ")[1]), headers, await self._client.exactly(length)


@asynccontextmanager
async def http(broker: BrokerSettings | None = None, **options: Any) -> AsyncIterator[Http]:
    async with (
        serving(broker=broker, handler=Router(), **options) as server,
        connected(port_of(server)) as client,
    ):
        yield Http(client)


async def test_what_is_produced_is_consumed() -> None:
    async with http() as ask:
        status, _, body = await ask(
            "POST", "/rest/produce", "grüße".encode(), subject="/a/b", closure="c"
        )
        assert (status, json.loads(body)) == (
            200,
            {"subject": "/a/b", "closure": "c", "status": "OK", "epoch": 1, "seq": 1},
        )
        status, headers, body = await ask("GET", "/rest/consume", subject="/a/b")
        assert headers["content-type"] == "application/json"
        assert json.loads(body) == {
            "subject": "/a/b",
            "messages": [
                {
                    "message_type": "SNAPSHOT",
                    "content": "grüße",
                    "closure": "c",
                    "retained": True,
                    "compressed": False,
                    "epoch": 1,
                    "seq": 1,
                }
            ],
        }


async def test_history_and_what_came_after_a_position() -> None:
    async with http() as ask:
        for number in range(5):
            await ask("POST", "/rest/produce", b"%d" % number, subject="/a/b")
        _, _, body = await ask("GET", "/rest/consume", subject="/a/b", history=2)
        messages = json.loads(body)["messages"]
        assert [(m["message_type"], m["content"]) for m in messages] == [
            ("HISTORICAL", "3"),
            ("HISTORICAL", "4"),
        ]
        _, _, body = await ask("GET", "/rest/consume", subject="/a/b", epoch=1, seq=3)
        messages = json.loads(body)["messages"]
        assert [(m["message_type"], m["content"], m["seq"]) for m in messages] == [
            ("RECOVERED", "3", 4),
            ("RECOVERED", "4", 5),
        ]


async def test_a_subject_without_a_message_gives_an_empty_list() -> None:
    async with http() as ask:
        status, _, body = await ask("GET", "/rest/consume", subject="/a/b")
        assert (status, json.loads(body)) == (200, {"subject": "/a/b", "messages": []})


async def test_bytes_that_are_no_text_come_back_in_base64() -> None:
    async with http() as ask:
        await ask("POST", "/rest/produce", b"\xff\x00", subject="/a/b")
        _, _, body = await ask("GET", "/rest/consume", subject="/a/b")
        assert json.loads(body)["messages"][0]["content_base64"] == "/wA="
        status, headers, body = await ask("GET", "/snapshot", subject="/a/b")
        assert (status, headers["content-type"], body) == (
            200,
            "application/octet-stream",
            b"\xff\x00",
        )


async def test_a_message_that_is_not_retained_leaves_the_snapshot_alone() -> None:
    async with http() as ask:
        await ask("POST", "/rest/produce", b"kept", subject="/a/b")
        await ask("POST", "/rest/produce", b"passing", subject="/a/b", retained="false")
        await ask("POST", "/rest/produce", b"once", subject="/a/b", qos="STANDARD")
        _, _, body = await ask("GET", "/snapshot", subject="/a/b")
        assert body == b"kept"


async def test_the_snapshot_as_an_event() -> None:
    async with http() as ask:
        assert (await ask("GET", "/snapshot", subject="/a/b"))[0] == 204
        await ask("POST", "/rest/produce", b"x", subject="/a/b")
        status, headers, body = await ask("GET", "/snapshot", subject="/a/b", format="json")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == {
            "op": "message",
            "subject": "/a/b",
            "type": "SNAPSHOT",
            "epoch": 1,
            "seq": 1,
            "content": "x",
        }


@pytest.mark.parametrize(
    ("method", "path", "query", "named"),
    [
        ("POST", "/rest/produce", {}, "subject"),
        ("POST", "/rest/produce", {"subject": "a/b"}, "start with"),
        ("POST", "/rest/produce", {"subject": "/a/*"}, "*"),
        ("POST", "/rest/produce", {"subject": "/a/b", "retained": "maybe"}, "retained"),
        ("POST", "/rest/produce", {"subject": "/a/b", "qos": "BEST"}, "qos"),
        ("POST", "/rest/produce", {"subject": "/a/b", "sbject": "x"}, "sbject"),
        ("GET", "/rest/consume", {"subject": "/a"}, "segment"),
        ("GET", "/rest/consume", {"subject": "/a/b", "history": "-1"}, "history"),
        ("GET", "/rest/consume", {"subject": "/a/b", "epoch": "1"}, "seq"),
        (
            "GET",
            "/rest/consume",
            {"subject": "/a/b", "history": "1", "epoch": "1", "seq": "1"},
            "either",
        ),
        ("GET", "/rest/consume", {}, "subject"),
    ],
)
async def test_a_bad_parameter_is_400_with_the_reason(
    method: str, path: str, query: dict[str, str], named: str
) -> None:
    async with http() as ask:
        status, _, body = await ask(method, path, **query)
        said = json.loads(body)
        assert status == 400
        assert named in said["reason"]
        assert said["subject"] == query.get("subject")


async def test_a_parameter_given_twice() -> None:
    async with http() as ask:
        status, _, body = await ask("GET", "/rest/consume?subject=/a/b&subject=/c/d")
        assert status == 400
        assert "twice" in json.loads(body)["reason"]


async def test_a_content_beyond_the_limit_is_413() -> None:
    async with http(BrokerSettings(message_bytes_max=10)) as ask:
        status, _, body = await ask("POST", "/rest/produce", b"x" * 11, subject="/a/b")
        assert (status, json.loads(body)["status"]) == (413, "MESSAGE_SIZE_LIMIT_EXCEEDED")


async def test_publishing_needs_the_token_under_basic_entitlement() -> None:
    broker = BrokerSettings(policy=Policy.BASIC, allow_token="s3cret")
    async with http(broker) as ask:
        status, _, body = await ask("POST", "/rest/produce", b"x", subject="/a/b")
        assert (status, json.loads(body)["status"]) == (403, "DENY")
        status, _, _ = await ask("POST", "/rest/produce", b"x", subject="/a/b", token="s3cret")
        assert status == 200
        status, _, _ = await ask(
            "POST", "/rest/produce?subject=/a/b", b"x", "Authorization: Bearer s3cret"
        )
        assert status == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/rest/produce"), ("GET", "/rest/consume")])
async def test_a_parameter_that_is_too_long_is_answered_in_json(method: str, path: str) -> None:
    async with http() as ask:
        status, headers, body = await ask(method, path, subject="/a/" + "b" * 1100)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert "1024 bytes" in json.loads(body)["reason"]


JSON_BODY = "Content-Type: application/json"


async def test_a_publication_as_json_with_all_that_it_may_have() -> None:
    async with http() as ask:
        said = {
            "subject": "/a/b",
            "content": "193",
            "fields": {"bid": "192"},
            "closure": "c7",
            "retained": False,
            "number": 5,
            "id": "mine",
        }
        status, _, body = await ask("POST", "/rest/produce", json.dumps(said).encode(), JSON_BODY)
        assert (status, json.loads(body)) == (
            200,
            {"subject": "/a/b", "closure": "c7", "status": "OK", "epoch": 1, "seq": 1},
        )
        _, _, body = await ask("GET", "/rest/consume", subject="/a/b", history=1)
        (message,) = json.loads(body)["messages"]
        assert (message["content"], message["fields"]) == ("193", {"bid": "192"})
        assert message["retained"] is False


async def test_an_array_is_published_in_order_and_each_has_its_result() -> None:
    async with http() as ask:
        said: list[dict[str, Any]] = [
            {"subject": "/a/b", "content": str(n), "closure": str(n)} for n in range(1000)
        ]
        said[500] = {"subject": "no slash", "content": "x"}
        said[501] = {"subject": "/a/b"}
        status, _, body = await ask("POST", "/rest/produce", json.dumps(said).encode(), JSON_BODY)
        results = json.loads(body)["results"]
        assert status == 400
        assert [result["status"] for result in results[500:502]] == ["FAILED", "FAILED"]
        assert "does not start with '/'" in results[500]["reason"]
        assert "`content` or `content_base64`" in results[501]["reason"]
        taken = [result for result in results if result["status"] == "OK"]
        assert [result["seq"] for result in taken] == list(range(1, 999))
        assert [result["closure"] for result in taken] == [
            str(n) for n in range(1000) if n not in (500, 501)
        ]


async def test_a_repeat_under_the_same_key_is_the_same_publication() -> None:
    key = "Idempotency-Key: 0123456789abcdef"
    bodies = [b'{"subject": "/a/b", "content": "once"}', b'[{"subject": "/a/b", "content": "1"}]']
    async with http() as ask:
        for _ in range(2):
            status, _, body = await ask("POST", "/rest/produce", bodies[0], JSON_BODY, key)
            assert (status, json.loads(body)["seq"]) == (200, 1)
        assert json.loads(body)["duplicate"] is True
        _, _, body = await ask("POST", "/rest/produce", b"content", key, subject="/a/b")
        assert json.loads(body)["duplicate"] is True
        other = "Idempotency-Key: 0123456789abcdeF"
        _, _, body = await ask("POST", "/rest/produce", bodies[1], JSON_BODY, other)
        assert json.loads(body)["results"][0]["seq"] == 2
        _, _, body = await ask("GET", "/rest/consume", subject="/a/b", history=9)
        assert [message["content"] for message in json.loads(body)["messages"]] == ["once", "1"]


@pytest.mark.parametrize(
    ("body", "lines", "reason"),
    [
        (b"text", [], "Give `subject` in the query, or publications as application/json"),
        (b"text", [JSON_BODY], "The body is no publication, nor an array of them"),
        (b"[]", [JSON_BODY], "An array has 1 to 1000 publications."),
        (b'{"subject": 1}', [JSON_BODY], "Expected `str`, got `int` - at `$.subject`"),
        (b'{"content": "x"}', [JSON_BODY], "missing required field `subject`"),
        (b'{"subject":"/a/b","content":"x"}', [JSON_BODY, "Idempotency-Key: short"], "16 to 256"),
        (b"[" * 5000, [JSON_BODY], "The body is no publication, nor an array of them"),
    ],
)
async def test_what_cannot_be_published_is_told(body: bytes, lines: list[str], reason: str) -> None:
    async with http() as ask:
        status, _, answer = await ask("POST", "/rest/produce", body, *lines)
        assert (status, json.loads(answer)["status"]) == (400, "FAILED")
        assert reason in json.loads(answer)["reason"]
