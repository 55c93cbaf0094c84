"""`Client`: the API of the Python client (docs/clients.md), for Trio and asyncio.

A `Client` checks what it is asked for, and has its parts do it (`mdserver.client.life`).
"""

import random
import ssl
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

import anyio
import anyio.lowlevel
import attrs

from mdserver import __version__, limits
from mdserver.client import arguments
from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.phases import Phase
from mdserver.client.core.positions import Seen
from mdserver.client.core.receipts import ReceiptBook
from mdserver.client.core.schedule import ReconnectPolicy, ReconnectSettings
from mdserver.client.core.values import Numbering, PublishResult
from mdserver.client.driver import Driver, OpenTransport, now
from mdserver.client.errors import ArgumentError, ClientTimeoutError
from mdserver.client.life import ClientLife
from mdserver.client.message import Message
from mdserver.client.publication import Publication
from mdserver.client.streaming import open_http_stream
from mdserver.client.subscription import Subscription
from mdserver.client.websocket import open_websocket
from mdserver.codec.binary_form import BinaryClient
from mdserver.codec.encoding import ClientCodec
from mdserver.codec.json_form import JsonClient
from mdserver.core.commands import PositionAfter, Publish
from mdserver.core.message import Qos

TransportName = Literal["websocket", "http"]
TRANSPORTS: dict[str, OpenTransport] = {"websocket": open_websocket, "http": open_http_stream}
Encoding = Literal["binary", "json"]
CODECS: dict[str, type[ClientCodec]] = {"binary": BinaryClient, "json": JsonClient}


class Client:
    """A publisher and subscriber.

    `async with Client([...]) as client` connects in the background and reconnects by itself; `await
    client.connected()` waits for the connection. When the block ends without an error, the client
    waits up to 5 s for missing results and unsent receipts. Then it closes the connection, and the
    iteration of every subscription ends. A client can be entered once, and belongs to the thread
    and the event loop (Trio's or asyncio's) in which it was entered.

    Methods that are not `async` never wait: they change what the client wants, and pass the change
    on to the server if there is a session. Methods that are `async` can be cancelled.

    Args:
        servers: addresses `[weight] [scheme://]host[:port]`, one of which is chosen by weight for
            each connection. The scheme is http, ws, https or wss.
        token: the entitlement token.
        encoding: `binary`, or `json`, which people can read in a capture of the traffic.
        transport: `websocket`, or `http` for networks that block WebSocket.
        encryption: whether to use TLS for servers without a scheme.
        tls: the TLS context; by default that of Python's `ssl.create_default_context()`.
        publisher: the name under which publications are numbered, so that each is taken exactly
            once; "" for a random name. With None they are not numbered: a publication that had no
            result when a connection was lost is published again, and may be taken twice.
        publisher_key: proves that `publisher` is the identity of an earlier client, as its
            properties `publisher` and `publisher_key` gave it.
        numbering: the `numbering` of an earlier client, to go on under its identity. First publish
            again, in the same order, what the earlier client published since; the server takes each
            of these publications once.
        positions: subjects and the positions of an earlier client (`position`), after which they
            are recovered.
        keepalive_ms: the keep-alive interval to ask the server for, in milliseconds. It can shorten
            the interval of the server, but to no less than 1,000.
        reconnect: when to reconnect; by default `ReconnectSettings.service()`.
        buffer_messages: how many messages may wait in one subscription before it is held at the
            server.
        receipts: whether to report to the server what was received, once a minute and at the end,
            so that its journal can be audited.
        connect_timeout_s: if no server was reached in this time, in seconds, everything that waits
            fails, with ConnectError or, for a publication, PublishError. The client goes on trying.
            With None everything waits without a limit.
        timeout_s: how long `publish` and `reply` wait for a result, in seconds; None for no limit.
        rng: the source of randomness, for tests.

    Raises:
        ArgumentError: an argument is invalid.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        token: str | None = None,
        encoding: Encoding = "binary",
        transport: TransportName = "websocket",
        encryption: bool = False,
        tls: ssl.SSLContext | None = None,
        publisher: str | None = "",
        publisher_key: str | None = None,
        numbering: Numbering | None = None,
        positions: Mapping[str, Seen] | None = None,
        keepalive_ms: int | None = None,
        reconnect: ReconnectSettings | None = None,
        buffer_messages: int = limits.CLIENT_BUFFER_MESSAGES,
        receipts: bool = False,
        connect_timeout_s: float | None = limits.CLIENT_CONNECT_TIMEOUT_S,
        timeout_s: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        servers = arguments.texts("servers", servers, "127.0.0.1:8800")
        codec = arguments.choice("encoding", encoding, CODECS)
        opens = arguments.choice("transport", transport, TRANSPORTS)
        arguments.whole("buffer_messages", buffer_messages, 1)
        arguments.seconds("connect_timeout_s", connect_timeout_s)
        arguments.seconds("timeout_s", timeout_s)
        arguments.kind("tls", tls, ssl.SSLContext)
        arguments.flag("receipts", receipts)
        rng = rng or random.SystemRandom()
        self._name = f"{rng.getrandbits(64):016x}"
        settings = arguments.settings(
            client=f"mdserver-python/{__version__}",
            name=self._name,
            publisher=publisher,
            publisher_key=publisher_key,
            numbering=numbering,
            token=token,
            keepalive_ms=keepalive_ms,
            encryption=encryption,
            reconnect=reconnect or ReconnectSettings.service(),
        )
        try:
            self._core = ClientCore(servers, settings, codec, rng)
        except ValueError as error:
            raise ArgumentError(str(error)) from None
        self._core.positions.restore(positions or {})
        self._driver = Driver(self._core, codec(), opens, self)
        self._driver.tls = tls
        self._buffer_messages = buffer_messages
        book = ReceiptBook(self._name) if receipts else None
        self._life = ClientLife(self._core, self._driver, book, connect_timeout_s, timeout_s)
        self._standing = self._life.standing
        self._publishing = self._life.publishing
        self._shared = self._life.shared
        self.statuses = self._life.statuses
        self._requests = 0

    async def __aenter__(self) -> Self:
        await self._life.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._life.leave(error)

    def take(self, output: out.Output) -> None:
        """Hand an output to the part that it is for; called by the driver."""
        self._life.take(output)

    # The connection

    def connect(self) -> None:
        """Connect now, instead of waiting for the next attempt; also after `disconnect` or a stop.

        `async with` connects by itself, so this is needed only after one of those. If no server was
        reached yet, `connect_timeout_s` starts again. Raises NotOpenError if the client is not
        open.
        """
        self._life.connect()

    def disconnect(self) -> None:
        """Close the connection and do not reconnect until `connect`.

        Subscriptions are kept; publications without a result fail.
        """
        self._standing.require_place()
        self._driver.perform(self._core.disconnect())

    async def connected(self) -> None:
        """Wait until there is a session.

        Raises StoppedError if the client stopped because a server refused it, ConnectError if no
        server was reached in `connect_timeout_s`, and NotOpenError if the client is not open.
        """
        await self._standing.wait_until(lambda: self._core.phase is Phase.UP)

    def set_servers(self, servers: Iterable[str]) -> None:
        """Use these servers from the next connection on; a live connection is kept.

        `servers` as for the constructor. Raises ArgumentError.
        """
        try:
            self._core.set_servers(arguments.texts("servers", servers, "127.0.0.1:8800"))
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    def set_encryption(self, encryption: bool, tls: ssl.SSLContext | None = None) -> None:
        """Use TLS or not from the next connection on, for servers without a scheme.

        `tls` None: the default context of Python.
        """
        arguments.flag("encryption", encryption)
        arguments.kind("tls", tls, ssl.SSLContext)
        self._core.set_encryption(encryption)
        self._driver.tls = tls

    def set_transport(self, transport: TransportName) -> None:
        """Use this transport from the next connection on: `websocket` or `http`.

        Raises ArgumentError.
        """
        self._driver.open_transport = arguments.choice("transport", transport, TRANSPORTS)

    def set_entitlement_token(self, token: str) -> None:
        """Use this token from now on.

        On a live connection it is renewed without a reconnect; a client that stopped, or whose
        token expired, connects again.
        """
        arguments.text("token", token)
        self._standing.require_place()
        self._standing.stopped = None
        self._driver.perform(self._core.set_token(token, now()))

    def set_external_token(self, token: str) -> None:
        """Set the name of this client in the presence log, from the next connection on."""
        arguments.text("token", token)
        self._core.settings = attrs.evolve(self._core.settings, external_token=token)

    # When to reconnect, and what to tell

    def notify_after_failed_connection_attempts(self, attempts: int) -> None:
        """Notify SERVER_DOWN after this many failures; a lost connection is one of them."""
        self._reconnect(notify_after_failed_attempts=attempts)

    def notify_when_reconnect_rate_exceeds_threshold(self, threshold: int) -> None:
        """Notify RECONNECT_RATE_EXCEEDED beyond this many reconnects in three minutes."""
        self._reconnect(notify_rate_threshold=threshold)

    def set_quick_reconnect_max_retries(self, retries: int) -> None:
        """Set the number of retries in the quick phase."""
        self._reconnect(quick_max_retries=retries)

    def set_quick_reconnect_initial_delay(self, delay_s: float) -> None:
        """Set the unit of the delays in the quick phase, in seconds."""
        self._reconnect(quick_initial_delay_s=delay_s)

    def set_reconnect_policy(self, policy: ReconnectPolicy) -> None:
        """Set the policy that follows the quick phase."""
        self._reconnect(policy=policy)

    def set_reconnect_time_interval(self, interval_s: float) -> None:
        """Set the unit of the delays after the quick phase, in seconds."""
        self._reconnect(time_interval_s=interval_s)

    def set_reconnect_max_delay(self, delay_s: float) -> None:
        """Set the longest delay, in seconds."""
        self._reconnect(max_delay_s=delay_s)

    def _reconnect(self, **changes: object) -> None:
        arguments.reconnecting(changes)
        settings = self._core.settings.reconnect
        self._core.set_reconnect(attrs.evolve(settings, **changes))  # type: ignore[arg-type]

    # Subscribing

    def subscribe(self, *subjects: str, history: int = 0, conflation_ms: int = 0) -> Subscription:
        """Subscribe to subjects and patterns; return the iterator of their messages.

        It may be called before `async with`, and lasts across reconnects: what was missed is
        recovered. In a pattern `*` stands for one segment, and `**` at the end for one or more.

        Args:
            subjects: at least one subject or pattern.
            history: the number of cached messages of each subject that come first; with 0 its
                snapshot comes first.
            conflation_ms: at most one message of each subject in this many milliseconds, with the
                latest content; with 0 every message.

        Raises:
            InvalidSubjectError: a subject breaks the rules; nothing is subscribed then.
            ArgumentError: an argument is invalid.
            NotOpenError: the client was left already.
        """
        if self._standing.entered:
            self._standing.require_open()
        if not subjects:
            raise ArgumentError("subscribe takes at least one subject or pattern")
        for subject in subjects:
            arguments.subject(subject)
        arguments.whole("history", history)
        arguments.whole("conflation_ms", conflation_ms)
        subscription = Subscription(self._shared, subjects, self._buffer_messages)
        self._shared.add(subscription, history, conflation_ms)
        if self._standing.trouble is not None:
            # Those that were there before have been told, and nothing else would tell this one.
            subscription.fail(self._standing.trouble)
        return subscription

    def subscribe_with_history(self, subjects: Iterable[str], history: int) -> Subscription:
        """Subscribe as `subscribe` does, with the last `history` messages of each subject first."""
        return self.subscribe(*arguments.texts("subjects", subjects, "/a/b"), history=history)

    def subscribe_with_conflation(
        self, subjects: Iterable[str], conflation_ms: int
    ) -> Subscription:
        """Subscribe as `subscribe` does, with at most one message a subject in `conflation_ms`."""
        given = arguments.texts("subjects", subjects, "/a/b")
        return self.subscribe(*given, conflation_ms=conflation_ms)

    def unsubscribe(self, subjects: Iterable[str]) -> None:
        """End all subscriptions of these subjects and patterns.

        Messages that are here already can still be taken. A subscription without any subject left
        ends its iteration. Raises ArgumentError.
        """
        given = arguments.texts("subjects", subjects, "/a/b")
        self._standing.require_place()
        for subject in given:
            self._shared.unsubscribe(subject)

    def get_subjects(self) -> list[str]:
        """Return the subscribed subjects and patterns, in the order of subscription."""
        return list(self._core.subscriptions)

    def pause(self) -> None:
        """Stop receiving messages until `resume`."""
        self._standing.require_place()
        self._driver.perform(self._core.pause())
        self._shared.interrupt()

    def resume(self) -> None:
        """Receive messages again, beginning with those that were missed."""
        self._standing.require_place()
        self._driver.perform(self._core.resume())
        self._shared.go_on()

    # Publishing

    async def publish(
        self,
        subject: str,
        content: str | bytes,
        *,
        fields: Mapping[str, str] | None = None,
        closure: str | None = None,
        retained: bool = True,
        qos: Qos = Qos.GUARANTEED,
        compressed: bool = False,
        reply_subject: str | None = None,
        timeout_s: float | None = None,
    ) -> PublishResult:
        """Publish a message and wait for its result.

        When this wait is cancelled or times out, the publication goes on and may still be taken.

        Args:
            subject: a subject, no pattern.
            content: text, or bytes.
            fields: names and texts that travel with the content.
            closure: a text of the application; it goes out with the message, and the result is
                notified as a status that carries it.
            retained: whether the message becomes a part of the subject's snapshot.
            qos: GUARANTEED, or STANDARD for a message that is neither cached nor repeated.
            compressed: send the content in the zlib format (RFC 1950); receivers get it
                decompressed.
            reply_subject: where a reply is to be published.
            timeout_s: how long to wait, in seconds; with None the `timeout_s` of the client holds.

        Returns:
            The result, with `epoch` and `seq`, the position of the message.

        Raises:
            PublishError: the publication was refused or failed; its `result` has the details.
            ClientTimeoutError: no result came in time.
            ArgumentError: an argument is invalid.
            NotOpenError: the client is not open.
        """
        arguments.seconds("timeout_s", timeout_s)
        command = arguments.publication(
            subject, content, fields, closure, retained, qos, compressed, reply_subject
        )
        return await self._publishing.publish(command, timeout_s)

    async def submit(
        self,
        subject: str,
        content: str | bytes,
        *,
        fields: Mapping[str, str] | None = None,
        closure: str | None = None,
        retained: bool = True,
        qos: Qos = Qos.GUARANTEED,
        compressed: bool = False,
        reply_subject: str | None = None,
    ) -> Publication:
        """Publish a message without waiting for its result.

        It waits only for room, as long as 1,000 publications have no result yet. With a publisher,
        the GUARANTEED publications of a subject group are taken in the order in which they were
        submitted. Arguments and errors are those of `publish`, except that
        `Publication.outcome` of the returned object raises the failure of the publication.
        """
        return await self.submit_command(
            arguments.publication(
                subject, content, fields, closure, retained, qos, compressed, reply_subject
            )
        )

    async def submit_command(self, command: Publish) -> Publication:
        """Publish a `publish` command of docs/protocol.md as `submit` does.

        This is the only way to publish content that is compressed already.
        """
        return await self._publishing.submit(command)

    @property
    def numbering(self) -> Numbering:
        """The numbers that this publisher has used; keep it to let a later run go on with them."""
        return self._core.numbering

    def position(self, subject: str) -> Seen | None:
        """Return the history id, epoch and seq of the last message of a subject.

        Before there is one that is where the subject stood when it was subscribed, or None if the
        server did not say so. Right after `Subscription.batch` it is that of the last message which
        was taken.
        """
        seen = self._core.positions.get(subject)
        return None if seen is None else (seen.history, seen.epoch, seen.seq)

    def recover_unseen(self, pattern: str) -> Seen | None:
        """Recover subjects of this pattern that come up without a connection from their beginning.

        Without this they come with their snapshot. Returns the position under the pattern, for
        `positions` of a later client, if it is new; None if it is as before, or before the first
        connection.
        """
        positions = self._core.positions
        position = PositionAfter(positions.history, 0, 0)
        if not positions.history or positions.get(pattern) == position:
            return None
        seen = (position.history, 0, 0)
        positions.restore({pattern: seen})
        return seen

    @property
    def publisher(self) -> str | None:
        """The identity under which the server counts publications; None before it is known."""
        return self.numbering.publisher

    @property
    def publisher_key(self) -> str | None:
        """The proof that `publisher` is this client's; None before it is known.

        Keep both secret: anyone who has them can use up the numbers.
        """
        return self.numbering.publisher_key

    async def settled(self) -> None:
        """Wait until every publication has its result."""
        await self._publishing.settled()

    async def request(
        self,
        subject: str,
        content: str | bytes,
        *,
        timeout_s: float | None = limits.CLIENT_REQUEST_TIMEOUT_S,
        fields: Mapping[str, str] | None = None,
        closure: str | None = None,
        retained: bool = True,
        qos: Qos = Qos.GUARANTEED,
        compressed: bool = False,
    ) -> Message:
        """Publish a message with a reply subject of its own and wait for the first reply.

        `timeout_s` bounds the waits for the result and for the reply together, in seconds. With
        None the wait for the reply has no limit, and that for the result has the `timeout_s` of the
        client. The other arguments are those of `publish`. Raises ClientTimeoutError (a
        TimeoutError) if no reply comes in time, and what `publish` raises.
        """
        arguments.seconds("timeout_s", timeout_s)
        self._standing.require_open()
        self._requests += 1
        reply_subject = f"/replies/{self._name}/{self._requests}"
        command = arguments.publication(
            subject, content, fields, closure, retained, qos, compressed, reply_subject
        )
        with anyio.move_on_after(timeout_s):
            async with self.subscribe(reply_subject) as replies:
                await self._publishing.publish(command, timeout_s)
                return await anext(replies)
        raise ClientTimeoutError(f"no reply to the request to {subject} came in {timeout_s:g} s")

    async def reply(
        self,
        message: Message,
        content: str | bytes,
        *,
        fields: Mapping[str, str] | None = None,
        closure: str | None = None,
        retained: bool = False,
        qos: Qos = Qos.STANDARD,
        compressed: bool = False,
        reply_subject: str | None = None,
        timeout_s: float | None = None,
    ) -> PublishResult:
        """Publish the reply to a message that asks for one, and wait for the result.

        By default a reply is STANDARD and not retained, because it is of use only to the requester,
        who is waiting for it. Arguments, result and errors are those of `publish`; a message
        without `reply_subject` raises ArgumentError.
        """
        if message.reply_subject is None:
            raise ArgumentError(f"the message of {message.subject} asks for no reply")
        arguments.seconds("timeout_s", timeout_s)
        command = arguments.publication(
            message.reply_subject,
            content,
            fields,
            closure,
            retained,
            qos,
            compressed,
            reply_subject,
        )
        return await self._publishing.publish(command, timeout_s)

    # Receipts

    async def reported(self) -> None:
        """Report to the server now what was received, and wait until it has the receipts.

        Does nothing if the client gives no receipts.
        """
        await self._life.reported()
