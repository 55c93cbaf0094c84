"""Subscriptions from their command to their end.

A session has at most one subscription for each text that it subscribed to, a subject or a pattern.
Subscribing again replaces the one there is, without a gap in its live messages
(`Subscription.renews`). Each subject of a command is accepted or refused separately, so one that
is wrong does not take the others with it.

A subscription ends because its client unsubscribes, because its session ends, or because a right
is gone. In the first and the last case the session goes on, and less exact subscriptions of it may
cover the same subjects; they then take over what the ended one still had to bring
(`CatchUp.owed`, `CatchUp.hand_over`).
"""

from collections.abc import Sequence
from itertools import islice

from mdserver.core.audit import ACCESS, presence_log, session_log
from mdserver.core.backfill import Backfill
from mdserver.core.cache import Cache
from mdserver.core.catch_up import CatchUp
from mdserver.core.commands import Fetch, Resume, Subscribe, Unsubscribe
from mdserver.core.conflation import Conflation, floored
from mdserver.core.entitlement import ALL_BUT_RESERVED, Policy, permits, permits_some
from mdserver.core.events import Error, Reset, Status, StatusName
from mdserver.core.histories import Histories
from mdserver.core.inputs import Denied, Grants
from mdserver.core.interest import Interest
from mdserver.core.message import Position
from mdserver.core.outputs import Output, Send
from mdserver.core.session import (
    CatchUpRequest,
    CatchUpState,
    KnownPositions,
    Session,
    SessionState,
    Subscription,
)
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import Pattern, parse_interest, shown, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import NS_PER_MS, SUBSCRIPTIONS_ENDED_MAX


class Subscriptions:
    """The subscriptions of all sessions, over the member's cache and interest."""

    def __init__(
        self,
        settings: BrokerSettings,
        cache: Cache,
        interest: Interest,
        conflation: Conflation,
        histories: Histories,
        backfill: Backfill,
        catch_up: CatchUp,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._conflation = conflation
        self._histories = histories
        self._backfill = backfill
        self._catch_up = catch_up
        self._segments = settings.subject_segments_min, settings.subject_segments_max

    def subscribe(
        self,
        session: Session,
        command: Subscribe,
        verdict: Grants | Denied | None,
        now: int,
        out: list[Output],
    ) -> None:
        """Carry out a `subscribe` or `resume`; each invalid or refused subject gets an answer.

        `verdict` is that of an external authorizer about this command, None if none was asked.
        """
        if command.history < 0 or command.conflation_ms < 0:
            reason = "`history` and `conflation_ms` are 0 or more."
            out.append(Send(session.id, Error(code="invalid-value", reason=reason, id=command.id)))
            return
        accepted: list[Subscription] = []
        for subject in dict.fromkeys(command.subjects):
            try:
                pattern = parse_interest(subject, *self._segments)
            except InvalidSubjectError as error:
                out.append(Send(session.id, invalid_subject(error, command.id)))
                continue
            denial = self._denial(session, subject, pattern, verdict)
            if denial is not None:
                self._refuse(session, subject, denial, now, out, command.id)
                if self._settings.audit_access:
                    log = session_log(
                        ACCESS, "subscribe-denied", session, now, subject=subject, reason=denial
                    )
                    out.append(log)
                continue
            conflation = floored(command.conflation_ms)
            subscription = Subscription(session, subject, pattern, conflation, now)
            self._add(subscription, command, now, out)
            accepted.append(subscription)
            self._log_subscription(subscription, command, now, out)
        if accepted:
            self._begin(session, command, accepted, now, out)

    def _denial(
        self,
        session: Session,
        subject: str,
        pattern: Pattern | None,
        verdict: Grants | Denied | None,
    ) -> str | None:
        """Return why a session may not have a subscription, None if it may."""
        if isinstance(verdict, Denied):
            return verdict.reason
        denial = may_subscribe(session, subject, pattern)
        # A subscription that replaces another one does not add to their number: no limit applies.
        if denial is not None or subject in session.subscriptions:
            return denial
        limit = self._settings.subscriptions_per_session_max
        if len(session.subscriptions) >= limit:
            return f"A session has at most {limit} subscriptions: end others first."
        limit = self._settings.patterns_per_session_max
        if pattern is not None and len(session.patterns or ()) >= limit:
            return f"A session has at most {limit} patterns: end others first."
        return None

    def _add(
        self, subscription: Subscription, command: Subscribe, now: int, out: list[Output]
    ) -> None:
        session = subscription.session
        held = session.subscriptions.get(subscription.subject)
        if held is not None:
            subscription.renews = held.renews or held.catch_up_state is CatchUpState.LIVE
            if not isinstance(command, Resume):
                # No snapshot brings messages that were not retained.
                self._conflation.release(held, command.positions or {}, out)
            self._drop_pending(held)
        elif self._settings.presence:
            out.append(presence_log("join", session, subscription.subject, now))
        session.subscriptions[subscription.subject] = subscription
        self._interest.add(subscription)

    def _begin(
        self,
        session: Session,
        command: Subscribe,
        accepted: Sequence[Subscription],
        now: int,
        out: list[Output],
    ) -> None:
        """Begin the catch-up of the subscriptions that a command made."""
        known = self._known(session, command, accepted, out)
        if self._settings.policy is Policy.ASK:
            for one in accepted:
                allow = Status(
                    status=StatusName.SUBSCRIBE_ALLOW, subject=one.subject, id=command.id
                )
                out.append(Send(session.id, allow))
        # The most exact ones first: when the others look at a subject, it is known whether a more
        # exact subscription has brought it, or defers it because this step has no room.
        for one in sorted(accepted, key=lambda one: one.exactness, reverse=True):
            self._catch_up.start(CatchUpRequest(one, known, command.history), now, out)

    def _known(
        self,
        session: Session,
        command: Subscribe,
        accepted: Sequence[Subscription],
        out: list[Output],
    ) -> KnownPositions:
        """Return the positions of a command that mean something under the current history.

        A reset is sent for each subject that the command subscribes to by name with a position of
        another history. For subjects of a pattern it is sent after the search, which decides
        whether this subscription is the one that brings them.
        """
        known = KnownPositions(replay=command.replay)
        if isinstance(command, Resume) and command.places is not None:
            known.places = self._known_places(session, command.known, command.places, accepted, out)
        positions = command.positions
        if not positions:
            return known
        named = dict.fromkeys(subscription.subject for subscription in accepted)
        foreign: list[str] = []
        for subject, after in positions.items():
            if self._histories.know(subject, after.history):
                known.positions[subject] = Position(after.epoch, after.seq)
            elif subject in named:
                foreign.append(subject)
            else:
                known.foreign[subject] = None
        if foreign:
            out.append(Send(session.id, Reset(history=self._histories.current, subjects=foreign)))
        return known

    def _known_places(
        self,
        session: Session,
        history: str,
        told: Sequence[int],
        accepted: Sequence[Subscription],
        out: list[Output],
    ) -> list[int]:
        """Return the places that mean something here, -1 for the others.

        A reset of the patterns is sent if some places are of another history.
        """
        places = self._histories.known_places(history, told)
        patterns = [one.subject for one in accepted if one.pattern is not None]
        if -1 in places and patterns:
            out.append(Send(session.id, Reset(history=self._histories.current, subjects=patterns)))
        return places

    def unsubscribe(
        self, session: Session, command: Unsubscribe, now: int, out: list[Output]
    ) -> None:
        """End subscriptions; a subject that is not subscribed to is no error."""
        owed: dict[str, Position] = {}
        for subject in dict.fromkeys(command.subjects):
            subscription = session.subscriptions.get(subject)
            if subscription is not None:
                owed |= self._end(subscription, now, out)
                if self._settings.audit_access:
                    log = session_log(ACCESS, "unsubscribe", session, now, subject=subject)
                    out.append(log)
                continue
            try:
                parse_interest(subject, *self._segments)
            except InvalidSubjectError as error:
                out.append(Send(session.id, invalid_subject(error, command.id)))
        self._catch_up.hand_over(session, owed, now, out)

    def _end(self, subscription: Subscription, now: int, out: list[Output]) -> dict[str, Position]:
        """End a subscription, and return the positions that others of its session take over."""
        session, subject = subscription.session, subscription.subject
        connected = session.state is SessionState.CONNECTED
        # Asked before anything is removed: the answer depends on which subscription is chosen now.
        owed = self._catch_up.owed(subscription) if connected else {}
        del session.subscriptions[subject]
        if session.begun is not None:
            session.begun.pop(subject, None)
        if self._settings.receipts and connected:
            _remember(subscription)
        self._interest.remove(subscription)
        self._drop_pending(subscription)
        if self._settings.presence:
            out.append(presence_log("leave", session, subject, now))
        return owed

    def _drop_pending(self, subscription: Subscription) -> None:
        """Drop what waits for a subscription: conflated messages, and its catch-up."""
        self._conflation.drop(subscription)
        self._catch_up.cancel(subscription)

    def end_some(self, session: Session, now: int, out: list[Output]) -> bool:
        """End subscriptions of a session that ended, at most `subjects_at_once` of them.

        Returns whether none is left. Those that are left stay in the audiences of their subjects
        until the next call, under a session number that is never given again.
        """
        self._catch_up.end(session, out)
        most = self._settings.subjects_at_once
        for subscription in list(islice(session.subscriptions.values(), most)):
            self._end(subscription, now, out)
        return not session.subscriptions

    def revoke(
        self, session: Session, subject: str, reason: str, now: int, out: list[Output]
    ) -> None:
        """End a subscription whose right is gone, and tell the client why."""
        if subject in session.subscriptions:
            self._refuse(session, subject, reason, now, out)

    def _refuse(
        self,
        session: Session,
        subject: str,
        reason: str,
        now: int,
        out: list[Output],
        id: str | int | None = None,  # noqa: A002 - the name on the wire
    ) -> None:
        """Refuse a subscription, and end the one that there is."""
        held = session.subscriptions.get(subject)
        owed = {} if held is None else self._end(held, now, out)
        deny(session, subject, reason, out, id)
        self._catch_up.hand_over(session, owed, now, out)

    def rights_changed(self, session: Session, now: int, out: list[Output]) -> None:
        """End the subscriptions that the rights of a session no longer allow."""
        self._interest.rights_changed(session)
        owed: dict[str, Position] = {}
        for subject, subscription in list(session.subscriptions.items()):
            denial = may_subscribe(session, subject, subscription.pattern)
            if denial is not None:
                owed |= self._end(subscription, now, out)
                deny(session, subject, denial, out)
        self._catch_up.hand_over(session, owed, now, out)

    def fetch(self, session: Session, command: Fetch, now: int, out: list[Output]) -> None:
        """Answer a read of a subject's messages or snapshot, which needs the right to subscribe."""
        try:
            validate_subject(command.subject, *self._segments, purpose="read")
        except InvalidSubjectError as error:
            out.append(Send(session.id, invalid_subject(error, None)))
            return
        denial = may_subscribe(session, command.subject, None)
        if denial is not None:
            deny(session, command.subject, denial, out)
            return
        out.append(Send(session.id, self._backfill.fetched(command, now)))

    def _log_subscription(
        self, subscription: Subscription, command: Subscribe, now: int, out: list[Output]
    ) -> None:
        if not self._settings.audit_access:
            return
        session, subject = subscription.session, subscription.subject
        after = (command.positions or {}).get(subject)
        how = "-with-recovery" if command.positions else "-with-history" if command.history else ""
        log = session_log(
            ACCESS,
            f"subscribe{how}",
            session,
            now,
            subject=subject,
            history=command.history or None,
            conflation_ms=subscription.conflation // NS_PER_MS or None,
            epoch=after.epoch if after else None,
            seq=after.seq if after else None,
        )
        out.append(log)


def _remember(subscription: Subscription) -> None:
    """Note that a session had a subscription: receipts about its messages may still follow."""
    session = subscription.session
    ended = session.ended = session.ended or {}
    ended.pop(subscription.subject, None)
    ended[subscription.subject] = subscription.pattern
    if len(ended) > SUBSCRIPTIONS_ENDED_MAX:
        del ended[next(iter(ended))]


def may_subscribe(session: Session, subject: str, pattern: Pattern | None) -> str | None:
    """Return why a session may not subscribe, None if it may.

    A pattern is allowed if the rights cover some of its subjects. Only those are delivered, since
    `Interest` checks the rights again for each subject.
    """
    allowed = (
        permits(session.readable, subject)
        if pattern is None
        else permits_some(session.readable, pattern)
    )
    if allowed:
        return None
    if session.readable is ALL_BUT_RESERVED:
        return (
            f"Subscribing to {shown(subject)} needs a right that names '/__mdserver__' (with "
            "`Entitlement = Basic`, the token `EntitlementAllowToken`)."
        )
    return f"The token does not allow subscribing to {shown(subject)}."


def deny(
    session: Session,
    subject: str,
    reason: str,
    out: list[Output],
    id: str | int | None = None,  # noqa: A002 - the name on the wire
) -> None:
    """Tell a client that a subscription is refused, or ended by the server."""
    status = Status(status=StatusName.SUBSCRIBE_DENY, subject=subject, reason=reason, id=id)
    out.append(Send(session.id, status))


def invalid_subject(error: InvalidSubjectError, id: str | int | None) -> Error:  # noqa: A002
    """Return the answer to text that is neither a valid subject nor a valid pattern."""
    return Error(code="invalid-subject", reason=str(error), id=id)
