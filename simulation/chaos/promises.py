"""What holds of live members while faults go on (docs/cluster.md, I1, I8, I10).

`simulation.promises` looks at the state of all members between two events. Live ones can only be
asked, one after the other, while they go on. So each rule is put in such a way that it holds of
answers from different moments.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping

from attrs import define, field, frozen

from simulation.chaos.statuses import NORMAL, NoAnswerError, Status
from simulation.history import Acked

Cached = Mapping[int, tuple[int, str]]
"""Messages of a subject at a member: sequence number -> epoch and publication."""
Read = Callable[[int, str], Awaitable[Cached]]
"""Asks a member (its number) for the messages of a subject. Raises NoAnswerError."""
Place = tuple[str, str]  # history id, subject
Known = tuple[tuple[int, ...], str, list[int]]
"""A list of seeds, a history id, and how much of each group was committed by then."""


@define
class HeldByMajorities:
    """I1: seeds that vote and lack something committed are never a majority.

    What any member says is committed, a majority held at that time, and a seed that votes later
    lacks it only if it was none of these. So the seeds are counted that lack it in an answer to a
    question which was asked after that, whenever that was.
    """

    _list: tuple[int, ...] = ()
    _history: str = ""
    _committed: list[int] = field(factory=list)
    """The most of each group that any member has said is committed."""
    _seen: dict[int, tuple[Status, list[int]]] = field(factory=dict)
    """Seeds that vote -> their last status, and what was known as committed when it was asked."""

    def known(self) -> Known:
        """Return how much of each group is known to be committed; take it before asking."""
        return self._list, self._history, list(self._committed)

    def gone(self, member: int) -> None:
        """Note that a member ended, or does not answer: it may have forgotten what it held."""
        self._seen.pop(member, None)

    def see(self, member: int, status: Status, known: Known, seeds: Collection[int]) -> str | None:
        """Take an answer; return what is wrong, None if nothing is.

        `known` as it was when the member was asked; `seeds` are those of the list in force, none
        while it changes.
        """
        if (tuple(seeds), status.history) != (self._list, self._history):
            # Another history begins anew, and majorities of another list are other ones.
            self._list, self._history = tuple(seeds), status.history
            self._committed, self._seen = list(status.committed), {}
            return None
        self._committed = list(map(max, self._committed, status.committed))
        self.gone(member)
        if member in seeds and status.state in NORMAL and known[:2] == self.known()[:2]:
            self._seen[member] = (status, known[2])
        for group in range(len(self._committed)):
            for _, least in list(self._seen.values()):
                lacking = self._lacking(group, least[group])
                if 2 * len(lacking) > len(seeds):
                    return (
                        f"I1: {least[group]} entries of group {group} are committed, but "
                        f"{', '.join(f'm{number}' for number in lacking)} vote and hold fewer"
                    )
        return None

    def _lacking(self, group: int, committed: int) -> list[int]:
        """Return the seeds that lack some of what was known as committed when they were asked."""
        return [
            member
            for member, (status, known) in self._seen.items()
            if status.lengths[group] < committed <= known[group]
        ]


@frozen
class Acknowledged:
    """The last acknowledgement that came to a publisher, from which start of which member."""

    event: Acked
    member: int
    start: int


@define
class Witness:
    """I8 and I10, by what members give to readers.

    I8: the member that acknowledges a publication has committed it at just that position. I10: a
    member that says that it is ready has all that was acknowledged before it started.
    """

    _read: Read
    _acked: dict[str, Acknowledged] = field(factory=dict)
    _before: dict[int, dict[Place, int]] = field(factory=dict)
    looked: int = 0

    def acked(self, client: str, event: Acked, member: int, start: int) -> None:
        """Note an acknowledgement, and the start of the member that gave it."""
        if event.epoch:  # else its place is forgotten
            self._acked[client] = Acknowledged(event, member, start)

    def started(self, member: int, newest: Mapping[Place, int]) -> None:
        """Note what is acknowledged as a member is about to start."""
        self._before[member] = dict(newest)

    def waits(self, member: int) -> bool:
        """Return whether a member has not been ready since it started."""
        return member in self._before

    async def look(self, member: int, start: Callable[[], int]) -> str | None:
        """Ask a member for what it acknowledged last; return what is wrong, None if nothing is.

        `start` says which start of the member runs: another one may begin anew.
        """
        for client, found in list(self._acked.items()):
            if found.member != member:
                continue
            del self._acked[client]
            try:
                cached = await self._read(member, found.event.subject)
            except NoAnswerError:
                continue
            if start() != found.start:
                continue
            self.looked += 1
            problem = unlike(found.event, cached)
            if problem is not None:
                return problem
        return None

    async def ready(self, member: int, start: Callable[[], int]) -> str | None:
        """Ask a member that says it is ready what it has; return what is wrong, or None.

        Its history id is not looked at: one that holds nothing has none, and while a majority of
        seeds keeps its memory there is only one. `start` as in `look`.
        """
        before, began = self._before.pop(member), start()
        for (_, subject), seq in before.items():
            try:
                cached = await self._read(member, subject)
            except NoAnswerError:
                continue
            if start() != began:
                break
            self.looked += 1
            held = max(cached, default=0)
            if held < seq:
                return f"I10: m{member} is ready with {held} of {subject}; {seq} was acked before"
        return None


def unlike(event: Acked, cached: Cached) -> str | None:
    """Return how a member contradicts what it acknowledged; None if it does not.

    It may have dropped the message since, and all before it.
    """
    place = f"{event.epoch}/{event.seq} of {event.subject}"
    held = cached.get(event.seq)
    if held is None:
        if cached and min(cached) > event.seq:
            return None
        return f"I8: {event.publication} was acked at {place}, where its member has nothing"
    if held != (event.epoch, event.publication):
        return f"I8: {event.publication} was acked at {place}, where its member has {held}"
    return None
