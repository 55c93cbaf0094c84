"""What one client's application does and sees, written into a history.

The simulated clients and those of chaos runs use the same recorder, so that the checker reads the
same events of both. A publication's content is the name by which the history knows it.
"""

from collections.abc import Callable, Iterable

from mdserver.client.core.values import Notice, Notification, PublishResult
from mdserver.core.commands import PositionAfter
from mdserver.core.events import MessageEvent, StatusName
from mdserver.core.message import MessageType
from mdserver.core.subjects import parse_interest
from simulation.history import (
    Acked,
    Confirmed,
    Delivered,
    Event,
    Gap,
    Published,
    Refused,
    Reset,
    Subscribed,
)


class Recorder:
    """One client's. `now` is in ns, `history` the id under which the client is numbered just now.

    `positions`: subject -> (history id, epoch, seq) of the last message that came.
    """

    def __init__(
        self, name: str, see: Callable[[Event], None], cover: Callable[[str], None]
    ) -> None:
        self.name = name
        self.positions: dict[str, tuple[str, int, int]] = {}
        self.pending: dict[int, Published] = {}
        self._see = see
        self._cover = cover

    def subscribed(self, now: int, subjects: Iterable[str]) -> None:
        """The application subscribes without positions."""
        for subject in subjects:
            self._see(Subscribed(now, self.name, subject))

    def confirmed(
        self,
        now: int,
        subjects: Iterable[str],
        known: Callable[[str], PositionAfter | None],
    ) -> None:
        """Subscriptions were confirmed; `known` is where a subject stood, as the client knows.

        Of these no position is told, so they must not be handed over: subscriptions that renew a
        live one, exact ones of a session with a conflating pattern, and with Kafka as the backplane
        subjects without a message (`core.catch_up`). Nor those of a client that paused: it drops
        what it is brought. Subjects of patterns are left out here:
        patterns are confirmed by their own text, which names no subject.
        """
        for subject in subjects:
            pattern = parse_interest(subject, segments_min=1)
            if pattern is not None or subject in self.positions:
                continue
            at = known(subject)
            self._cover("confirmed without a message")
            history, seq = ("", 0) if at is None else (at.history, at.seq)
            self._see(Confirmed(now, self.name, subject, history, seq))

    def published(
        self, now: int, number: int, publication: str, subject: str, *, once: bool = True
    ) -> None:
        """The application hands a publication to its client, which numbers it (`once`) or not."""
        event = Published(now, publication, subject, self.name, number, once)
        self.pending[number] = event
        self._see(event)

    def result(self, now: int, history: str, result: PublishResult) -> None:
        """A publication has its result."""
        event = self.pending.pop(result.publication)
        if result.status is not StatusName.PUBLISH_OK:
            self._cover("publication failed")
            self._see(Refused(now, event.publication, result.certain))
            return
        self._cover("acked")
        if result.duplicate:
            self._cover("acked as a repeat")
        if result.epoch:
            self._see(
                Acked(now, event.publication, event.subject, history, result.epoch, result.seq)
            )

    def messages(
        self, now: int, history: str, messages: Iterable[MessageEvent], *, conflated: bool = False
    ) -> None:
        """Messages reach the application; duplicates by position were dropped before."""
        for message in messages:
            if not message.seq:
                self._cover("delivered STANDARD")
                continue  # it has no position, and nothing is promised of it
            before = self.positions.get(message.subject)
            if before is not None and before[0] != history:
                self._cover("told of a reset")
                self._see(Reset(now, self.name, message.subject, history))
            self.positions[message.subject] = (history, message.epoch, message.seq)
            self._cover(f"delivered {message.type.value}")
            anew = message.prev is not None and not message.prev.seq
            if anew:
                self._cover("delivered of a subject that begins anew")
            self._see(
                Delivered(
                    now,
                    self.name,
                    message.content or "",
                    message.subject,
                    history,
                    message.epoch,
                    message.seq,
                    conflated or message.type is MessageType.SNAPSHOT,
                    conflated,
                    anew,
                )
            )

    def notified(self, now: int, notice: Notice) -> None:
        """The application is told something."""
        if notice.status is Notification.DATA_SYNC:
            self._cover("recovered")
        elif notice.status is Notification.DATA_RESYNC:
            self._cover("told of a gap")
            last = notice.missing.last.seq if notice.missing else 0
            self._see(Gap(now, self.name, notice.subject or "", last))
