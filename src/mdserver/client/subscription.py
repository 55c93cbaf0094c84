"""A subscription of the Python client: an asynchronous iterator of messages."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import anyio.lowlevel

from mdserver.client.errors import ClientError, SubscribeError
from mdserver.client.mailbox import Mailbox
from mdserver.client.message import Message
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType

if TYPE_CHECKING:
    from mdserver.client.sharing import SharedSubscriptions


class Subscription:
    """The subjects and patterns of one call of `Client.subscribe`, and their messages.

    `async for message in subscription` gives the messages in order, each once, also across
    reconnects. An `async with` block ends the subscription at its end. The iteration raises:

    - SubscribeError when the server refuses a subject;
    - StoppedError when the client stops, or had stopped, because a server refused it;
    - ConnectError when no server was reached in `connect_timeout_s`, once, also if the subscription
      began after that.

    A new iteration after an error goes on with the remaining messages. The iteration ends when the
    last subject has ended, or the client is left.

    At most `buffer_messages` messages wait here. Beyond that the subjects are held at the server,
    and what they miss is recovered once half of the buffer is free. So a slow application slows
    only this subscription and those that overlap it.

    `subjects` are the subjects and patterns that are still subscribed.
    """

    def __init__(
        self, shared: "SharedSubscriptions", subjects: Sequence[str], buffer_messages: int
    ) -> None:
        self._shared = shared
        self._mailbox: Mailbox[Message] = Mailbox(shared.standing.require_place)
        self._buffer_messages = buffer_messages
        self._unconfirmed = dict.fromkeys(subjects)
        self._brought: dict[str, tuple[str, tuple[int, int]]] | None = (
            None  # None: no join is unfinished
        )
        self._begun: dict[str, None] | None = None  # None: wants history, not snapshots
        self.started = True
        self._held = False
        self.subjects = list(dict.fromkeys(subjects))

    async def __aenter__(self) -> "Subscription":
        await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        await anyio.lowlevel.checkpoint_if_cancelled()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Message:
        message = await self._mailbox.take()
        self._make_room()
        return message

    async def batch(self) -> list[Message]:
        """Wait for at least one message and return all that have arrived.

        For very many messages this is cheaper than iteration. It raises the same errors, and
        StopAsyncIteration at the end.
        """
        messages = await self._mailbox.take_all()
        self._make_room()
        return messages

    def _make_room(self) -> None:
        """Release the subscription if it is held and at least half of its buffer is free."""
        if self._held and len(self._mailbox) * 2 <= self._buffer_messages:
            self._shared.release(self)

    async def confirmed(self) -> None:
        """Wait until the server has handled each subject, by accepting or refusing it.

        Messages that are published after that arrive. Raises what `Client.connected` raises.
        """
        await self._shared.standing.wait_until(lambda: not self._unconfirmed)

    async def caught_up(self) -> None:
        """Wait until everything that precedes live messages has come.

        That is the snapshot, the history, or what was missed, for all subjects of a pattern. Take
        the messages meanwhile: a full buffer holds the subscription, which then does not catch up.
        Raises what `Client.connected` raises.
        """
        await self._shared.caught_up(self)

    def end(self) -> None:
        """Unsubscribe; messages that have arrived can still be taken.

        Raises NotOpenError in another thread or event loop than that of the client.
        """
        self._shared.standing.require_place()
        self._shared.remove(self, list(self.subjects))

    # For the client

    def join(self, history: int) -> None:
        """Begin as a join (see `sharing`): take nothing until `started` is set."""
        self._brought = {}
        self._begun = None if history else {}
        self.started = False

    def joined(self) -> None:
        """Note that the join is finished: what the others had before has come."""
        self._brought = self._begun = None

    def wants(self, event: MessageEvent, history: str, *, repeated: bool) -> bool:
        """Return whether a message is for this subscription.

        A subscription that joined others takes repeated messages as well, each once: `_brought` has
        the newest position that it got of each subject. All other subscriptions have had the
        repeated messages before, and drop them. What the others missed may come before the
        snapshot, which is taken all the same: it has more than that. `_begun` has the subjects
        whose snapshot came.
        """
        if not self.started:
            return False
        if self._brought is None or not event.seq:
            return not repeated
        here, subject = (event.epoch, event.seq), event.subject
        numbered, newest = self._brought.get(subject, ("", here))
        is_seen = numbered == history and here <= newest
        begun = self._begun if event.type is MessageType.SNAPSHOT else None
        if repeated and is_seen and (begun is None or subject in begun):
            return False
        if begun is not None:
            begun[subject] = None
        if not is_seen:
            self._brought[subject] = history, here
        return True

    def put(self, messages: list[Message]) -> bool:
        """Add messages; return True if the subscription is full and must be held now."""
        self._mailbox.put(messages)
        if self._held or len(self._mailbox) < self._buffer_messages:
            return False
        self._held = True
        return True

    def released(self) -> None:
        """Note that nothing is held for this subscription any more."""
        self._held = False

    def rest(self) -> list[Message]:
        """Return the messages that are left once the client was left; never waits.

        Raises the errors of the iteration.
        """
        return self._mailbox.take_rest()

    def fail(self, error: ClientError) -> None:
        """Raise this error from the iteration, after the messages that have arrived."""
        self._mailbox.put([error])

    def close(self) -> None:
        """End the iteration after the messages that have arrived."""
        self._mailbox.close()

    def confirm(self, subject: str) -> None:
        """Note that the server has handled this subject."""
        self._unconfirmed.pop(subject, None)

    def refuse(self, subject: str, reason: str) -> None:
        """End this subject, and raise SubscribeError from the iteration."""
        self.fail(SubscribeError([subject], reason))
        self.drop(subject)

    def drop(self, subject: str) -> None:
        """Remove a subject; after the last one the iteration ends."""
        self.subjects.remove(subject)
        self.confirm(subject)
        if not self.subjects:
            self._mailbox.close()
