"""Subscriptions from their command to their end: what a subscriber gets first, then live."""

from collections.abc import Iterable, Iterator, Sequence

from mdserver.core.audit import ACCESS, PRESENCE, session_log
from mdserver.core.cache import Cache, SubjectState
from mdserver.core.commands import Fetch, PositionAfter, Subscribe, Unsubscribe
from mdserver.core.conflation import Conflation, floored
from mdserver.core.entitlement import Policy, permits, permits_some
from mdserver.core.events import (
    Delivery,
    Error,
    Fetched,
    MissingRange,
    Reset,
    Status,
    StatusName,
    WirePosition,
)
from mdserver.core.inputs import Denied, Grants
from mdserver.core.interest import Interest
from mdserver.core.message import Entry, MessageType, Position
from mdserver.core.outputs import CancelTimer, Output, Send, SetTimer
from mdserver.core.recovery import Histories, Lost, Missed, recover
from mdserver.core.session import Session, Subscription, Waiting
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import Pattern, parse_interest, shown, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.limits import BEHIND_WAIT_S, NS_PER_MS, NS_PER_S


class Subscriptions:
    """The subscriptions of all sessions, over the member's cache and interest."""

    def __init__(
        self,
        settings: BrokerSettings,
        cache: Cache,
        interest: Interest,
        conflation: Conflation,
        histories: Histories,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._conflation = conflation
        self._histories = histories
        self._waiting: dict[str, dict[int, Session]] = {}

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
                pattern = parse_interest(subject, self._settings.subject_segments_min)
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
        return None

    def _add(self, subscription: Subscription, now: int, out: list[Output]) -> None:
        session = subscription.session
        held = session.subscriptions.get(subscription.subject)
        if held is not None:
            self._let_go(held, out)
        elif self._settings.presence:
            out.append(session_log(PRESENCE, "join", session, now, subject=subscription.subject))
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
        positions = self._positions(session, command.positions or {}, accepted, out)
        for subscription in accepted:
            if self._settings.policy is Policy.ASK:
                allow = Status(
                    status=StatusName.SUBSCRIBE_ALLOW, subject=subscription.subject, id=command.id
                )
                out.append(Send(session.id, allow))
            if subscription.pattern is None:
                state = self._cache.find(subscription.subject)
                after = positions.get(subscription.subject)
                self._bring(subscription, subscription.subject, state, after, command.history,
                            now, out)  # fmt: skip
                continue
            # One that was matched by a more exact subscription came, or comes, by that.
            for state in list(self._cache.matching(subscription.pattern)):
                if self._interest.chosen(session, state.subject) is subscription:
                    after = positions.pop(state.subject, positions.get(subscription.subject))
                    self._bring(subscription, state.subject, state, after, command.history,
                                now, out)  # fmt: skip
        self._await_unknown(session, positions, accepted, now, out)

    def _positions(
        self,
        session: Session,
        positions: dict[str, PositionAfter],
        accepted: Sequence[Subscription],
        out: list[Output],
    ) -> dict[str, Position]:
        """The positions that can be used; sends a reset for those of another history."""
        named = dict.fromkeys(subscription.subject for subscription in accepted)
        usable: dict[str, Position] = {}
        foreign: list[str] = []
        for subject, after in positions.items():
            if subject not in named and not self._covers(session, subject, named):
                continue
            if self._histories.know(subject, after.history):
                usable[subject] = Position(after.epoch, after.seq)
            else:
                foreign.append(subject)
        if foreign:
            out.append(Send(session.id, Reset(history=self._histories.current, subjects=foreign)))
        return usable

    def _covers(self, session: Session, subject: str, named: dict[str, None]) -> bool:
        try:
            validate_subject(subject, self._settings.subject_segments_min)
        except InvalidSubjectError:
            return False
        chosen = self._interest.chosen(session, subject)
        return chosen is not None and chosen.pattern is not None and chosen.subject in named

    def _await_unknown(
        self,
        session: Session,
        positions: dict[str, Position],
        accepted: Sequence[Subscription],
        now: int,
        out: list[Output],
    ) -> None:
        """Positions of subjects under a pattern that this member never heard of."""
        named = dict.fromkeys(subscription.subject for subscription in accepted)
        for subject, after in positions.items():
            if subject not in named:
                subscription = self._interest.chosen(session, subject)
                assert subscription is not None
                self._bring(subscription, subject, None, after, 0, now, out)

    def _bring(
        self,
        subscription: Subscription,
        subject: str,
        state: SubjectState | None,
        after: Position | None,
        history: int,
        now: int,
        out: list[Output],
    ) -> None:
        """What comes before the live messages of one subject."""
        session, match = subscription.session.id, subscription.match
        if after is not None:
            self._recover(subscription, subject, state, after, now, out)
        elif state is not None and history:
            entries = list(self._cache.entries(state, now))[-history:]
            bring = deliveries(entries, MessageType.HISTORICAL, match)
            out.extend(Send(session, delivery) for delivery in bring)
        else:
            self._send_snapshot(session, state, match, now, out)

    def _send_snapshot(
        self, session: int, state: SubjectState | None, match: str | None, now: int,
        out: list[Output],
    ) -> None:  # fmt: skip
        if state is None or not self._settings.publish_snapshot:
            return
        snapshot = self._cache.snapshot(state, now)
        if snapshot is not None:
            out.append(Send(session, snapshot.delivery(match)))

    def _recover(
        self,
        subscription: Subscription,
        subject: str,
        state: SubjectState | None,
        after: Position,
        now: int,
        out: list[Output],
    ) -> None:
        session, match = subscription.session, subscription.match
        entries = () if state is None else self._cache.entries(state, now)
        found = recover(state, entries, after)
        if isinstance(found, Missed):
            out.append(Send(session.id, Status(status=StatusName.DATA_SYNC, subject=subject)))
            bring = deliveries(found.entries, MessageType.RECOVERED, match, after)
            out.extend(Send(session.id, delivery) for delivery in bring)
        elif isinstance(found, Lost):
            out.append(Send(session.id, self._resync(subject, found)))
            self._send_snapshot(session.id, state, match, now, out)
        else:
            self._wait(Waiting(subscription, after), subject, now, out)

    def taken_over(
        self, state: SubjectState, lost: Lost | None, now: int, out: list[Output]
    ) -> None:
        """Another member's memory of a subject replaced this one's: bring subscribers up to it.

        `lost` is the range that this member missed, None where it knew nothing of the subject.
        """
        for session, match in self._interest.audience(state.subject).all():
            if lost is not None:
                out.append(Send(session, self._resync(state.subject, lost)))
            self._send_snapshot(session, state, match, now, out)

    def _resync(self, subject: str, lost: Lost) -> Status:
        return Status(
            status=StatusName.DATA_RESYNC,
            subject=subject,
            missing=self.missing(subject, lost),
        )

    def missing(self, subject: str, lost: Lost) -> MissingRange:
        """A missing range as clients see it."""
        history = self._histories.of(subject)
        return MissingRange(
            WirePosition(history, lost.first.epoch, lost.first.seq),
            WirePosition(history, lost.last.epoch, lost.last.seq),
        )

    def _wait(self, waiting: Waiting, subject: str, now: int, out: list[Output]) -> None:
        session = waiting.subscription.session
        if session.waiting is None:
            session.waiting = {}
            timer = ("broker", "behind", session.id)
            out.append(SetTimer(timer, now + BEHIND_WAIT_S * NS_PER_S))
        session.waiting[subject] = waiting
        self._waiting.setdefault(subject, {})[session.id] = session
        self._interest.waiting_changed(subject)

    def applied(self, state: SubjectState, now: int, out: list[Output]) -> None:
        """A subject went on: let those go on who waited for it."""
        sessions = self._waiting.get(state.subject)
        if sessions is None:
            return
        for session in list(sessions.values()):
            assert session.waiting is not None
            waiting = session.waiting[state.subject]
            if waiting.after.seq <= state.seq:
                self._stop_waiting(session, state.subject, out)
                self._recover(waiting.subscription, state.subject, state, waiting.after, now, out)

    def _stop_waiting(self, session: Session, subject: str, out: list[Output]) -> None:
        assert session.waiting is not None
        del session.waiting[subject]
        if not session.waiting:
            session.waiting = None
            out.append(CancelTimer(("broker", "behind", session.id)))
        sessions = self._waiting[subject]
        del sessions[session.id]
        if not sessions:
            del self._waiting[subject]
        self._interest.waiting_changed(subject)

    def unsubscribe(
        self, session: Session, command: Unsubscribe, now: int, out: list[Output]
    ) -> None:
        """End subscriptions; one that is not there is no error."""
        for subject in dict.fromkeys(command.subjects):
            subscription = session.subscriptions.get(subject)
            if subscription is not None:
                self._end(subscription, now, out)
                if self._settings.audit_access:
                    log = session_log(ACCESS, "unsubscribe", session, now, subject=subject)
                    out.append(log)
                continue
            try:
                parse_interest(subject, self._settings.subject_segments_min)
            except InvalidSubjectError as error:
                out.append(Send(session.id, invalid_subject(error, command.id)))

    def _end(self, subscription: Subscription, now: int, out: list[Output]) -> None:
        session, subject = subscription.session, subscription.subject
        del session.subscriptions[subject]
        self._interest.remove(subscription)
        self._let_go(subscription, out)
        if self._settings.presence:
            out.append(session_log(PRESENCE, "leave", session, now, subject=subject))

    def _let_go(self, subscription: Subscription, out: list[Output]) -> None:
        """Forget what was held back for a subscription."""
        self._conflation.drop(subscription)
        for subject, waiting in list((subscription.session.waiting or {}).items()):
            if waiting.subscription is subscription:
                self._stop_waiting(subscription.session, subject, out)

    def end_all(self, session: Session, now: int, out: list[Output]) -> None:
        """The session ends."""
        for subscription in list(session.subscriptions.values()):
            self._end(subscription, now, out)

    def revoke(
        self, session: Session, subject: str, reason: str, now: int, out: list[Output]
    ) -> None:
        """The right to a subscription is gone."""
        subscription = session.subscriptions.get(subject)
        if subscription is not None:
            self._end(subscription, now, out)
            deny(session, subject, reason, out)

    def rights_changed(self, session: Session, now: int, out: list[Output]) -> None:
        """End what the session's rights no longer carry."""
        self._interest.rights_changed()
        for subject, subscription in list(session.subscriptions.items()):
            denial = may_subscribe(session, subject, subscription.pattern)
            if denial is not None:
                self.revoke(session, subject, denial, now, out)

    def reset(
        self, session: Session, history: str, subjects: Iterable[str], out: list[Output]
    ) -> None:
        """Tell a session that the numbering of these subscriptions' subjects starts anew."""
        named = list(subjects)
        if named:
            out.append(Send(session.id, Reset(history=history, subjects=named)))
        for subject, waiting in list((session.waiting or {}).items()):
            if waiting.subscription.subject in named:
                self._stop_waiting(session, subject, out)

    def fetch(self, session: Session, command: Fetch, now: int, out: list[Output]) -> None:
        """Read a subject once."""
        try:
            validate_subject(command.subject, self._settings.subject_segments_min)
        except InvalidSubjectError as error:
            out.append(Send(session.id, invalid_subject(error, None)))
            return
        denial = may_subscribe(session, command.subject, None)
        if denial is not None:
            deny(session, command.subject, denial, out)
            return
        out.append(Send(session.id, self._fetched(command, now)))

    def _fetched(self, command: Fetch, now: int) -> Fetched:
        state = self._cache.find(command.subject)
        entries = [] if state is None else list(self._cache.entries(state, now))
        if command.history is not None:
            kept = entries[-command.history :] if command.history > 0 else []
            return Fetched(list(deliveries(kept, MessageType.HISTORICAL)))
        if command.after is not None:
            found = recover(state, entries, command.after)
            if isinstance(found, Lost):
                return Fetched(self._snapshot_of(state, now), self.missing(command.subject, found))
            missed = found.entries if isinstance(found, Missed) else ()
            return Fetched(list(deliveries(missed, MessageType.RECOVERED, None, command.after)))
        return Fetched(self._snapshot_of(state, now))

    def _snapshot_of(self, state: SubjectState | None, now: int) -> list[Delivery]:
        snapshot = None if state is None else self._cache.snapshot(state, now)
        return [] if snapshot is None else [snapshot.delivery()]

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


def deliveries(
    entries: Iterable[Entry],
    type: MessageType,  # noqa: A002 - the name on the wire
    match: str | None = None,
    before: Position | None = None,
) -> Iterator[Delivery]:
    """Cached messages for one reader, in order; `before` is the position before the first one.

    Where a number does not follow the one before it, the message says which one that was.
    """
    for entry in entries:
        gap = before is not None and before.seq and entry.seq != before.seq + 1
        yield Delivery(entry, type, match, before if gap else None)
        before = Position(entry.epoch, entry.seq)
