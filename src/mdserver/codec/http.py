"""HTTP/1.1 requests and answers over h11, with the strictness that h11 leaves to its users.

h11 takes a bare LF for a line's end, unfolds header lines, prefers Transfer-Encoding to a
Content-Length beside it, and takes chunks from HTTP/1.0. A proxy between the client and this server
may see another request in such bytes ("request smuggling", RFC 9112 section 11.2), so all of these
are refused and the connection is closed.

A connection serves one request after the other. `_h11` is None between requests: an idle connection
then keeps only the few bytes of its buffer. It is made when a head is complete, and dropped when
both the body was read and the answer has ended. `_body` is the body while it is being read; it is
None while the request is being answered, when further bytes are only kept.
"""

import re
from collections.abc import Callable, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import parse_qsl

import h11
from attrs import field, frozen

from mdserver import limits
from mdserver.core.text import safe_text
from mdserver.errors import MdserverError
from mdserver.limits import NS_PER_S

Headers = Sequence[tuple[bytes, bytes]]

_HEAD_END = b"\r\n\r\n"
_CONTENT_LENGTHS = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
CONTENT_POLICY = b"content-security-policy"
# A browser takes each answer for what its type says, shows none in a frame, and runs none unless it
# has a content policy of its own.
_GUARDED: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_NOTHING_RUNS = (CONTENT_POLICY, b"default-src 'none'; frame-ancestors 'none'")


class RequestRefusedError(MdserverError):
    """A request that is answered with `status` and `reason`, after which the connection closes."""

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


@frozen
class Request:
    """One whole request. Header names are in lower case; `target` is as it was sent."""

    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    http_1_1: bool = True

    @property
    def path(self) -> str:
        """The path as it was sent.

        It is not decoded: `/rest%2fproduce` is not `/rest/produce` to what stands in front of this
        server and says who may ask for what.
        """
        return self.target.partition("?")[0]

    @property
    def query(self) -> list[tuple[str, str]]:
        """The names and values of the query, in order.

        Raises RequestRefusedError (400) if it is not UTF-8 or has too many.
        """
        query = self.target.partition("?")[2]
        try:
            return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            raise RequestRefusedError(
                400, "The query is not valid UTF-8 or has more than 100 parameters."
            ) from None

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, several joined by commas; None if there is none."""
        values = [value for key, value in self.headers if key == name]
        return b", ".join(values).decode("latin-1") if values else None

    @property
    def wants_websocket(self) -> bool:
        """Whether the request asks for an upgrade to WebSocket (RFC 6455 section 4.1)."""
        return "websocket" in tokens(self.header(b"upgrade"))


class HttpConnection:
    """The server's side of one HTTP connection: requests in, bytes of answers out.

    Feed what arrives to `receive`; answer each request with `respond`, or `start_stream`, `chunk`
    and `end_stream`; then go on with `receive(b"")` if `keeps_open`. After a RequestRefusedError
    send what `refuse` returns, and close. `transport_security_s`, if it is not 0, is how long
    browsers are to come back over TLS only (RFC 6797). With a `clock` (ns since the Unix epoch)
    answers have a `Date`, which a server with a clock has to send (RFC 9110, 6.6.1).
    """

    __slots__ = (
        "_body",
        "_body_bytes_max",
        "_buffer",
        "_chunks",
        "_clock",
        "_h11",
        "_head_bytes_max",
        "_request",
        "_standing",
        "_tail",
    )

    def __init__(
        self,
        head_bytes_max: int = limits.HTTP_HEAD_BYTES_MAX,
        body_bytes_max: int = limits.HTTP_BODY_BYTES_MAX,
        transport_security_s: int = 0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._head_bytes_max = head_bytes_max
        self._body_bytes_max = body_bytes_max
        self._buffer = b""
        self._h11: h11.Connection | None = None
        self._request: h11.Request | None = None
        self._body: bytearray | None = None
        self._chunks = 0
        self._tail: bytes | None = None
        self._standing = list(_GUARDED)
        if transport_security_s:
            until = b"max-age=%d" % transport_security_s
            self._standing.append((b"strict-transport-security", until))

    def receive(self, received: bytes) -> Request | None:
        """Return the next request if these bytes complete it, else None.

        Raises RequestRefusedError: 400 malformed, 413 body too large, 431 head too large,
        501 unknown transfer coding. While a request is being answered, bytes are only kept.
        """
        if self._h11 is None:
            # A line end may be divided between the buffer's last byte and these bytes. Without a
            # line end among them the buffer need not be checked again. Without any bytes, what came
            # behind the request before is in the buffer, and nothing of it was checked.
            at_end = self._buffer[-1:] + received if received else self._buffer
            self._buffer += received
            head_end = self._find_head(b"\n" in at_end or b"\r" in at_end)
            if head_end is None:
                return None
            self._h11 = h11.Connection(
                h11.SERVER, max_incomplete_event_size=self._head_bytes_max + 1
            )
            received, self._buffer = self._buffer, b""
            _check_head(received[:head_end])
            self._h11.receive_data(received[:head_end])
            self._request = self._read_head(self._h11)
            received = received[head_end:]
        elif self._body is None:
            self._buffer += received
            if len(self._buffer) > self._head_bytes_max:
                raise RequestRefusedError(400, "Too many requests before the first is answered.")
            return None
        if received:
            self._h11.receive_data(received)
            if self._tail is not None:
                # h11 does not show the trailers as they were sent, so the bytes that end the body
                # are kept for `_check_trailers`. Trailers are at most as long as a head.
                self._tail = self._tail[-self._head_bytes_max :] + received
        return self._read_body(self._h11)

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for `CONTINUE` before it sends the body."""
        return self._h11 is not None and self._h11.they_are_waiting_for_100_continue

    @property
    def begun(self) -> bool:
        """Whether part of a request has come, by which a time-out tells slow from idle."""
        return bool(self._buffer) or self._h11 is not None

    @property
    def unfinished_bytes(self) -> int:
        """The number of bytes kept of a request that is not complete."""
        return len(self._buffer) + len(self._body or b"")

    @property
    def leftover(self) -> bytes:
        """The bytes that came after a request that asks for an upgrade."""
        if self._h11 is None:
            return self._buffer
        return bytes(self._h11.trailing_data[0]) + self._buffer

    def respond(self, status: int, headers: Headers = (), body: bytes = b"") -> bytes:
        """Return a whole answer to the request that was received last."""
        exchange = self._exchange()
        head = self._guarded(headers)
        if status != 204:  # RFC 9110 section 8.6
            head.append((b"content-length", str(len(body)).encode()))
        out = _sent(exchange, self._response(status, head))
        if body and self._request is not None and self._request.method != b"HEAD":
            out += _sent(exchange, h11.Data(data=body))
        return out + self.end_stream()

    def start_stream(self, status: int, headers: Headers = ()) -> bytes:
        """Return the head of an answer without a length; its parts follow with `chunk`."""
        return _sent(self._exchange(), self._response(status, self._guarded(headers)))

    def _guarded(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        head = [*headers, *self._standing]
        if not any(name == CONTENT_POLICY for name, _ in headers):
            head.append(_NOTHING_RUNS)
        return head

    def chunk(self, part: bytes) -> bytes:
        """Return a part of a streamed answer, no bytes for an empty part.

        An empty chunk would end the answer (RFC 9112, section 7.1).
        """
        return _sent(self._exchange(), h11.Data(data=part)) if part else b""

    def end_stream(self) -> bytes:
        """Return the end of an answer; the next request may come if `keeps_open`."""
        exchange = self._exchange()
        out = _sent(exchange, h11.EndOfMessage())
        if exchange.our_state is h11.DONE and exchange.their_state is h11.DONE:
            self._buffer = bytes(exchange.trailing_data[0]) + self._buffer
            self._h11 = self._request = self._body = None
        return out

    @property
    def keeps_open(self) -> bool:
        """Whether the connection serves another request after the answer that was given."""
        return self._h11 is None

    def refuse(self, error: RequestRefusedError) -> bytes:
        """Return the answer to a request that could not be read, after which to close.

        It has no bytes if an answer has begun already. Nothing is kept of the request, because the
        client may take its time to read the answer.
        """
        answering, self._h11 = self._h11, None
        self._buffer, self._body, self._tail = b"", None, None
        if answering is not None and answering.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        body = error.reason.encode(errors="backslashreplace") + b"\n"
        exchange = h11.Connection(h11.SERVER)
        length = (b"content-length", str(len(body)).encode())
        close = (b"connection", b"close")
        head = self._guarded([*_TEXT, *error.headers, length, close])
        out = _sent(exchange, self._response(error.status, head))
        return out + _sent(exchange, h11.Data(data=body)) + _sent(exchange, h11.EndOfMessage())

    def _response(self, status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
        """Return the head of an answer, with its reason phrase."""
        if self._clock is not None:
            headers.append((b"date", _date(self._clock() // NS_PER_S)))
        phrase = HTTPStatus(status).phrase.encode()
        return h11.Response(status_code=status, headers=headers, reason=phrase)

    def _exchange(self) -> h11.Connection:
        assert self._h11 is not None, "there is no request to answer"
        return self._h11

    def _find_head(self, line_ends: bool) -> int | None:
        self._buffer = self._buffer.removeprefix(b"\r\n")  # RFC 9112 section 2.2
        found = self._buffer.find(_HEAD_END)
        if found > self._head_bytes_max or (found < 0 and len(self._buffer) > self._head_bytes_max):
            raise RequestRefusedError(
                431, f"The head of a request may have {self._head_bytes_max} bytes."
            )
        if found >= 0:
            return found + len(_HEAD_END)
        if line_ends:
            # Checked before the head is complete, because one with bare LFs never would be.
            _check_ends(self._buffer)
        return None

    def _read_head(self, exchange: h11.Connection) -> h11.Request:
        try:
            event = exchange.next_event()
        except h11.RemoteProtocolError as error:
            raise _refused(error) from None
        assert isinstance(event, h11.Request)
        length = _check_framing(event)
        if length > self._body_bytes_max:
            raise self._body_too_large()
        self._body = bytearray()
        self._chunks = 0
        chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        self._tail = b"" if chunked else None
        return event

    def _read_body(self, exchange: h11.Connection) -> Request | None:
        """Return the request if its body is complete, None if more bytes are needed."""
        assert self._body is not None
        assert self._request is not None
        while True:
            try:
                event = exchange.next_event()
            except h11.RemoteProtocolError as error:
                raise _refused(error) from None
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.EndOfMessage):
                if self._tail is not None:
                    unread = len(exchange.trailing_data[0])
                    end = self._tail[: len(self._tail) - unread]
                    _check_trailers(end, len(list(event.headers)))
                break
            assert isinstance(event, h11.Data)
            self._body += event.data
            self._chunks += event.chunk_start
            if self._chunks > limits.HTTP_CHUNKS_MAX:
                raise RequestRefusedError(
                    400, f"A body may come in {limits.HTTP_CHUNKS_MAX} chunks: make them larger."
                )
            if len(self._body) > self._body_bytes_max:
                raise self._body_too_large()
        body, self._body = bytes(self._body), None
        self._tail = None
        head = self._request
        return Request(
            head.method.decode("ascii"),
            head.target.decode("ascii"),
            head.headers,
            body,
            head.http_version >= b"1.1",
        )

    def _body_too_large(self) -> RequestRefusedError:
        return RequestRefusedError(
            413, f"The body of a request may have {self._body_bytes_max} bytes."
        )


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def tokens(value: str | None) -> list[str]:
    """Return the members of a comma-separated header value, in lower case."""
    return [part.strip().lower() for part in value.split(",")] if value else []


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """Return a time as headers have it (RFC 9110, section 5.6.7); made once a second."""
    return formatdate(second, usegmt=True).encode()


def _check_ends(lines: bytes) -> None:
    """Refuse a bare LF or CR, which h11 would accept."""
    ends = lines.count(b"\r\n")
    if lines.count(b"\n") != ends:
        raise RequestRefusedError(400, "Each line of a request ends with CR LF, not with LF alone.")
    if lines.count(b"\r") - (lines[-1:] == b"\r") > ends:
        raise RequestRefusedError(400, "A CR in a request stands only before a LF.")


def _check_head(head: bytes) -> None:
    """Refuse what else h11 would accept: folded lines, and several lengths that are equal."""
    _check_ends(head)
    if b"\r\n " in head or b"\r\n\t" in head:
        raise RequestRefusedError(400, "A header has to stand on one line.")
    lengths = _CONTENT_LENGTHS.findall(head)
    if len(lengths) > 1 or (lengths and b"," in lengths[0]):
        raise RequestRefusedError(400, "A request has one Content-Length.")


def _check_trailers(end: bytes, count: int) -> None:
    """Refuse in the trailers of a body what is refused in a head.

    `end` are the last bytes of the body with its `count` trailers and the empty line after them.
    """
    lines = end.split(b"\n")[-count - 2 : -1]
    if any(line[-1:] != b"\r" for line in lines):
        raise RequestRefusedError(400, "Each line of a request ends with CR LF, not with LF alone.")
    if any(b"\r" in line[:-1] for line in lines):
        raise RequestRefusedError(400, "A CR in a request stands only before a LF.")
    if any(line[:1] in (b" ", b"\t") for line in lines):
        raise RequestRefusedError(400, "A header has to stand on one line.")


def _check_framing(request: h11.Request) -> int:
    """Return the announced length of the body, 0 if there is none or it comes in chunks.

    Raises RequestRefusedError for framing that a proxy might read in another way (RFC 9112, 6.3).
    """
    if not request.http_version.startswith(b"1."):
        raise RequestRefusedError(505, "This server speaks HTTP/1.1.")
    length = None
    chunked = False
    for name, value in request.headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = True
    if chunked and length is not None:
        raise RequestRefusedError(
            400, "A request has either a Content-Length or a Transfer-Encoding, not both."
        )
    if chunked and request.http_version < b"1.1":
        raise RequestRefusedError(400, "HTTP/1.0 has no Transfer-Encoding.")
    return length or 0


def _refused(error: h11.RemoteProtocolError) -> RequestRefusedError:
    return RequestRefusedError(
        error.error_status_hint, f"That is no HTTP request: {safe_text(error)}."
    )


def _sent(exchange: h11.Connection, event: h11.Event) -> bytes:
    return exchange.send(event) or b""
