"""Subscriptions that a client takes up again, and messages of before that still arrive.

A client that is paused, or holds a subscription, drops what arrives. When it goes on, it subscribes
again from the position that it has. Messages of the earlier subscription may still be on their way
then. If one of them were taken, it would set the position of its subject beyond those that were
dropped; what the server brings of these, or its snapshot, would then pass for a repeat and be lost.
The same holds for a subject that was unsubscribed and is subscribed again.

So the client sends a ping before it subscribes again, and takes nothing of these subscriptions
until the pong, neither messages nor the answer to the earlier one. Commands are answered in order
(docs/protocol.md, "What answers what"): what arrives behind the pong was sent after the earlier
subscription ended.
"""

from collections.abc import Iterable

from mdserver.core.events import MessageEvent
from mdserver.limits import SUBJECTS_PER_COMMAND_MAX


class Returning:
    """The subscriptions of one connection that are taken up again and whose pong has not come.

    They are noted with the number of their ping; `_all` is the ping of a client that resumes, 0 if
    there is none. `_left` are the newest subjects and patterns that were unsubscribed.
    """

    def __init__(self) -> None:
        self._pings = 0
        self._all = 0
        self._named: dict[str, int] = {}
        self._left: dict[str, None] = {}

    def begin(self, names: Iterable[str] | None) -> int:
        """Take nothing of these subjects and patterns, None for all; return the ping's number."""
        self._pings += 1
        if names is None:
            self._all = self._pings
        else:
            self._named |= dict.fromkeys(names, self._pings)
        return self._pings

    def passed(self, ping: int) -> None:
        """Take messages again that waited for the pong of this ping."""
        if self._all == ping:
            self._all = 0
        self._named = {name: last for name, last in self._named.items() if last != ping}

    def awaits(self, name: str) -> bool:
        """Return whether what arrives about a subject or pattern may be of before."""
        return self._all > 0 or name in self._named

    def takes(self, event: MessageEvent) -> bool:
        """Return whether a message is certainly of no earlier subscription."""
        if self._all:
            return False
        named = self._named
        return not named or not (event.subject in named or event.match in named)

    def leave(self, names: Iterable[str]) -> None:
        """Note subjects and patterns that are unsubscribed.

        Only as many are kept as one command could name: their messages arrive for a moment only.
        """
        self._left |= dict.fromkeys(names)
        while len(self._left) > SUBJECTS_PER_COMMAND_MAX:
            del self._left[next(iter(self._left))]

    def left(self, names: Iterable[str]) -> list[str]:
        """Return those that were unsubscribed before, and forget that."""
        return [name for name in names if self._left.pop(name, name) is None]
