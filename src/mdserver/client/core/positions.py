"""What a client has seen of each subject: to recover from there, and to drop what comes twice."""

from collections.abc import Iterable, Iterator

from mdserver.core.commands import PositionAfter
from mdserver.core.events import MessageEvent
from mdserver.core.message import MessageType
from mdserver.core.subjects import Pattern, parse_interest, segments_of
from mdserver.limits import CLIENT_POSITIONS_MAX

Seen = tuple[str, int, int]
"""History id, epoch, seq."""

_BROUGHT = {MessageType.SNAPSHOT, MessageType.HISTORICAL}


class Positions:
    """The newest position of each subject.

    At the bound the oldest subject is forgotten: it then gets its snapshot instead of a recovery.
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

    def connected(self, history: str) -> None:
        """Messages from now on are numbered in this history."""
        self.history = history
        self.replayed = {}
        self._patterns_replayed = {}

    def reset(self, history: str, subjects: Iterable[str]) -> None:
        """These subjects are numbered anew; the numbering of all others goes on under the new id.

        What a named pattern covers may or may not be numbered anew: it keeps the old id, by which
        the server can tell.
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
        """The application asked for what it has seen of a subject as well.

        Also for what it will have seen by the time when the answer comes.
        """
        self.replayed[subject] = None

    def replay_pattern(self, text: str, pattern: Pattern) -> None:
        """The same for all subjects of a pattern."""
        self._patterns_replayed[text] = pattern

    def forget(self, subject: str) -> None:
        """The subject or pattern is not subscribed any more."""
        self._seen.pop(subject, None)
        self.replayed.pop(subject, None)
        self._patterns_replayed.pop(subject, None)

    def get(self, subject: str) -> PositionAfter | None:
        """The position to recover from."""
        seen = self._seen.get(subject)
        return None if seen is None else PositionAfter(*seen)

    def repeats(self, message: MessageEvent) -> bool:
        """Whether the message is one that was seen, and that the application asked for again."""
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

    def accept(self, message: MessageEvent) -> bool:
        """Whether the message is new; notes its position if so.

        STANDARD messages have no position and are always new. Positions of different history ids
        are never compared.
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
