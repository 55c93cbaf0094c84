"""Backfill: what a client is sent of one subject to make up for messages that it did not get live.

It is a function of what the cache has of the subject and of what the client knows:

    the client has       the cache has              is sent
    no position          messages, or a snapshot    the last messages that it asked for, or the
                                                    snapshot
    a position           everything after it        DATA_SYNC, then what it missed
    a position           not all of that            DATA_RESYNC with the range that is missing, then
                                                    the snapshot
    a position           less than the client       nothing: it waits (`mdserver.core.ahead`)

A place in the log of the group counts as a position, except that nothing is sent if the client
missed nothing. `mdserver.core.recovery` compares. For which subscription and when a subject is
brought is up to the catch-up (`mdserver.core.catch_up`); nothing is kept here from one call to the
next.
"""

from collections.abc import Iterable, Mapping

from mdserver.core.cache import Cache, SubjectState
from mdserver.core.commands import Fetch
from mdserver.core.events import (
    Delivery,
    Fetched,
    MissingRange,
    Status,
    StatusName,
    WirePosition,
)
from mdserver.core.histories import Histories
from mdserver.core.interest import Interest
from mdserver.core.message import NO_FLOOR, GroupFloor, MessageType, Position
from mdserver.core.outputs import Output, Send
from mdserver.core.recovery import Ahead, Lost, Missed, deliveries, recover, recover_since
from mdserver.core.session import CatchUpRequest, Subscription
from mdserver.core.settings import BrokerSettings


class Backfill:
    """What clients are sent from the cache, over the cache of this member."""

    def __init__(
        self, settings: BrokerSettings, cache: Cache, interest: Interest, histories: Histories
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._histories = histories

    # -- What a client has not seen yet ------------------------------------------------------------

    def send_latest(
        self, subscription: Subscription, subject: str, history: int, now: int, out: list[Output]
    ) -> None:
        """Send the last `history` messages of a subject; its snapshot if `history` is 0."""
        session, match = subscription.session.id, subscription.match
        state = self._cache.find(subject)
        if state is not None and history:
            entries = list(self._cache.entries(state, now)[-history:])
            brought = deliveries(entries, MessageType.HISTORICAL, match)
            out.extend(Send(session, delivery) for delivery in brought)
        else:
            self._send_snapshot(session, state, match, now, out)

    def _send_snapshot(
        self,
        session: int,
        state: SubjectState | None,
        match: str | None,
        now: int,
        out: list[Output],
    ) -> None:
        """Send the snapshot of a subject, if there is one and clients get them."""
        if state is None or not self._settings.publish_snapshot:
            return
        snapshot = self._cache.snapshot(state, now)
        if snapshot is not None:
            out.append(Send(session, snapshot.delivery(match)))

    def newest(self, subject: str) -> Position | None:
        """Return where a subject stands; None if nobody can say."""
        state = self._cache.find(subject)
        if state is not None and state.seq:
            return Position(state.epoch, state.seq)
        if self._settings.numbers_are_places:
            return None
        return self._cache.floor_of(subject).position

    # -- What a client missed ----------------------------------------------------------------------

    def send_after(
        self, subscription: Subscription, subject: str, after: Position, now: int, out: list[Output]
    ) -> bool:
        """Send what was missed of a subject since a position.

        Returns False, and sends nothing, if that is ahead of this member.
        """
        state = self._cache.find(subject)
        entries = () if state is None else self._cache.entries(state, now)
        found = recover(state, entries, after, self._cache.floor_of(subject).position)
        if isinstance(found, Ahead):
            return False
        if isinstance(found, Missed):
            self._send_missed(subscription, subject, found, after, out)
        else:
            self._send_lost(subscription, subject, found, now, out)
        return True

    def send_since(
        self, subscription: Subscription, subject: str, place: int, now: int, out: list[Output]
    ) -> None:
        """Send what came behind a place in the log of the group, if anything did."""
        state = self._cache.find(subject)
        entries = () if state is None else self._cache.entries(state, now)
        found = recover_since(state, entries, place, self._cache.floor_of(subject))
        if isinstance(found, Lost):
            self._send_lost(subscription, subject, found, now, out)
        elif found.entries:  # Most subjects of a pattern have none: a status for each is noise.
            self._send_missed(subscription, subject, found, None, out)

    def _send_missed(
        self,
        subscription: Subscription,
        subject: str,
        missed: Missed,
        after: Position | None,
        out: list[Output],
    ) -> None:
        """Send the messages that a client missed, behind a DATA_SYNC."""
        session = subscription.session.id
        out.append(Send(session, Status(status=StatusName.DATA_SYNC, subject=subject)))
        brought = deliveries(missed.entries, MessageType.RECOVERED, subscription.match, after)
        out.extend(Send(session, delivery) for delivery in brought)

    # -- What is gone ------------------------------------------------------------------------------

    def _send_lost(
        self, subscription: Subscription, subject: str, lost: Lost, now: int, out: list[Output]
    ) -> None:
        """Send the snapshot in place of messages that are gone, behind a DATA_RESYNC."""
        session = subscription.session.id
        out.append(Send(session, self._resync(subject, lost)))
        state = self._cache.find(subject)
        self._send_snapshot(session, state, subscription.match, now, out)

    def _resync(self, subject: str, lost: Lost) -> Status:
        """Return the status that names what is gone."""
        missing = self._missing(subject, lost)
        return Status(status=StatusName.DATA_RESYNC, subject=subject, missing=missing)

    def _missing(self, subject: str, lost: Lost) -> MissingRange:
        """Return the range of positions that are gone, as clients see it."""
        history = self._histories.of(subject)
        return MissingRange(
            WirePosition(history, lost.first.epoch, lost.first.seq),
            WirePosition(history, lost.last.epoch, lost.last.seq),
        )

    def taken_over(self, state: SubjectState, lost: Lost, now: int, out: list[Output]) -> None:
        """Send the subscribers of a subject its state that was taken over from another member.

        `lost` is the range that this member missed.
        """
        for session, match in self._interest.audience(state.subject).all():
            out.append(Send(session, self._resync(state.subject, lost)))
            self._send_snapshot(session, state, match, now, out)

    def lost_unknown(
        self,
        subscriptions: Iterable[Subscription],
        known: Mapping[str, Position],
        before: Position,
        last: Position,
        out: list[Output],
    ) -> None:
        """Tell subscriptions that subjects which are forgotten may have had messages up to `last`.

        `known` are the positions up to which this member had some of these subjects; of the others
        it had what came before `before`.
        """
        for subscription in subscriptions:
            subject = subscription.subject
            at = known.get(subject, before)
            lost = Lost(Position(at.epoch or last.epoch, at.seq + 1), last)
            out.append(Send(subscription.session.id, self._resync(subject, lost)))

    def tell_forgotten(self, request: CatchUpRequest, out: list[Output]) -> None:
        """Tell a client that goes on with a pattern if subjects that it never saw are forgotten.

        A search does not find them. What is told is about the pattern, as they have no name any
        more. A position under the pattern itself stands for subjects that the client never saw.
        This is asked when the search ends: until then further subjects may have been forgotten, and
        those that were found are told of by their names.
        """
        subscription, known = request.subscription, request.known
        after = known.positions.get(subscription.subject)
        floors = self._cache.floors
        if (after is None and known.places is None) or floors.count(NO_FLOOR) == len(floors):
            return  # nearly always
        lost: GroupFloor | None = None
        for group, floor in enumerate(floors):
            if after is None:
                place = -1 if known.places is None else known.places[group]
                told = 0 <= place < floor.place
            else:
                told = after.seq < floor.seq
            if told and (lost is None or floor.seq > lost.seq):
                lost = floor
        if lost is not None:
            first = Position(lost.epoch, 1 if after is None else after.seq + 1)
            status = self._resync(subscription.subject, Lost(first, lost.position))
            out.append(Send(subscription.session.id, status))

    # -- Reading once ------------------------------------------------------------------------------

    def fetched(self, command: Fetch, now: int) -> Fetched:
        """Return what a read of one subject finds, without a subscription: for the HTTP paths."""
        state = self._cache.find(command.subject)
        entries = [] if state is None else list(self._cache.entries(state, now))
        if command.history is not None:
            kept = entries[-command.history :] if command.history > 0 else []
            return Fetched(list(deliveries(kept, MessageType.HISTORICAL)))
        if command.after is not None:
            floor = self._cache.floor_of(command.subject).position
            found = recover(state, entries, command.after, floor)
            if isinstance(found, Lost):
                return Fetched(self._snapshot(state, now), self._missing(command.subject, found))
            missed = found.entries if isinstance(found, Missed) else ()
            return Fetched(list(deliveries(missed, MessageType.RECOVERED, None, command.after)))
        return Fetched(self._snapshot(state, now))

    def _snapshot(self, state: SubjectState | None, now: int) -> list[Delivery]:
        snapshot = None if state is None else self._cache.snapshot(state, now)
        return [] if snapshot is None else [snapshot.delivery()]
