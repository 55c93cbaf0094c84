"""Text that no encoder takes ends at most the session that sent it; the server serves on."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from tests.live import LiveServer, live_server, post
from tests.server.raw import CLOSE, TEXT, frame, upgraded

SECRET = b"0123456789abcdef0123456789abcdef"
HALF = "\ud800"


def encoded(value: Any) -> str:
    """One part of a token; `json` writes half of a surrogate pair as an escape."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token(claims: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """A signed token, whatever stands in it."""
    signed = f"{encoded(header or {'alg': 'HS256'})}.{encoded(claims)}"
    signature = hmac.digest(SECRET, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def claims(**further: Any) -> dict[str, Any]:
    return {"exp": int(time.time()) + 600, "permissions": {"all": ["/**"]}, **further}


TOKENS = {
    "unsigned, a critical header with half a pair": encoded(
        {"alg": "HS256", "crit": [HALF], HALF: 1}
    )
    + ".e30.AAAA",
    "a critical header with half a pair": token(claims(), {"alg": "HS256", "crit": [HALF]}),
    "an algorithm with half a pair": token(claims(), {"alg": HALF}),
    "a key name with half a pair": token(claims(), {"alg": "HS256", "kid": HALF}),
    "a user with half a pair": token(claims(sub=f"a{HALF}")),
    "an issuer with half a pair": token(claims(iss=HALF)),
    "a claim's name with half a pair": token(claims(**{HALF: 1})),
    "a right with half a pair": token({**claims(), "permissions": {"all": [f"/a/{HALF}"]}}),
    "a user within a list": token(claims(other=[{"name": HALF}])),
    "a deep header": encoded({"alg": "HS256", "crit": [[[[[[[["x"]]]]]]]]}) + ".e30.AAAA",
    "not a token": "\x1b[31m\n\0",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with `Entitlement = JWT` and every log that there is."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "secret").write_bytes(SECRET)
    settings = [
        "Listen=127.0.0.1:0",
        "Entitlement=JWT",
        f"LogFolder={folder}",
        f"EntitlementJWT.HmacSecretFile={folder / 'secret'}",
        "Extension.Presence=true",
        "Extension.Audit.Access=true",
        "Extension.Audit.Message=true",
        "Journal=on",
        f"JournalFolder={folder / 'journal'}",
    ]
    arguments = [part for setting in settings for part in ("--set", setting)]
    with live_server(folder, *arguments) as server:
        yield server


@pytest.mark.parametrize("given", TOKENS.values(), ids=TOKENS)
async def test_a_token_with_text_that_cannot_be_encoded_is_refused(
    guarded: LiveServer, given: str
) -> None:
    async with upgraded(guarded.port) as client:
        connect = json.dumps({"op": "connect", "token": given}).encode()
        await client.send(frame(TEXT, connect))
        _, payload = await client.frame()
        answer = json.loads(payload)
        assert answer["status"] == "CONNECT_DENY", answer
        assert len(answer["reason"]) < 400
        assert answer["reason"].isprintable()
        opcode, closing = await client.frame()
        assert opcode == CLOSE
        assert int.from_bytes(closing[:2], "big") == 4101
    await served(guarded)


async def served(server: LiveServer) -> None:
    """Everybody else is served."""
    good = token(claims(sub="grüße 🙂"))
    answer = await trio.to_thread.run_sync(post, server.url, "/a/b", good)
    assert answer["status"] == "OK", answer
    assert server.process.poll() is None


HTTP_TEXT = [
    b"GET /%ED%A0%80 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /rest/consume?%ED%A0%80=1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /rest/consume?subject=/a/%00%1b[31m HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /rest/consume?\x1b=1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\xff\xfe: 1\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nOrigin: \xff" + b"o" * 900 + b"\r\n\r\n",
    b"POST /stream HTTP/1.1\r\nHost: x\r\nContent-Type: \xff"
    + b"t" * 9000
    + b"\r\nContent-Length: 0\r\n\r\n",
    b"GET /sse?subject=/a/b HTTP/1.1\r\nHost: x\r\nLast-Event-ID: \xff\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", HTTP_TEXT, ids=range(len(HTTP_TEXT)))
async def test_http_text_is_not_echoed_raw_or_at_length(
    guarded: LiveServer, request_bytes: bytes
) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", guarded.port)
    async with stream:
        with trio.fail_after(10):
            await stream.send_all(request_bytes)
            answer = await stream.receive_some(65536)
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert b"\x1b" not in answer
    assert len(answer) < 1500
    await served(guarded)
