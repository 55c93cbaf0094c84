"""The positions that a client has seen: where to recover each subject, and what is a repeat.

A position is (history id, epoch, seq). Within one history id positions are ordered, and a message
that is not beyond the position of its subject was seen. Positions of different history ids are
never compared (docs/protocol.md, "Messages").
"""

from collections.abc import Iterable, Iterator, Mapping

from mdserver.core.commands import PositionAfter
from mdserver.core.events import MessageEvent, WirePosition
from mdserver.core.message import MessageType
from mdserver.core.subjects import Pattern, parse_interest, segments_of
from mdserver.limits import CLIENT_POSITIONS_MAX

Seen = tuple[str, int, int]
"""History id, epoch, seq."""

_BROUGHT = {MessageType.SNAPSHOT, MessageType.HISTORICAL}  # the types that a replay brings


class Positions:
    """The newest position of each subject.

    At the bound the subject that was seen first is forgotten: it then gets its snapshot instead of
    a recovery. `replayed` holds the subjects whose repeats the application wants on this
    connection.
    """

    def __init__(self, positions_max: int = CLIENT_POSITIONS_MAX) -> None:
        self.history = ""
        self._positions_max = positions_max
        self._seen: dict[str, Seen] = {}
        self.replayed: dict[str, None] = {}
        self._patterns_replayed: dict[str, Pattern] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def restore(self, positions: Mapping[str, Seen]) -> None:
        """Take over the positions of an earlier client."""
        self._seen |= positions

    def connected(self, history: str) -> None:
        """Start a session, whose messages are numbered in this history."""
        self.history = history
        self.replayed = {}
        self._patterns_replayed = {}

    def reset(self, history: str, subjects: Iterable[str]) -> None:
        """Forget the positions of these subjects; all others go on under the new history id.

        Of the subjects that a named pattern covers, only some may have started over, and the client
        cannot know which. They keep the old history id, by which the server can tell.
        """
        named = [(subject, parse_interest(subject, segments_min=1)) for subject in subjects]
        for subject, pattern in named:
            if pattern is None:
                self._seen.pop(subject, None)
        old, self.history = self.history, history
        if old == history:
            return
        patterns = [pattern for _, pattern in named if pattern is not None]
        for subject, (seen_in, epoch, seq) in self._seen.items():
            segments = segments_of(subject)
            if seen_in == old and not any(pattern.matches(segments) for pattern in patterns):
                self._seen[subject] = (history, epoch, seq)

    def replay(self, subject: str) -> None:
        """Let through what was seen of a subject, because the application asked for it again.

        This includes what will be seen before the answer comes.
        """
        self.replayed[subject] = None

    def replay_pattern(self, text: str, pattern: Pattern) -> None:
        """Let through what was seen of all subjects of a pattern."""
        self._patterns_replayed[text] = pattern

    def forget(self, subject: str) -> None:
        """Forget a subject or pattern that is not subscribed any more."""
        self._seen.pop(subject, None)
        self.replayed.pop(subject, None)
        self._patterns_replayed.pop(subject, None)

    def get(self, subject: str) -> PositionAfter | None:
        """Return the position from which to recover a subject, or None."""
        seen = self._seen.get(subject)
        return None if seen is None else PositionAfter(*seen)

    def repeats(self, message: MessageEvent) -> bool:
        """Return whether the message was seen, and the application asked for it again."""
        if message.type not in _BROUGHT or not message.seq:
            return False
        seen = self._seen.get(message.subject)
        if seen is None or seen[0] != self.history:
            return False
        here = (self.history, message.epoch, message.seq)
        return here <= seen and self._is_replayed(message.subject)

    def _is_replayed(self, subject: str) -> bool:
        segments = segments_of(subject) if self._patterns_replayed else ()
        return subject in self.replayed or any(
            pattern.matches(segments) for pattern in self._patterns_replayed.values()
        )

    def begin(self, told: Mapping[str, WirePosition]) -> None:
        """Note where subjects stood that had no message yet; what is known of one counts for more.

        The answer to a subscription says so. It counts for nothing if the numbering began anew.
        """
        for subject, at in told.items():
            room = len(self._seen) < self._positions_max
            if room and at.history == self.history and subject not in self._seen:
                self._seen[subject] = (at.history, at.epoch, at.seq)

    def accept(self, message: MessageEvent) -> bool:
        """Return whether the message is new, and note its position if it is.

        STANDARD messages have no position and are always new.
        """
        if message.seq == 0:
            return True
        subject = message.subject
        here = (self.history, message.epoch, message.seq)
        seen = self._seen.get(subject)
        if seen is not None and seen[0] == self.history and here <= seen:
            return False
        if seen is None and len(self._seen) >= self._positions_max:
            self.forget(next(iter(self._seen)))
        self._seen[subject] = here
        return True
