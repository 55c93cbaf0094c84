"""Encrypted connections of clients: OpenSSL works in memory, and the records go to a plain socket.

So sending has two parts. `EncryptedSocket.seal` makes the records, and what goes to the socket are
bytes as of any other connection: they are sent with those of many connections in one call, a part
of them can be sent, and what is left waits in the outbox (docs/design.md, "Fan-out").

All connections of a listener share one pair of memory buffers, because each pair would keep the
room that its largest flight once took, 7 KiB a connection. Both are empty between two calls: what
OpenSSL wrote is taken out before anything else can write, and it is asked to read until it has
taken everything in. A connection keeps a record of which only a part has arrived itself, inside
OpenSSL.
"""

import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import trio

from mdserver.limits import OWED_RECORDS_BYTES_MAX, RECORDS_WITHOUT_DATA_BYTES_MAX
from mdserver.server.sockets import WRITE_BYTES

RECORD_BYTES = 16 * 1024  # RFC 8446, section 5.1: the most that one record carries
RECEIVE_BYTES = RECORD_BYTES + 256 + 5
"""What is read at a time: the largest record. OpenSSL takes it in without a pause, and some hundred
messages without data fit into it, which take milliseconds."""


class RecordBuffers:
    """The memory through which OpenSSL exchanges records with all connections of a listener.

    Not for use by several threads.
    """

    __slots__ = ("incoming", "outgoing", "received", "take")

    def __init__(self) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.take = self.outgoing.read  # one bound method for all connections
        self.received = memoryview(bytearray(RECEIVE_BYTES))


class EncryptedSocket:
    """The server's side of a TLS connection over `plain`, which is non-blocking.

    `halfway` is to be set while a record was sent in part: nothing may be sent then but its rest.
    `cost` is the number of bytes that came for what `recv_into` returned last, in records with data
    and without. `_silent` is the number of bytes of records that came since the last data.
    `_early` has what was decrypted and not asked for yet. `owed` has records that OpenSSL made on
    its own, such as alerts, and that have to be sent before those that follow. `_ended` says that
    the client has sent `close_notify`, `_failure` what is wrong with a record that came after data.
    `write` makes records, and `take` takes them from OpenSSL;
    nothing may come between the two.
    """

    __slots__ = (
        "_buffers",
        "_early",
        "_ended",
        "_failure",
        "_silent",
        "_tls",
        "cost",
        "halfway",
        "owed",
        "plain",
        "take",
        "write",
    )

    def __init__(
        self, plain: socket.socket, context: ssl.SSLContext, buffers: RecordBuffers
    ) -> None:
        self.plain = plain
        self.halfway = False
        self._buffers = buffers
        self._tls = context.wrap_bio(buffers.incoming, buffers.outgoing, server_side=True)
        # The object in C below saves the flusher a call of Python for each record.
        self.write: Callable[[bytes | memoryview], int] = getattr(
            self._tls, "_sslobj", self._tls
        ).write
        self.take: Callable[[], bytes] = buffers.take
        self._early = b""
        self.owed = b""
        self._ended = False
        self._failure: tuple[object, ...] = ()
        self._silent = self.cost = 0

    def fileno(self) -> int:
        """Return the descriptor, -1 if the socket is closed."""
        return self.plain.fileno()

    def close(self) -> None:
        """Close the socket."""
        self.plain.close()

    def shutdown(self, how: int) -> None:
        """Shut down one side of the connection or both. Raises OSError."""
        self.plain.shutdown(how)

    def pending(self) -> bool:
        """Return whether `recv_into` has something to return or raise without the socket."""
        return bool(self._early) or self._ended or bool(self._failure)

    async def shake_hands(self) -> None:
        """Perform the handshake. Raises OSError if it fails."""
        received = memoryview(b"")
        while True:
            done = self._handshake_step(received)
            records, self.owed = self.owed, b""
            while records:
                try:
                    records = records[self.plain.send(records) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self.plain)
            if done:
                return
            await trio.lowlevel.wait_readable(self.plain)
            with suppress(BlockingIOError):
                size = self.plain.recv_into(self._buffers.received)
                if not size:
                    raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the client ended the handshake")
                received = self._buffers.received[:size]
                continue
            received = memoryview(b"")

    def _handshake_step(self, received: memoryview) -> bool:
        """Go on with what was received; return whether the handshake is done.

        What is to be sent is then in `owed`.
        """
        buffers = self._buffers
        try:
            buffers.incoming.write(received)
            self._tls.do_handshake()
            if buffers.incoming.pending:
                self._early = self._rest()  # came together with the end of the handshake
                self._silent = 0 if self._early else len(received)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            self._send_alert()
            raise
        finally:
            self.empty()
        return True

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Receive into `buffer`; return the number of bytes, 0 at the end of the stream.

        Raises SSLWantReadError or BlockingIOError if nothing is there, or not a whole record, and
        OSError if the connection is broken, or has had TLS messages without data for too long.
        """
        if self.pending():
            return self._take_early(memoryview(buffer))
        buffers = self._buffers
        received = self.plain.recv_into(buffers.received)
        if not received:
            return 0
        self._silent += received
        try:
            buffers.incoming.write(buffers.received[:received])
            size = self._decrypt(memoryview(buffer))
        except ssl.SSLWantReadError:
            if self._silent > RECORDS_WITHOUT_DATA_BYTES_MAX:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "records without data") from None
            raise
        except ssl.SSLError:
            self._send_alert()
            raise
        finally:
            self.empty()
            if self.owed:
                self._pay()  # an alert, too, that is about what came after data
        self.cost, self._silent = self._silent, 0
        return size

    def _take_early(self, view: memoryview) -> int:
        """Return what is there without the socket, as `recv_into` does."""
        if self._failure and not self._early:
            raise ssl.SSLError(*self._failure)
        self.cost = size = min(len(self._early), len(view))
        view[:size] = self._early[:size]
        self._early = self._early[size:]
        return size

    def _decrypt(self, view: memoryview) -> int:
        """Decrypt into `view`, and keep what does not fit; return the number of bytes.

        Raises SSLError if there is no data because a record is wrong. After data that is kept for
        the next call: the data came first.
        """
        tls, incoming = self._tls, self._buffers.incoming
        into = cast("Callable[[int, memoryview], int]", tls.read)
        size = 0
        try:
            while size < len(view):
                more = into(len(view) - size, view[size:])
                if not more:
                    self._ended = True
                    break
                size += more
                if not incoming.pending and not tls.pending():
                    break
            else:
                self._early = self._rest()
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLWantReadError:
            if not size:
                raise
        except ssl.SSLError as error:
            if not size:
                raise
            self._failure = error.args
        return size

    def recv(self, bytes_max: int) -> bytes:
        """Receive up to `bytes_max` bytes, as `recv_into` does."""
        buffer = bytearray(bytes_max)
        return bytes(buffer[: self.recv_into(buffer)])

    def _rest(self) -> bytes:
        """Return what else can be decrypted now.

        Raises SSLError as `_decrypt` does.
        """
        parts: list[bytes] = []
        try:
            while part := self._tls.read(RECORD_BYTES):
                parts.append(part)
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if not parts:
                raise
            self._failure = error.args
        return b"".join(parts)

    def empty(self) -> None:
        """Leave the shared buffers empty for the other connections."""
        incoming, outgoing = self._buffers.incoming, self._buffers.outgoing
        if incoming.pending:
            incoming.read()  # OpenSSL reads no more of this connection
        if outgoing.pending:
            self.owed += outgoing.read()

    def _pay(self) -> None:
        """Send what OpenSSL has to say on its own, or leave it for the next record.

        Raises OSError if the client has OpenSSL say more and more, and does not read it.
        """
        if not self.halfway:
            with suppress(OSError):  # a broken connection is found by who reads or sends
                self.owed = self.owed[self.plain.send(self.owed) :]
        if len(self.owed) > OWED_RECORDS_BYTES_MAX:
            raise ssl.SSLError(
                ssl.SSL_ERROR_SSL, "the client does not read the records of TLS itself"
            )

    def _send_alert(self) -> None:
        """Tell the client why its TLS connection ends, if that needs no waiting."""
        self.empty()
        records, self.owed = self.owed, b""
        if records and not self.halfway:
            with suppress(OSError):
                self.plain.send(records)

    def seal(self, data: bytes | memoryview) -> bytes:
        """Return the records for `data`, to be sent after those of earlier calls.

        Raises OSError if the connection is broken.
        """
        if self.owed or len(data) > WRITE_BYTES:
            return self._seal_parts(memoryview(data))
        try:
            self.write(data)  # takes all, in memory
        except BaseException:
            self.empty()
            raise
        return self.take()

    def _seal_parts(self, data: memoryview) -> bytes:
        """Return the records for `data` after those that are owed.

        No part is larger than a write, so the buffer that all connections share stays small.
        """
        owed, self.owed = self.owed, b""
        starts = range(0, len(data), WRITE_BYTES)
        return owed + b"".join(self.seal(data[start : start + WRITE_BYTES]) for start in starts)

    def send(self, data: bytes) -> int:
        """Send `data` if the socket takes it all; a part of it makes the connection useless.

        For the last thing that is said on a connection. Raises OSError, BlockingIOError included.
        """
        if self.halfway:
            raise BlockingIOError(errno.EAGAIN, "the rest of a record has to be sent first")
        records = self.seal(data)
        self.halfway = True  # also if it takes none: others would come after a gap
        self.halfway = self.plain.send(records) < len(records)
        return len(data)

    def say_goodbye(self) -> None:
        """Send `close_notify` (RFC 8446, section 6.1) if that needs no waiting.

        It shows the client that nothing was cut off, so it is not said if a record was sent in
        part. What was not sent at all, such as frames that waited, it says nothing about.
        """
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        self._send_alert()
