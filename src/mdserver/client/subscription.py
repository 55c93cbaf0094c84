"""A subscription of the Python client: an asynchronous iterator of messages."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from mdserver.client.errors import ClientError, SubscribeError
from mdserver.client.mailbox import Mailbox
from mdserver.client.message import Message
from mdserver.core.events import MessageEvent

if TYPE_CHECKING:
    from mdserver.client.client import Client


class Subscription:
    """Subjects and patterns of one call of `Client.subscribe`, and their messages.

    `async for message in subscription` gives the messages in order. A refused subject raises
    SubscribeError in its place, a server that does not want the client back StoppedError; iterating
    again goes on with what remains. At most `buffer_messages` messages wait here: beyond that the
    subjects are held at the server, and what is missed is recovered once there is room again, so a
    slow application slows nothing but this subscription.

    `async with` ends the subscription on leaving.
    """

    def __init__(self, client: "Client", subjects: Sequence[str], buffer_messages: int) -> None:
        self._client = client
        self._mailbox: Mailbox[Message] = Mailbox()
        self._buffer_messages = buffer_messages
        self._unconfirmed = dict.fromkeys(subjects)
        self._brought: dict[str, tuple[str, int, int]] | None = None
        self.started = True
        self._held = False
        self.subjects = list(dict.fromkeys(subjects))

    async def __aenter__(self) -> "Subscription":
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        await trio.lowlevel.checkpoint_if_cancelled()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Message:
        message = await self._mailbox.take()
        self._make_room()
        return message

    async def batch(self) -> list[Message]:
        """All messages that are here, at least one; as iterating, but cheaper for very many."""
        messages = await self._mailbox.take_all()
        self._make_room()
        return messages

    def _make_room(self) -> None:
        if self._held and len(self._mailbox) * 2 <= self._buffer_messages:
            self._held = False
            self._client.release(self)

    async def confirmed(self) -> None:
        """Wait until the server has handled the subscription (also a refusal).

        Raises what `Client.connected` raises.
        """
        await self._client.wait_until(lambda: not self._unconfirmed)

    async def caught_up(self) -> None:
        """Wait until what the subscription brings before live messages has come.

        That are the snapshots, the history or what was missed, of all subjects of a pattern; the
        messages have to be taken meanwhile. Raises what `Client.connected` raises.
        """
        await self._client.caught_up(self)

    def end(self) -> None:
        """Unsubscribe; messages that are here already can still be taken."""
        self._client.leave(self, list(self.subjects))

    # For the client

    def join(self) -> None:
        """Begin beside subscriptions that overlap: nothing is taken before `start`."""
        self._brought = {}
        self.started = False

    def wants(self, event: MessageEvent, history: str, *, repeated: bool) -> bool:
        """Whether a message is for this one, which may have begun after others got it."""
        if not self.started:
            return False
        if self._brought is not None and event.seq:
            here = (history, event.epoch, event.seq)
            if repeated and here <= self._brought.get(event.subject, (history, 0, 0)):
                return False
            self._brought[event.subject] = here
            return True
        return not repeated

    def put(self, messages: list[Message]) -> bool:
        """Take messages in; True when the subscription is to be held."""
        self._mailbox.put(messages)
        if self._held or len(self._mailbox) < self._buffer_messages:
            return False
        self._held = True
        return True

    def fail(self, error: ClientError) -> None:
        """Raise this where the next message would come."""
        self._mailbox.put([error])

    def close(self) -> None:
        """The client was left: no more comes."""
        self._mailbox.close()

    def confirm(self, subject: str) -> None:
        """The server has handled this subject."""
        self._unconfirmed.pop(subject, None)

    def refuse(self, subject: str, reason: str) -> None:
        """The subject is not subscribed."""
        self.fail(SubscribeError([subject], reason))
        self.drop(subject)

    def drop(self, subject: str) -> None:
        """The subject is no part of this any more; without any the iteration ends."""
        self.subjects.remove(subject)
        self.confirm(subject)
        if not self.subjects:
            self._mailbox.close()
