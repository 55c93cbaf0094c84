"""The member that a publisher speaks to: forwards publications and knows what became of them.

A publication waits under a *ticket* of its group. The log itself answers: each run of entries
names the contact and its tickets, so that the contact reads results off the entries as they
commit. When a coordinator is replaced, what is not in the new one's established log was surely
lost with the old one, and is forwarded again; nothing is ever taken twice.
"""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from mdserver.cluster.dedupe import too_many
from mdserver.core.proposal import Outcome, Proposal
from mdserver.limits import (
    FORWARD_BYTES_MAX,
    FORWARD_PUBLICATIONS_MAX,
    NS_PER_S,
    PENDING_BYTES_MAX,
    PENDING_BYTES_PER_GROUP_MAX,
    PENDING_PER_GROUP_MAX,
    PUBLISHER_NUMBERS_KEPT,
)

if TYPE_CHECKING:
    from mdserver.cluster.log import Run
    from mdserver.cluster.messages import AnswerItem
    from mdserver.core.message import Entry, Publication


class Waiting:
    """What waits in one group. `sent`: the tickets below it were forwarded at least once.

    `numbered`: sessions -> how many of their publications with a number wait. `size_bytes`: of all
    that wait (`size_of`).
    """

    __slots__ = ("next", "numbered", "proposals", "sent", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.next = 1
        self.sent = 1
        self.proposals: dict[int, Proposal] = {}
        self.numbered: dict[int, int] = {}

    def uncount(self, session: int) -> None:
        """Have one publication with a number less wait for a session."""
        left = self.numbered[session] - 1
        if left:
            self.numbered[session] = left
        else:
            del self.numbered[session]


class Contact:
    """Everything that waits at one member. `name` is never reused: it holds the incarnation.

    `numbers_max` is how many publications with a number may wait in a group for one session;
    `size_bytes` the size of all that waits.
    """

    __slots__ = ("groups", "name", "numbers_max", "size_bytes")

    def __init__(self, name: str, groups: int, numbers_max: int = PUBLISHER_NUMBERS_KEPT) -> None:
        self.name = name
        self.numbers_max = numbers_max
        self.size_bytes = 0
        self.groups = [Waiting() for _ in range(groups)]

    def rename(self, name: str) -> None:
        """The member has a new incarnation; nothing waits yet."""
        self.name = name

    def take(self, group: int, proposals: Iterable[Proposal]) -> list[Outcome]:
        """Give proposals their tickets; returns the refusals of those that are too many."""
        waiting = self.groups[group]
        ticket = waiting.next
        pending, numbered = waiting.proposals, waiting.numbered
        refused: list[Outcome] = []
        for proposal in proposals:
            size = size_of(proposal.publication)
            if len(pending) >= PENDING_PER_GROUP_MAX:
                refused.append(Outcome(proposal.origin, reason="too many publications wait here"))
                continue
            # One that finds nothing waiting is taken, however large it is.
            if (pending and waiting.size_bytes + size > PENDING_BYTES_PER_GROUP_MAX) or (
                self.size_bytes and self.size_bytes + size > PENDING_BYTES_MAX
            ):
                refused.append(Outcome(proposal.origin, reason="too many bytes wait here"))
                continue
            if proposal.publication.number:
                session = proposal.origin.session
                waits = numbered.get(session, 0)
                if waits >= self.numbers_max:
                    refused.append(Outcome(proposal.origin, reason=too_many(self.numbers_max)))
                    continue
                numbered[session] = waits + 1
            pending[ticket] = proposal
            waiting.size_bytes += size
            self.size_bytes += size
            ticket += 1
        waiting.next = ticket
        return refused

    def _take(self, waiting: Waiting, ticket: int) -> Proposal | None:
        """Have a ticket wait no longer; None if it does not."""
        proposal = waiting.proposals.pop(ticket, None)
        if proposal is not None:
            size = size_of(proposal.publication)
            waiting.size_bytes -= size
            self.size_bytes -= size
            if proposal.publication.number:
                waiting.uncount(proposal.origin.session)
        return proposal

    def unsent(self, group: int) -> "tuple[int, list[Publication]] | None":
        """What is to be forwarded now: its first ticket, and the publications.

        None while something of the group is on its way. What comes meanwhile goes together: the
        more a cluster has to do, the less each publication costs it.
        """
        waiting = self.groups[group]
        pending = waiting.proposals
        first = waiting.sent
        if first == waiting.next or next(iter(pending)) < first:
            return None
        publications: list[Publication] = []
        size = 0
        # None is on its way, so those that wait are all of the tickets from `first` on, in order.
        for proposal in islice(pending.values(), FORWARD_PUBLICATIONS_MAX):
            publication = proposal.publication
            size += len(publication.content)
            publications.append(publication)
            if size > FORWARD_BYTES_MAX:
                break
        waiting.sent = first + len(publications)
        return first, publications

    def lost(self, group: int, tail: "list[Run]") -> "list[tuple[int, list[Publication]]]":
        """What a new coordinator did not get, as rows of tickets that follow each other.

        That is what was forwarded, but what stands in the uncommitted `tail` of its log.
        """
        waiting = self.groups[group]
        arrived = {
            ticket: None
            for run in tail
            if run.contact == self.name
            for ticket in range(run.first, run.first + run.count)
        }
        rows: list[tuple[int, list[Publication]]] = []
        expected = 0
        for ticket, proposal in waiting.proposals.items():
            if ticket >= waiting.sent:
                break
            if ticket in arrived:
                continue
            if ticket != expected:
                rows.append((ticket, []))
            rows[-1][1].append(proposal.publication)
            expected = ticket + 1
        return rows

    def committed(
        self, group: int, start: int, entries: "list[Entry]", run: "Run"
    ) -> list[Outcome]:
        """The outcomes of a run of this contact, `entries` being the log from `start` on."""
        waiting = self.groups[group]
        taken = waiting.proposals.pop  # as `_take` does, without a call for each
        size = 0
        outcomes: list[Outcome] = []
        at = run.start - start
        for ticket, entry in enumerate(entries[at : at + run.count], run.first):
            proposal = taken(ticket, None)
            if proposal is not None:
                size += size_of(proposal.publication)
                if proposal.publication.number:
                    waiting.uncount(proposal.origin.session)
                outcomes.append(Outcome(proposal.origin, entry.epoch, entry.seq))
        waiting.size_bytes -= size
        self.size_bytes -= size
        return outcomes

    def answered(self, answer: "AnswerItem") -> Outcome | None:
        """The outcome of a ticket that the coordinator answered by itself."""
        proposal = self._take(self.groups[answer.group], answer.ticket)
        if proposal is None:
            return None
        return Outcome(
            proposal.origin,
            answer.epoch,
            answer.seq,
            answer.duplicate,
            answer.reason,
            expected=answer.expected,
        )

    def expired(self, now: int, timeout: int) -> list[Outcome]:
        """Give up what waited for too long: uncertain if it ever went to a coordinator."""
        outcomes: list[Outcome] = []
        for waiting in self.groups:
            while waiting.proposals:
                ticket, proposal = next(iter(waiting.proposals.items()))
                if proposal.publication.time + timeout > now:
                    break
                self._take(waiting, ticket)
                outcomes.append(
                    Outcome(
                        proposal.origin,
                        reason=f"it was not committed within {timeout // NS_PER_S} s",
                        certain=ticket >= waiting.sent,
                    )
                )
                waiting.sent = max(waiting.sent, ticket + 1)
        return outcomes

    def refused(self, group: int, reason: str) -> list[Outcome]:
        """Give up all that waits in a group: nothing of it was taken, for certain."""
        waiting = self.groups[group]
        outcomes = [
            Outcome(proposal.origin, reason=reason) for proposal in waiting.proposals.values()
        ]
        for ticket in list(waiting.proposals):
            self._take(waiting, ticket)
        waiting.sent = waiting.next
        return outcomes

    def unknown(self, group: int) -> list[Outcome]:
        """Give up what was forwarded in a group whose log was replaced unseen."""
        waiting = self.groups[group]
        outcomes: list[Outcome] = []
        for ticket, proposal in list(waiting.proposals.items()):
            if ticket < waiting.sent:
                self._take(waiting, ticket)
                outcomes.append(
                    Outcome(proposal.origin, reason="this member was left behind", certain=False)
                )
        return outcomes


def size_of(publication: "Publication") -> int:
    """Return what a publication counts for while it waits: the text of its content and fields."""
    size = len(publication.content)
    if publication.fields is not None:
        size += sum([len(name) + len(value) for name, value in publication.fields.items()])
    return size
