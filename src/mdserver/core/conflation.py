"""Conflation: at most one message a subject and window, with the latest content and all fields.

The windows of a subscription follow each other from its start. A window exists only while it holds
a message. One timer is enough, set for the earliest end of a window. Subscriptions that end leave
their items in the heap of ends; the items are skipped when they are due, or removed when they
outnumber the others.
"""

import heapq
from collections.abc import Container

import msgspec

from mdserver.core.events import Delivery
from mdserver.core.message import Entry, MessageType, Qos
from mdserver.core.outputs import CancelTimer, Deliver, Output, SetTimer
from mdserver.core.session import Subscription
from mdserver.limits import CONFLATED_AT_ONCE, CONFLATION_STEP_MS, NS_PER_MS, STEP_PAUSE_MS

TIMER = ("broker", "conflate")
_STALE_SLACK = 64


def floored(milliseconds: int) -> int:
    """Return a wish for conflation in ns, rounded down to CONFLATION_STEP_MS; 0 turns it off."""
    return milliseconds // CONFLATION_STEP_MS * CONFLATION_STEP_MS * NS_PER_MS


class Window:
    """The messages of one subject of one subscription since its last window ended.

    `first` is a delivery that other sessions share. As long as nothing is added, it is sent as it
    is, and need not be encoded again. `position` is the latest entry that has one: a STANDARD
    message has none, and must not take the position back.
    """

    __slots__ = ("entry", "fields", "first", "position")

    def __init__(self, first: Delivery) -> None:
        self.first: Delivery | None = first
        self.entry = self.position = first.entry
        self.fields = first.entry.publication.fields

    def add(self, entry: Entry) -> None:
        """Add a later message of the subject."""
        self.first = None
        self.entry = entry
        if entry.seq:
            self.position = entry
        fields = entry.publication.fields
        if fields is not None:
            self.fields = fields if self.fields is None else {**self.fields, **fields}

    def delivery(self, match: str | None) -> Delivery:
        """Return the one message that stands for the window."""
        if self.first is not None:
            return self.first
        publication, at = self.entry.publication, self.position
        qos = Qos.GUARANTEED if at.seq else Qos.STANDARD
        if publication.fields is not self.fields or publication.qos is not qos:
            publication = msgspec.structs.replace(publication, fields=self.fields, qos=qos)
        return Delivery(Entry(at.epoch, at.seq, publication, at.place), MessageType.UPDATE, match)


class Conflation:
    """The open windows of all subscriptions."""

    def __init__(self, at_once: int = CONFLATED_AT_ONCE) -> None:
        self._at_once = at_once
        self._windows: dict[Subscription, dict[str, Window]] = {}
        self._ends: list[tuple[int, int, Subscription]] = []
        self._count = 0

    @property
    def scheduled(self) -> int:
        """The number of window ends in the queue, including those that will be skipped."""
        return len(self._ends)

    def add(
        self, subscription: Subscription, delivery: Delivery, now: int, out: list[Output]
    ) -> None:
        """Hold a message back until its window ends."""
        windows = self._windows.get(subscription)
        if windows is None:
            windows = self._windows[subscription] = {}
            period = subscription.conflation
            end = now + period - (now - subscription.start) % period
            self._count += 1
            heapq.heappush(self._ends, (end, self._count, subscription))
            if self._ends[0][0] == end:
                out.append(SetTimer(TIMER, end))
        window = windows.get(delivery.entry.publication.subject)
        if window is None:
            windows[delivery.entry.publication.subject] = Window(delivery)
        else:
            window.add(delivery.entry)

    def drop(self, subscription: Subscription) -> None:
        """Forget what is held back for a subscription that ended."""
        self._windows.pop(subscription, None)
        if len(self._ends) > 2 * len(self._windows) + _STALE_SLACK:
            self._ends = [end for end in self._ends if end[2] in self._windows]
            heapq.heapify(self._ends)

    def release(
        self, subscription: Subscription, recovered: Container[str], out: list[Output]
    ) -> None:
        """Send what is held back for a subscription that another one replaces.

        The other one recovers some subjects from positions before that: of these nothing is sent.
        """
        windows = self._windows.pop(subscription, {})
        rest = {subject: one for subject, one in windows.items() if subject not in recovered}
        _send(subscription, rest, out)

    def flush(self, out: list[Output]) -> None:
        """Send everything that is held back."""
        for subscription, windows in self._windows.items():
            _send(subscription, windows, out)
        self._windows.clear()
        self._ends.clear()

    def due(self, now: int, out: list[Output]) -> list[Subscription]:
        """Send what the windows that end now hold, up to a step's share; the rest follows soon.

        Returns the subscriptions for which nothing is held back any more.
        """
        whole: list[Subscription] = []
        left = self._at_once
        while self._ends and self._ends[0][0] <= now and left > 0:
            subscription = self._ends[0][2]
            windows = self._windows.get(subscription, {})
            if len(windows) <= left:
                heapq.heappop(self._ends)
                self._windows.pop(subscription, None)
                left -= max(1, len(windows))
                _send(subscription, windows, out)
                whole.append(subscription)
                continue
            # The latest subjects first, because only that end of a dict is cheap to take from. The
            # order does not matter, since subjects are independent of each other.
            _send(subscription, dict(windows.popitem() for _ in range(left)), out)
            left = 0
        if not self._ends:
            out.append(CancelTimer(TIMER))
        else:
            out.append(SetTimer(TIMER, max(self._ends[0][0], now + STEP_PAUSE_MS * NS_PER_MS)))
        return whole

    def holds(self, subscription: Subscription) -> bool:
        """Return whether something is held back for a subscription."""
        return subscription in self._windows


def _send(subscription: Subscription, windows: dict[str, Window], out: list[Output]) -> None:
    match, sessions = subscription.match, [subscription.session.id]
    out.extend(Deliver(window.delivery(match), sessions) for window in windows.values())
