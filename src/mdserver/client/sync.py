"""The blocking client, for scripts, notebooks and task queues (docs/clients.md).

It runs the client for asyncio in a thread with an event loop of its own (`loop_thread`), so it
receives and reconnects while the program does something else. Names, arguments, results, statuses
and errors are those of `mdserver.client`; methods that are `async` there block here. Any thread may
use the client, also several at once.

Most methods are made from those of the asynchronous client by the functions below, which keep the
signature and the docstring, so that the two clients cannot come to differ.
"""

import functools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import anyio

from mdserver.client import (
    ArgumentError,
    ArgumentTypeError,
    ClientError,
    ClientTimeoutError,
    ConnectError,
    Message,
    MessageType,
    Notice,
    Notification,
    NotOpenError,
    Numbering,
    Position,
    PublishError,
    PublishResult,
    Qos,
    ReconnectPolicy,
    ReconnectSettings,
    StoppedError,
    SubscribeError,
    TransportError,
    arguments,
)
from mdserver.client import Client as _Client
from mdserver.client import Publication as _Publication
from mdserver.client import Statuses as _Statuses
from mdserver.client import Subscription as _Subscription
from mdserver.client.loop_thread import LoopThread

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Client",
    "ClientError",
    "ClientTimeoutError",
    "ConnectError",
    "Message",
    "MessageType",
    "NotOpenError",
    "Notice",
    "Notification",
    "Numbering",
    "Position",
    "Publication",
    "PublishError",
    "PublishResult",
    "Qos",
    "ReconnectPolicy",
    "ReconnectSettings",
    "Statuses",
    "StoppedError",
    "SubscribeError",
    "Subscription",
    "TransportError",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _same_arguments(
    method: Callable[Concatenate[_Client, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate["Client", P], None]]:
    """Give a constructor the signature of another one, for type checkers and `help`."""

    def decorate(function: Callable[..., None]) -> Callable[Concatenate["Client", P], None]:
        return functools.wraps(method)(function)

    return decorate


def _blocking(
    method: Callable[Concatenate[_Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Client", P], R]:
    """Return a method that runs this one of the asynchronous client, and blocks until it ends."""

    @functools.wraps(method)
    def block(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(lambda: method(self.client, *args, **kwargs))

    return block


def _submitting(
    method: Callable[Concatenate[_Client, P], Coroutine[Any, Any, _Publication]],
) -> Callable[Concatenate["Client", P], "Publication"]:
    """Return a method like `_blocking`, whose result is a `Publication` of this module."""

    @functools.wraps(method)
    def submit(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> "Publication":
        return Publication(self, self.call(lambda: method(self.client, *args, **kwargs)))

    return submit


def _relayed(
    method: Callable[Concatenate[_Client, P], R],
) -> Callable[Concatenate["Client", P], R]:
    """Return a method that calls this one of the asynchronous client, which is not `async`."""

    @functools.wraps(method)
    def relay(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.relay(lambda: method(self.client, *args, **kwargs))

    return relay


def _subscribing(
    method: Callable[Concatenate[_Client, P], _Subscription],
) -> Callable[Concatenate["Client", P], "Subscription"]:
    """Return a method like `_relayed`, whose result is a `Subscription` of this module."""

    @functools.wraps(method)
    def subscribe(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> "Subscription":
        return Subscription(self, self.relay(lambda: method(self.client, *args, **kwargs)))

    return subscribe


class Client:
    """A publisher and subscriber whose methods block.

    `with Client([...]) as client` connects in the background and reconnects by itself. When the
    block ends without an error, the client waits up to 5 s for missing results and unsent receipts;
    then it closes the connection. `open` and `close` do the same for programs that have no block.
    The arguments are those of `mdserver.client.Client`.

    `timeout_s` of a method is in seconds, with None there is no limit; when the time is over, the
    method raises ClientTimeoutError. An interrupted call (Ctrl-C) takes nothing back, and loses no
    message.
    """

    @_same_arguments(_Client.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.client = _Client(*args, **kwargs)
        self.statuses = Statuses(self, self.client.statuses)
        self._thread: LoopThread | None = None

    def open(self) -> Self:
        """Start the thread and begin to connect, as `with` does; call `close` at the end.

        Raises NotOpenError if the client was opened before.
        """
        if self._thread is not None:
            raise NotOpenError("a client can be opened once; make another one")
        self._thread = LoopThread(self.client)
        return self

    def close(self) -> None:
        """Wait up to 5 s for missing results, close the connection, and end all iterations."""
        if self._thread is not None:
            self._thread.close(failed=False)

    @property
    def closed(self) -> bool:
        """Whether the client was opened and has been closed."""
        return self._thread is not None and self._thread.ended

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        self._thread.close(failed=error is not None)

    def call(self, function: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine of the asynchronous client and return its result.

        `function` is called in the calling thread and returns the coroutine, so that none is made
        for a client that is not open. Raises NotOpenError.
        """
        if self._thread is None:
            raise NotOpenError("enter the client first: `with Client(...) as client:`")
        return self._thread.call(function)

    def relay(self, function: Callable[[], R]) -> R:
        """Call a function of the asynchronous client, in its thread once that runs.

        Before `open` there is no other thread yet, so settings can be made and subscriptions begun
        in this one.
        """
        if self._thread is None:
            return function()

        async def call() -> R:
            return function()

        return self._thread.call(call)

    def look(self, function: Callable[[], R]) -> R:
        """Read something of the asynchronous client: in its thread, or in this one if none runs."""
        try:
            return self.relay(function)
        except NotOpenError:
            if not self.wait_if_closing(None):
                raise
            return function()

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._thread is not None and self._thread.closing

    def wait_if_closing(self, timeout_s: float | None) -> bool:
        """If another thread closes the client, wait for that; return whether it is closed."""
        return self._thread is not None and self._thread.wait_if_closing(timeout_s)

    # The connection

    connect = _relayed(_Client.connect)
    disconnect = _relayed(_Client.disconnect)
    set_servers = _relayed(_Client.set_servers)
    set_encryption = _relayed(_Client.set_encryption)
    set_transport = _relayed(_Client.set_transport)
    set_entitlement_token = _relayed(_Client.set_entitlement_token)
    set_external_token = _relayed(_Client.set_external_token)

    def connected(self, timeout_s: float | None = None) -> None:
        """Wait until there is a session.

        Raises StoppedError if the client stopped because a server refused it, ConnectError if no
        server was reached in `connect_timeout_s`, ClientTimeoutError, and NotOpenError if the
        client is not open.
        """
        self.call(lambda: _bounded(self.client.connected(), timeout_s, "no connection stood"))

    notify_after_failed_connection_attempts = _relayed(
        _Client.notify_after_failed_connection_attempts
    )
    notify_when_reconnect_rate_exceeds_threshold = _relayed(
        _Client.notify_when_reconnect_rate_exceeds_threshold
    )
    set_quick_reconnect_max_retries = _relayed(_Client.set_quick_reconnect_max_retries)
    set_quick_reconnect_initial_delay = _relayed(_Client.set_quick_reconnect_initial_delay)
    set_reconnect_policy = _relayed(_Client.set_reconnect_policy)
    set_reconnect_time_interval = _relayed(_Client.set_reconnect_time_interval)
    set_reconnect_max_delay = _relayed(_Client.set_reconnect_max_delay)

    # Subscribing

    subscribe = _subscribing(_Client.subscribe)
    subscribe_with_history = _subscribing(_Client.subscribe_with_history)
    subscribe_with_conflation = _subscribing(_Client.subscribe_with_conflation)
    unsubscribe = _relayed(_Client.unsubscribe)
    get_subjects = _relayed(_Client.get_subjects)
    pause = _relayed(_Client.pause)
    resume = _relayed(_Client.resume)

    # Publishing

    publish = _blocking(_Client.publish)
    submit = _submitting(_Client.submit)
    submit_command = _submitting(_Client.submit_command)
    request = _blocking(_Client.request)
    reply = _blocking(_Client.reply)

    def settled(self, timeout_s: float | None = None) -> None:
        """Wait until every publication has its result; raises ClientTimeoutError."""
        self.call(lambda: _bounded(self.client.settled(), timeout_s, "results were missing"))

    def position(self, subject: str) -> tuple[str, int, int] | None:
        """Return the history id, epoch and seq that are known of a subject, or None."""
        return self.look(lambda: self.client.position(subject))

    def recover_unseen(self, pattern: str) -> tuple[str, int, int] | None:
        """Recover subjects of this pattern that come up without a connection from their beginning.

        Returns the position under the pattern, for `positions` of a later client, if it is new.
        """
        return self.look(lambda: self.client.recover_unseen(pattern))

    @property
    def numbering(self) -> Numbering:
        """The numbers that this publisher has used; keep it to let a later run go on with them."""
        return self.look(lambda: self.client.numbering)

    @property
    def publisher(self) -> str | None:
        """The identity under which the server counts publications; None before it is known."""
        return self.look(lambda: self.client.publisher)

    @property
    def publisher_key(self) -> str | None:
        """The proof that `publisher` is this client's; None before it is known. Keep it secret."""
        return self.look(lambda: self.client.publisher_key)

    def reported(self, timeout_s: float | None = None) -> None:
        """Report to the server now what was received, and wait until it has the receipts.

        Does nothing if the client gives no receipts. Raises ClientTimeoutError.
        """
        self.call(lambda: _bounded(self.client.reported(), timeout_s, "receipts were not taken"))


class BlockingIterator(Generic[T]):
    """An iterator over what a client receives.

    Several threads may share it; each item goes to one of them. After the client was closed, the
    items that had arrived by then can still be taken.
    """

    def __init__(
        self,
        client: Client,
        batch: Callable[[], Coroutine[Any, Any, list[T]]],
        rest: Callable[[], list[T]],
    ) -> None:
        self._client = client
        self._batch = batch
        self._rest = rest
        self._taking_rest = threading.Lock()
        self._items: deque[T] = deque()
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self.receive()
        if item is None:
            raise StopIteration
        return item

    def receive(self, timeout_s: float | None = None) -> T | None:
        """Wait for the next item and return it; None at the end.

        Raises ClientTimeoutError if none comes within `timeout_s` seconds, and the errors of the
        iteration.
        """
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                if not self._wait(timeout_s):
                    return None

    def batch(self, timeout_s: float | None = None) -> list[T]:
        """Wait for at least one item and return all that have arrived; an empty list at the end.

        For very many items this is cheaper than iteration. It raises the errors of `receive`.
        """
        while not self._items and self._wait(timeout_s):
            pass
        items: list[T] = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait for items, and add them to `_items`; return False at the end.

        The thread of the client adds them, so a wait that is interrupted in this thread loses none.
        """
        arguments.seconds("timeout_s", timeout_s)

        async def fetch() -> bool:
            try:
                self._items.extend(await self._batch())
            except StopAsyncIteration:
                self._ended = True
            return not self._ended

        if self._ended:
            return False
        client = self._client
        try:
            return client.call(lambda: _bounded(fetch(), timeout_s, "nothing came"))
        except NotOpenError:
            if not client.wait_if_closing(timeout_s):
                if timeout_s is None or not client.closing:
                    raise
                raise ClientTimeoutError(f"nothing came in {timeout_s:g} s") from None
        with self._taking_rest:
            rest = self._rest()
            self._items.extend(rest)
        self._ended = not rest
        return bool(rest)


class Statuses(BlockingIterator[Notice]):
    """The statuses of a client, oldest first, as an iterator of `Notice`; 1,000 are kept."""

    def __init__(self, client: Client, statuses: _Statuses) -> None:
        super().__init__(client, statuses.batch, statuses.rest)


class Subscription(BlockingIterator[Message]):
    """The subjects and patterns of one call of `Client.subscribe`, and their messages.

    `for message in subscription` gives the messages in order, each once, also across reconnects,
    and raises SubscribeError, StoppedError and ConnectError as the asynchronous iterator does. A
    `with` block ends the subscription at its end.
    """

    def __init__(self, client: Client, subscription: _Subscription) -> None:
        super().__init__(client, subscription.batch, subscription.rest)
        self._subscription = subscription

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def subjects(self) -> list[str]:
        """The subjects and patterns that are still subscribed."""
        return list(self._subscription.subjects)

    def confirmed(self, timeout_s: float | None = None) -> None:
        """Wait until the server has handled each subject, by accepting or refusing it.

        Messages that are published after that arrive. Raises what `Client.connected` raises.
        """
        self._client.call(
            lambda: _bounded(self._subscription.confirmed(), timeout_s, "no answer came")
        )

    def caught_up(self, timeout_s: float | None = None) -> None:
        """Wait until everything that precedes live messages has come.

        At most `buffer_messages` messages can wait here. If there may be more, take messages in
        another thread meanwhile. Raises what `Client.connected` raises.
        """
        self._client.call(
            lambda: _bounded(self._subscription.caught_up(), timeout_s, "it did not catch up")
        )

    def end(self) -> None:
        """Unsubscribe; messages that have arrived can still be taken."""
        self._client.relay(self._subscription.end)


class Publication:
    """A publication that was submitted; `result` is None until the result arrives."""

    def __init__(self, client: Client, publication: _Publication) -> None:
        self._client = client
        self._publication = publication

    @property
    def result(self) -> PublishResult | None:
        """The result, None until it arrives."""
        return self._publication.result

    def outcome(self, timeout_s: float | None = None) -> PublishResult:
        """Wait for the result and return it.

        Raises PublishError if it is not PUBLISH_OK, and ClientTimeoutError; after the latter the
        publication goes on and may still be taken.
        """
        return self._client.call(
            lambda: _bounded(self._publication.outcome(), timeout_s, "no result came")
        )


async def _bounded(wait: Coroutine[Any, Any, R], timeout_s: float | None, what: str) -> R:
    """Return the result of a wait; raise ClientTimeoutError if it takes longer."""
    with anyio.move_on_after(timeout_s):
        return await wait
    raise ClientTimeoutError(f"{what} in {timeout_s:g} s")
