"""When things happened in a run: faults, members' states, clients' reconnects, acknowledgements."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attrs import define, field, frozen


@define(eq=False)
class Episode:
    """A fault from its first mark to its end. `members`: whom it is about; none: all of them."""

    kind: str
    begin_s: float | None = None
    end_s: float | None = None
    members: list[int] = field(factory=list)


@frozen
class Moment:
    """At a time: a member's new state, a client that connected, or a violation."""

    at_s: float
    what: str
    member: int | None = None


@define(eq=False)
class Timeline:
    """Seconds since the run began. `acks` counts those of each second."""

    episodes: list[Episode] = field(factory=list)
    states: list[Moment] = field(factory=list)
    clients: list[Moment] = field(factory=list)
    violations: list[Moment] = field(factory=list)
    acks: Counter[int] = field(factory=Counter)
    end_s: float = 0.0
    _now: ContextVar[Episode | None] = field(factory=lambda: ContextVar("episode", default=None))

    @contextmanager
    def episode(self, kind: str) -> Iterator[Episode]:
        """What this task marks meanwhile belongs to one fault; `end_s` is set by the caller."""
        found = Episode(kind)
        token = self._now.set(found)
        try:
            yield found
        finally:
            self._now.reset(token)

    def mark(self, at_s: float, member: int | None) -> None:
        """A fault of this task shows at a member, or (None) at all of them."""
        episode = self._now.get()
        if episode is None:
            return
        if episode.begin_s is None:
            episode.begin_s = at_s
            self.episodes.append(episode)
        if member is not None and member not in episode.members:
            episode.members.append(member)

    def silences(self) -> list[tuple[Episode, float]]:
        """Return for each fault how long nothing was acknowledged from its begin on, in seconds."""
        seconds = sorted(self.acks)
        found = []
        for episode in self.episodes:
            begin_s = episode.begin_s or 0.0
            after = next((second for second in seconds if second > begin_s), self.end_s)
            found.append((episode, after - begin_s))
        return found
