"""The publications of this member's clients that wait for their results.

The member that a publisher speaks to is the *contact* of its publications: it hands them to the
coordinators of their groups, and tells the publisher their results. Those have to be right although
coordinators are replaced and links are lost, and nothing may be taken twice. This rests on one
idea, that the log itself answers:

- A publication waits under a *ticket*, a number of the `GroupQueue` of its subject group. Each run
  of entries in a log names its contact and tickets (`mdserver.cluster.log`), so the contact reads
  results off the entries as they are committed, under any coordinator, and needs no message.
  Coordinators only answer what gets no place in the log: repeats and refusals.
- When a new coordinator's log is established, what was forwarded and is not in that log is not in
  any other either. It was lost with the coordinator before, and is forwarded again (`not_taken`).
- A ticket is never used again, and neither is the name of the contact, which holds the incarnation
  of the member and a random number of its start: what an earlier start of it forwarded answers
  nothing that waits now.

Each queue has one batch on its way; what comes meanwhile is the next batch. With nothing on its way
nothing waits, and under load batches grow by themselves until the members keep up. In the
specification `Publish` takes any publication at any time, again and again, and `Once` holds all the
same. docs/cluster.md, "A publication".
"""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from mdserver.cluster.dedupe import too_many
from mdserver.core.histogram import Histogram
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
    from mdserver.cluster.messages import ForwardReplyItem
    from mdserver.core.message import Entry, Publication

Batch = tuple[int, "list[Publication]"]
"""Publications whose tickets follow each other, behind the first of these tickets."""


def contact_name(member: str, incarnation: int, start: int) -> str:
    """Return the name under which tickets of a start of a member stand in logs.

    `start` is the random number of that start: a member that lost its vote record, or keeps none,
    has incarnations that it had before.
    """
    return f"{member}#{incarnation}.{start:x}"


class PendingPublications:
    """The common state of the queues of all groups of this member.

    `contact` is the name under which tickets stand in logs (`contact_name`).
    `numbers_max` bounds the publications with a number that wait in one queue for one session;
    `size_bytes` is the size of all that waits, which is bounded too. `commits` counts how long
    publications waited until they were committed.
    """

    __slots__ = ("commits", "contact", "numbers_max", "size_bytes")

    def __init__(self, contact: str, numbers_max: int = PUBLISHER_NUMBERS_KEPT) -> None:
        self.contact = contact
        self.numbers_max = numbers_max
        self.size_bytes = 0
        self.commits = Histogram()


class GroupQueue:
    """The publications that wait in one subject group: ticket -> proposal, in order of tickets.

    `next_ticket` is the next that is given; the tickets below `next_unsent` were forwarded at least
    once. `numbered`: sessions -> how many of their publications with a number wait. `size_bytes`:
    the size of all that waits (`size_of`).
    """

    __slots__ = (
        "_pending",
        "next_ticket",
        "next_unsent",
        "numbered",
        "proposals",
        "size_bytes",
    )

    def __init__(self, pending: PendingPublications) -> None:
        self._pending = pending
        self.size_bytes = 0
        self.next_ticket = 1
        self.next_unsent = 1
        self.proposals: dict[int, Proposal] = {}
        self.numbered: dict[int, int] = {}

    # What comes and what goes to the coordinator

    def take(self, proposals: Iterable[Proposal]) -> list[Outcome]:
        """Give proposals their tickets; return the refusals of those for which there is no room."""
        pending, waiting, numbered = self._pending, self.proposals, self.numbered
        ticket = self.next_ticket
        refused: list[Outcome] = []
        for proposal in proposals:
            publication = proposal.publication
            size = len(publication.content) if publication.fields is None else size_of(publication)
            if len(waiting) >= PENDING_PER_GROUP_MAX:
                refused.append(Outcome(proposal.origin, reason="too many publications wait here"))
                continue
            # One that finds nothing waiting is taken, however large it is.
            if (waiting and self.size_bytes + size > PENDING_BYTES_PER_GROUP_MAX) or (
                pending.size_bytes and pending.size_bytes + size > PENDING_BYTES_MAX
            ):
                refused.append(Outcome(proposal.origin, reason="too many bytes wait here"))
                continue
            session = proposal.origin.session
            if publication.number and session:  # a worker counts those of its own sessions
                waits = numbered.get(session, 0)
                if waits >= pending.numbers_max:
                    refused.append(Outcome(proposal.origin, reason=too_many(pending.numbers_max)))
                    continue
                numbered[session] = waits + 1
            waiting[ticket] = proposal
            self.size_bytes += size
            pending.size_bytes += size
            ticket += 1
        self.next_ticket = ticket
        return refused

    def unsent(self) -> "Batch | None":
        """Return what is to be forwarded now, and take it as forwarded.

        None while a batch is on its way. What comes meanwhile goes together: the more a cluster has
        to do, the less each publication costs it.
        """
        waiting, first = self.proposals, self.next_unsent
        if first == self.next_ticket or next(iter(waiting)) < first:
            return None
        publications: list[Publication] = []
        size = 0
        # None is on its way, so those that wait are all of the tickets from `first` on, in order.
        for proposal in islice(waiting.values(), FORWARD_PUBLICATIONS_MAX):
            publication = proposal.publication
            size += len(publication.content)
            publications.append(publication)
            if size > FORWARD_BYTES_MAX:
                break
        self.next_unsent = first + len(publications)
        return first, publications

    def not_taken(self, tail: "list[Run]") -> "list[Batch]":
        """Return what was forwarded and does not stand in a newly established log.

        What is committed of that log does not wait any more, so `tail`, the runs of its uncommitted
        end, is all that has to be looked at.
        """
        contact = self._pending.contact
        arrived = {
            ticket: None
            for run in tail
            if run.contact == contact
            for ticket in range(run.first, run.first + run.count)
        }
        batches: list[Batch] = []
        expected = 0
        for ticket, proposal in self.proposals.items():
            if ticket >= self.next_unsent:
                break
            if ticket in arrived:
                continue
            if ticket != expected:
                batches.append((ticket, []))
            batches[-1][1].append(proposal.publication)
            expected = ticket + 1
        return batches

    # Results

    def committed(self, start: int, entries: "list[Entry]", run: "Run") -> list[Outcome]:
        """Return the outcomes of a run of this contact, `entries` being the log from `start` on."""
        taken = self.proposals.pop  # as `_remove` does, without a call for each
        size = 0
        outcomes: list[Outcome] = []
        at = run.start - start
        for ticket, entry in enumerate(entries[at : at + run.count], run.first):
            proposal = taken(ticket, None)
            if proposal is not None:
                publication = proposal.publication
                size += (
                    len(publication.content) if publication.fields is None else size_of(publication)
                )
                if publication.number:
                    self._uncount(proposal.origin.session)
                outcomes.append(Outcome(proposal.origin, entry.epoch, entry.seq))
        self.size_bytes -= size
        self._pending.size_bytes -= size
        return outcomes

    def answered(self, answer: "ForwardReplyItem") -> Outcome | None:
        """Return the outcome of a ticket that the coordinator answers; None if it does not wait."""
        proposal = self._remove(answer.ticket)
        if proposal is None:
            return None
        return Outcome(
            proposal.origin,
            answer.epoch,
            answer.seq,
            answer.duplicate,
            answer.reason,
            answer.certain,
            answer.expected,
        )

    def expired(self, now: int, timeout: int) -> list[Outcome]:
        """Give up what waits for longer than a timeout (ns).

        What was ever forwarded may still be committed, so its outcome is not certain.
        """
        outcomes: list[Outcome] = []
        while self.proposals:
            ticket, proposal = next(iter(self.proposals.items()))
            if proposal.publication.time + timeout > now:
                break
            self._remove(ticket)
            outcomes.append(
                Outcome(
                    proposal.origin,
                    reason=f"it was not committed within {timeout // NS_PER_S} s",
                    certain=ticket >= self.next_unsent,
                )
            )
            self.next_unsent = max(self.next_unsent, ticket + 1)
        return outcomes

    def refused(self, reason: str) -> list[Outcome]:
        """Give up all that waits; none of it was taken, which the outcomes state as certain."""
        outcomes = [Outcome(proposal.origin, reason=reason) for proposal in self.proposals.values()]
        for ticket in list(self.proposals):
            self._remove(ticket)
        self.next_unsent = self.next_ticket
        return outcomes

    def unknown(self) -> list[Outcome]:
        """Give up what was forwarded: the log was replaced by one that this member did not follow.

        It may have been committed in between, so nothing is certain about it.
        """
        outcomes: list[Outcome] = []
        for ticket, proposal in list(self.proposals.items()):
            if ticket < self.next_unsent:
                self._remove(ticket)
                outcomes.append(
                    Outcome(proposal.origin, reason="this member was left behind", certain=False)
                )
        return outcomes

    def _remove(self, ticket: int) -> Proposal | None:
        """Take a proposal out of the queue; return it, None if it does not wait any more."""
        proposal = self.proposals.pop(ticket, None)
        if proposal is not None:
            size = size_of(proposal.publication)
            self.size_bytes -= size
            self._pending.size_bytes -= size
            if proposal.publication.number:
                self._uncount(proposal.origin.session)
        return proposal

    def _uncount(self, session: int) -> None:
        """Count one numbered publication of a session less."""
        if not session:
            return
        left = self.numbered[session] - 1
        if left:
            self.numbered[session] = left
        else:
            del self.numbered[session]


def size_of(publication: "Publication") -> int:
    """Return what a publication counts for while it waits: the bytes of its content and fields."""
    size = len(publication.content)
    if publication.fields is not None:
        size += sum([len(name) + len(value) for name, value in publication.fields.items()])
    return size
