"""Subscriptions that begin after another ended, and messages of before that still arrive.

A client that is paused, or holds a subscription, drops what arrives. When it goes on, it subscribes
again from the position that it has. Messages of the earlier subscription may still be on their way
then. If one of them were taken, it would set the position of its subject beyond those that were
dropped; what the server brings of these, or its snapshot, would then pass for a repeat and be lost.
The same holds for what was unsubscribed, if it is subscribed again, or a pattern that covers it, or
a subject that it covers.

So the client sends a ping before it subscribes, and takes nothing of these subscriptions until the
pong, neither messages nor the answer to an earlier one. Commands are answered in order
(docs/protocol.md, "What answers what"): what arrives behind the pong was sent after the earlier
subscription ended. A ping that went out after the last `unsubscribe` serves for all subscriptions
that follow; when its pong has come, none is needed.

What a subscription covers that was in force all the time is taken: it has no gap, and is not
brought again.
"""

from collections.abc import Collection, Iterable

from mdserver.client.core.subscriptions import DesiredSubscriptions
from mdserver.core.events import MessageEvent
from mdserver.core.subjects import parse_interest, segments_of


class Returning:
    """The subscriptions of one connection that wait for a pong.

    `_awaiting` holds them with the number of their ping, `_released` those of them that were held.
    `_ended` holds subscriptions that ended while others waited and did not wait themselves, with
    the number of the last ping before that: what they still bring goes on without a gap in those
    that waited then. All of it is forgotten with the pong.
    """

    def __init__(self, subscriptions: DesiredSubscriptions) -> None:
        self._subscriptions = subscriptions
        self._pings = 0
        self._passed = 0
        self._unsubscribed = False  # after the last ping
        self._awaiting: dict[str, int] = {}
        self._released: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def unsubscribed(self) -> None:
        """Note that an `unsubscribe` went out: what was sent before may still arrive."""
        self._unsubscribed = True

    def leave(self, names: Iterable[str]) -> None:
        """Note subjects and patterns of which the application wants no more, before they go."""
        if self._awaiting:
            self._ended |= {name: self._pings for name in names if self._is_steady(name)}

    def begin(self, names: Collection[str]) -> int | None:
        """Note subjects and patterns that were not subscribed before.

        Return the number of the ping that has to go out before them, or None.
        """
        if not self._unsubscribed and self._passed == self._pings:
            return None
        covering = self._subscriptions.covering
        new = set(names)
        exposed = [
            name
            for name in names
            if not any(other not in new and self._is_steady(other) for other in covering(name))
        ]
        if exposed and self._unsubscribed:
            return self.resume(exposed)
        self._awaiting |= dict.fromkeys(exposed, self._pings)
        return None

    def resume(self, names: Iterable[str]) -> int:
        """Take nothing of these subjects and patterns; return the number of the ping."""
        self._pings += 1
        self._unsubscribed = False
        self._awaiting |= dict.fromkeys(names, self._pings)
        return self._pings

    def release(self, names: Collection[str]) -> int:
        """Take nothing of these, which were held, either; return the number of the ping."""
        ping = self.resume(names)
        self._released |= dict.fromkeys(names, ping)
        return ping

    def passed(self, ping: int) -> None:
        """Take messages again that waited for the pong of this ping."""
        self._passed = max(self._passed, ping)
        self._awaiting = _after(ping, self._awaiting)
        self._released = _after(ping, self._released)
        self._ended = _after(ping, self._ended)

    def awaits(self, name: str) -> bool:
        """Return whether what arrives about a subject or pattern may be of before."""
        return name in self._awaiting

    def takes(self, event: MessageEvent) -> bool:
        """Return whether a message leaves no gap, as far as this connection has to wait."""
        awaiting = self._awaiting
        if not awaiting:
            return True
        subject = event.subject
        if subject in awaiting or event.match in self._released:
            return False
        covering = list(self._subscriptions.covering(subject))
        waiting = [awaiting[name] for name in covering if name in awaiting]
        return (
            not waiting
            or any(self._is_steady(name) for name in covering)
            or any(
                last >= min(waiting) and _covers(name, subject)
                for name, last in self._ended.items()
            )
        )

    def _is_steady(self, name: str) -> bool:
        """Return whether this is subscribed and not held, and waits for no pong."""
        return name not in self._awaiting and self._subscriptions.is_taken(name)


def _after(ping: int, waiting: dict[str, int]) -> dict[str, int]:
    return {name: last for name, last in waiting.items() if last > ping}


def _covers(name: str, subject: str) -> bool:
    pattern = parse_interest(name, segments_min=1)
    return name == subject if pattern is None else pattern.matches(segments_of(subject))
