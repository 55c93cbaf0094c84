"""HTTP requests: what is understood, what is refused, and that no split of the bytes matters."""

from contextlib import suppress

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mdserver.codec.http import HttpConnection, Request, RequestRefusedError

GET = b"GET /snapshot?subject=%2Fa%2Fb&x= HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nx-one: 2\r\n\r\n"
POST = b"POST /rest/produce HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\n\r\n"
)


def read_answer(*pieces: bytes, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes, bool]:
    """Status, headers, body as h11's client side reads them, and whether it closes."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join(pieces))
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        body += event.data
    return (
        response.status_code,
        dict(response.headers),
        body,
        client.their_state is h11.MUST_CLOSE,
    )


def refusal(received: bytes) -> RequestRefusedError:
    connection = HttpConnection()
    with pytest.raises(RequestRefusedError) as caught:
        connection.receive(received)
    status, _, body, closes = read_answer(connection.refuse(caught.value))
    assert (status, body, closes) == (
        caught.value.status,
        caught.value.reason.encode() + b"\n",
        True,
    )
    return caught.value


def test_a_request_without_a_body() -> None:
    request = HttpConnection().receive(GET)
    assert request is not None
    assert (request.method, request.path, request.http_1_1) == ("GET", "/snapshot", True)
    assert request.query == [("subject", "/a/b"), ("x", "")]
    assert request.header(b"x-one") == "1, 2"
    assert request.header(b"x-two") is None
    assert not request.wants_websocket


@pytest.mark.parametrize("stream", [POST, CHUNKED], ids=["length", "chunks"])
def test_a_body_in_any_pieces(stream: bytes) -> None:
    body = b"hello" if stream is POST else b"abcde"
    for at in range(len(stream)):
        connection = HttpConnection()
        request = connection.receive(stream[:at])
        assert request is None
        request = connection.receive(stream[at:])
        assert request is not None
        assert request.body == body


def test_one_byte_at_a_time() -> None:
    connection = HttpConnection()
    assert not connection.begun
    requests = [connection.receive(bytes((byte,))) for byte in POST]
    assert requests[:-1] == [None] * (len(POST) - 1)
    assert requests[-1] is not None
    assert connection.begun


def test_requests_after_each_other_on_one_connection() -> None:
    connection = HttpConnection()
    request = connection.receive(b"\r\n" + POST + GET + CHUNKED)
    for method in ("POST", "GET", "POST"):
        assert request is not None
        assert request.method == method
        answer = connection.respond(200, [(b"content-type", b"text/plain")], b"done")
        status, headers, body, closes = read_answer(answer)
        assert (status, headers[b"content-length"], body, closes) == (200, b"4", b"done", False)
        assert connection.keeps_open
        request = connection.receive(b"")
    assert request is None
    assert not connection.begun


def test_a_head_behind_another_request_is_checked_as_well() -> None:
    """It came in the same read, so no further byte may come to have it looked at."""
    connection = HttpConnection()
    connection.receive(GET + b"GET / HTTP/1.1\nHost: h\n\nx")
    connection.respond(200)
    with pytest.raises(RequestRefusedError, match="LF alone"):
        connection.receive(b"")


def test_what_comes_during_an_answer_waits() -> None:
    connection = HttpConnection()
    connection.receive(GET)
    assert connection.receive(POST[:20]) is None
    assert connection.receive(POST[20:]) is None
    connection.respond(200)
    request = connection.receive(b"")
    assert request is not None
    assert request.body == b"hello"


def test_what_comes_during_an_answer_is_bounded() -> None:
    connection = HttpConnection()
    connection.receive(GET)
    connection.start_stream(200)
    with pytest.raises(RequestRefusedError) as caught:
        connection.receive(b"x" * 20_000)
    assert connection.refuse(caught.value) == b""


def test_head_has_no_body() -> None:
    connection = HttpConnection()
    connection.receive(GET.replace(b"GET", b"HEAD"))
    answer = connection.respond(200, [], b"done")
    assert answer.endswith(b"content-length: 4\r\n\r\n")
    assert read_answer(answer, method="HEAD")[2] == b""


def test_no_content_has_no_length() -> None:
    connection = HttpConnection()
    connection.receive(GET)
    answer = connection.respond(204)
    assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert b"content-length" not in answer


def test_a_streamed_answer() -> None:
    connection = HttpConnection()
    connection.receive(GET)
    pieces = [connection.start_stream(200, [(b"content-type", b"text/event-stream")])]
    pieces += [connection.chunk(part) for part in (b"one", b"", b"two")]
    assert not connection.keeps_open
    pieces.append(connection.end_stream())
    status, headers, body, closes = read_answer(*pieces)
    assert (status, headers[b"content-type"], body, closes) == (
        200,
        b"text/event-stream",
        b"onetwo",
        False,
    )
    assert connection.keeps_open


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"],
)
def test_a_connection_that_the_client_wants_closed(request_: bytes) -> None:
    connection = HttpConnection()
    assert connection.receive(request_) is not None
    assert read_answer(connection.respond(200, [], b"x"))[3]
    assert not connection.keeps_open


def test_a_client_that_waits_before_its_body() -> None:
    connection = HttpConnection()
    head, body = POST[:-5], POST[-5:]
    assert (
        connection.receive(head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")) is None
    )
    assert connection.wants_continue
    request = connection.receive(body)
    assert request is not None
    assert not connection.wants_continue


def test_what_follows_an_upgrade_is_left_over() -> None:
    upgrade = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    connection = HttpConnection()
    request = connection.receive(upgrade + b"\x81\x80")
    assert request is not None
    assert request.wants_websocket
    connection.receive(b"more")
    assert connection.leftover == b"\x81\x80more"
    assert HttpConnection().leftover == b""


@pytest.mark.parametrize(
    ("received", "status", "part"),
    [
        (b"GET / HTTP/1.1\nHost: h\n\n", 400, "LF alone"),
        (b"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400, "LF alone"),
        (b"GET / HTTP/1.1\n", 400, "LF alone"),
        (b"GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", 400, "CR in"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n z\r\n\r\n", 400, "one line"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\tz\r\n\r\n", 400, "one line"),
        (b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400, "one line"),
        (
            (
                b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            ),
            400,
            "not both",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            400,
            "one",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\ncontent-length: 5\r\nContent-Length: 6\r\n\r\n",
            400,
            "one",
        ),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\n", 400, "one"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n", 400, "Content-Length"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400, "Content-Length"),
        (b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Transfer"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 501, "Tr"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n", 400, "header"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, "HTTP/1.1"),
        (b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400, "no HTTP request"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX\x00: y\r\n\r\n", 400, "no HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "no HTTP request"),
        (b"\r\n\r\n\r\n\r\n", 400, "no HTTP request"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "chunk"),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
            400,
            "no",
        ),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, 431, "16384"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 431, "16384"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n\r\n", 413, "1048576"),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n"
            + b"x" * 0x100001,
            413,
            "1048576",
        ),
    ],
)
def test_what_is_refused(received: bytes, status: int, part: str) -> None:
    error = refusal(received)
    assert error.status == status
    assert part in error.reason


def test_paths_and_queries_are_utf_8() -> None:
    for target in ("/?%ff=1", "/?" + "&".join("a=1" for _ in range(101))):
        request = Request("GET", target, [])
        with pytest.raises(RequestRefusedError):
            assert request.query


def test_a_path_is_what_was_sent() -> None:
    assert Request("GET", "/rest%2fproduce?a=%2f", []).path == "/rest%2fproduce"


LAST_CHUNK = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n"


@pytest.mark.parametrize("trailers", [b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"])
def test_trailers(trailers: bytes) -> None:
    connection = HttpConnection()
    request = connection.receive(LAST_CHUNK + trailers + b"\r\n" + GET)
    assert request is not None
    assert request.body == b"a\nb"
    connection.respond(200)
    following = connection.receive(b"")
    assert following is not None
    assert following.method == "GET"


@pytest.mark.parametrize(
    "trailers",
    [
        b"\n",
        b"A: b\n\r\n",
        b"A: b\r\n\n",
        b"A: b\nC: d\r\n\r\n",
        b"A: b\r\n C: d\r\n\r\n",
        b"A: b\n C: d\r\n\r\n",
        b"A: b\rC: d\r\n\r\n",
        b"A: b\nX: y\r\n z\r\n\r\n",
    ],
)
def test_trailers_that_h11_would_mend(trailers: bytes) -> None:
    assert refusal(LAST_CHUNK + trailers + GET).status == 400


def test_answers_are_taken_for_nothing_else() -> None:
    for secure in (False, True):
        connection = HttpConnection(transport_security_s=60 * secure)
        connection.receive(GET)
        _, headers, _, _ = read_answer(connection.respond(200, [], b"x"))
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"content-security-policy"] == b"default-src 'none'; frame-ancestors 'none'"
        security = headers.get(b"strict-transport-security")
        assert security == (b"max-age=60" if secure else None)


PIECES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\n",
        b"Host: h\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"Upgrade: websocket\r\n",
        b"Expect: 100-continue\r\n",
        b"abc",
        b" x: y\r\n",
    ]
) | st.binary(max_size=8)


@given(st.lists(PIECES, max_size=12))
def test_any_bytes_are_requests_or_refused(pieces: list[bytes]) -> None:
    connection = HttpConnection(head_bytes_max=200, body_bytes_max=20)
    with suppress(RequestRefusedError):
        for piece in pieces:
            request = connection.receive(piece)
            while request is not None and not request.wants_websocket:
                assert connection.respond(200, [], b"x").startswith(b"HTTP/1.1 200")
                if not connection.keeps_open:
                    return
                request = connection.receive(b"")


@example([b"GET / HTTP/1.1\r\n", b"\r", b"abc"], 16)
@given(st.lists(PIECES, max_size=12), st.integers(0, 100))
def test_pieces_do_not_matter(pieces: list[bytes], at: int) -> None:
    stream = b"".join(pieces)

    def outcome(*parts: bytes) -> Request | int | None:
        connection = HttpConnection(head_bytes_max=1000, body_bytes_max=20)
        request = None
        try:
            for part in parts:
                request = request or connection.receive(part)
        except RequestRefusedError as error:
            return error.status
        return request

    assert outcome(stream[:at], stream[at:]) == outcome(stream)


def test_nothing_is_kept_of_a_request_that_is_refused() -> None:
    http = HttpConnection()
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n"
    assert http.receive(head + b"x" * 800) is None
    assert http.unfinished_bytes == 800
    assert http.refuse(RequestRefusedError(503, "Busy.")).startswith(b"HTTP/1.1 503 ")
    assert http.unfinished_bytes == 0


def test_a_body_in_very_many_chunks_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection = HttpConnection()
    assert connection.receive(head + b"1\r\nx\r\n" * 1000) is None
    request = connection.receive(b"0\r\n\r\n")
    assert request is not None
    assert len(request.body) == 1000
    assert "1000 chunks" in refusal(head + b"1\r\nx\r\n" * 1001).reason
