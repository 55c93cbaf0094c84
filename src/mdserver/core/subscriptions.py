"""Subscriptions from their command to their end."""

from collections.abc import Sequence
from itertools import islice

from mdserver.core.audit import ACCESS, presence_log, session_log
from mdserver.core.cache import Cache
from mdserver.core.catch_up import CatchUp
from mdserver.core.commands import Fetch, Resume, Subscribe, Unsubscribe
from mdserver.core.conflation import Conflation, floored
from mdserver.core.entitlement import Policy, permits, permits_some
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
        catch_up: CatchUp,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._conflation = conflation
        self._histories = histories
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
        """Carry out a command; each subject that is wrong or refused is answered by itself."""
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
                deny(session, subject, denial, out, command.id)
                if self._settings.audit_access:
                    log = session_log(
                        ACCESS, "subscribe-denied", session, now, subject=subject, reason=denial
                    )
                    out.append(log)
                continue
            conflation = floored(command.conflation_ms)
            subscription = Subscription(session, subject, pattern, conflation, now)
            self._add(subscription, now, out)
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
        if isinstance(verdict, Denied):
            return verdict.reason
        denial = may_subscribe(session, subject, pattern)
        if denial is not None or subject in session.subscriptions:
            return denial
        limit = self._settings.subscriptions_per_session_max
        if len(session.subscriptions) >= limit:
            return f"A session has at most {limit} subscriptions: end others first."
        limit = self._settings.patterns_per_session_max
        if pattern is not None and len(session.patterns or ()) >= limit:
            return f"A session has at most {limit} patterns: end others first."
        return None

    def _add(self, subscription: Subscription, now: int, out: list[Output]) -> None:
        session = subscription.session
        held = session.subscriptions.get(subscription.subject)
        if held is not None:
            subscription.renews = held.renews or held.catch_up_state is CatchUpState.LIVE
            self._let_go(held)
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
        known = self._known(session, command, accepted, out)
        if self._settings.policy is Policy.ASK:
            for one in accepted:
                allow = Status(
                    status=StatusName.SUBSCRIBE_ALLOW, subject=one.subject, id=command.id
                )
                out.append(Send(session.id, allow))
        # What a more exact one brings now, the others need not bring.
        for one in sorted(accepted, key=lambda one: one.exactness, reverse=True):
            self._catch_up.start(CatchUpRequest(one, known, command.history), now, out)

    def _known(
        self,
        session: Session,
        command: Subscribe,
        accepted: Sequence[Subscription],
        out: list[Output],
    ) -> KnownPositions:
        """The positions of a command.

        Sends a reset for those of another history that it subscribes to by name; for those that
        come by a pattern it follows when the subjects of the pattern are searched.
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
        """Return places that are known here; a reset follows if some are of another history."""
        places = self._histories.known_places(history, told)
        patterns = [one.subject for one in accepted if one.pattern is not None]
        if -1 in places and patterns:
            out.append(Send(session.id, Reset(history=self._histories.current, subjects=patterns)))
        return places

    def unsubscribe(
        self, session: Session, command: Unsubscribe, now: int, out: list[Output]
    ) -> None:
        """End subscriptions; one that is not there is no error."""
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
        """End a subscription; returns what others of the session have to go on with."""
        session, subject = subscription.session, subscription.subject
        connected = session.state is SessionState.CONNECTED
        owed = self._catch_up.owed(subscription) if connected else {}
        del session.subscriptions[subject]
        if self._settings.receipts and connected:
            _remember(subscription)
        self._interest.remove(subscription)
        self._let_go(subscription)
        if self._settings.presence:
            out.append(presence_log("leave", session, subject, now))
        return owed

    def _let_go(self, subscription: Subscription) -> None:
        """Forget what was held back for a subscription."""
        self._conflation.drop(subscription)
        self._catch_up.cancel(subscription)

    def end_some(self, session: Session, now: int, out: list[Output]) -> bool:
        """End subscriptions of a session that ended, so many at most.

        Returns whether these were all; the others still stand in the lists of their subjects, with
        the number of a session that nobody has any more.
        """
        self._catch_up.end(session, out)
        most = self._settings.subjects_at_once
        for subscription in list(islice(session.subscriptions.values(), most)):
            self._end(subscription, now, out)
        return not session.subscriptions

    def revoke(
        self, session: Session, subject: str, reason: str, now: int, out: list[Output]
    ) -> None:
        """The right to a subscription is gone."""
        subscription = session.subscriptions.get(subject)
        if subscription is not None:
            owed = self._end(subscription, now, out)
            deny(session, subject, reason, out)
            self._catch_up.hand_over(session, owed, now, out)

    def rights_changed(self, session: Session, now: int, out: list[Output]) -> None:
        """End what the session's rights no longer carry."""
        self._interest.rights_changed(session)
        owed: dict[str, Position] = {}
        for subject, subscription in list(session.subscriptions.items()):
            denial = may_subscribe(session, subject, subscription.pattern)
            if denial is not None:
                owed |= self._end(subscription, now, out)
                deny(session, subject, denial, out)
        self._catch_up.hand_over(session, owed, now, out)

    def fetch(self, session: Session, command: Fetch, now: int, out: list[Output]) -> None:
        """Read a subject once."""
        try:
            validate_subject(command.subject, *self._segments, purpose="read")
        except InvalidSubjectError as error:
            out.append(Send(session.id, invalid_subject(error, None)))
            return
        denial = may_subscribe(session, command.subject, None)
        if denial is not None:
            deny(session, command.subject, denial, out)
            return
        out.append(Send(session.id, self._catch_up.fetched(command, now)))

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
    """Note that a session had a subscription: receipts about it may follow."""
    session = subscription.session
    ended = session.ended = session.ended or {}
    ended.pop(subscription.subject, None)
    ended[subscription.subject] = subscription.pattern
    if len(ended) > SUBSCRIPTIONS_ENDED_MAX:
        del ended[next(iter(ended))]


def may_subscribe(session: Session, subject: str, pattern: Pattern | None) -> str | None:
    """Why a session may not subscribe; None where it may.

    A pattern is allowed where the rights cover some of its subjects: only those come.
    """
    allowed = (
        permits(session.readable, subject)
        if pattern is None
        else permits_some(session.readable, pattern)
    )
    return None if allowed else f"The token does not allow subscribing to {shown(subject)}."


def deny(
    session: Session,
    subject: str,
    reason: str,
    out: list[Output],
    id: str | int | None = None,  # noqa: A002 - the name on the wire
) -> None:
    """Refuse a subscription."""
    status = Status(status=StatusName.SUBSCRIBE_DENY, subject=subject, reason=reason, id=id)
    out.append(Send(session.id, status))


def invalid_subject(error: InvalidSubjectError, id: str | int | None) -> Error:  # noqa: A002
    """The answer to a subject or pattern that is none."""
    return Error(code="invalid-subject", reason=str(error), id=id)
