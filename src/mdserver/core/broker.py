"""The broker: what one member does for its clients (docs/design.md).

Every method that changes something is part of a step: it takes its input and the time `now` (ns),
appends to the step's list of outputs, and returns without waiting. The path of a publication is:

- `received` takes the command, and returns a proposal for the log of the subject's group;
- `resolve` takes the outcome of the proposal, and answers the publisher;
- `Replica.committed` takes the entry, on every member, and delivers it to the subscribers there.

Outcome and entry are independent of each other: the publisher may be connected to another member
than the subscribers, and may be gone when the outcome comes.

A command that needs the verdict of an external authorizer waits outside the step, and holds back
the later commands of its session, but not those of others (`core.authorization`).

What an input asks for may be more than a step ought to do: a command with many subjects, a session
that ends with many subscriptions, a cache full of old messages. Each of these is done in portions,
with a timer for the next one, so that a step stays within some milliseconds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from mdserver.core.audit import (
    ACCESS,
    session_log,
)
from mdserver.core.authorization import (
    TOKEN_TIMER,
    PendingAuthorizations,
    Recheck,
    grant,
    stop_token_timer,
    token_expired,
    unexpired,
)
from mdserver.core.backfill import Backfill
from mdserver.core.cache import Cache
from mdserver.core.catch_up import CatchUp
from mdserver.core.claims import Claims
from mdserver.core.commands import (
    AnyCommand,
    Connect,
    Fetch,
    Malformed,
    Ping,
    Publish,
    Receipts,
    RenewToken,
    Resume,
    Subscribe,
    Unsubscribe,
)
from mdserver.core.conflation import Conflation
from mdserver.core.entitlement import ALL_BUT_RESERVED, Policy, same_token, within
from mdserver.core.events import (
    AnyEvent,
    Connected,
    Error,
    Move,
    Status,
    StatusName,
)
from mdserver.core.histories import Histories
from mdserver.core.inputs import (
    Authorized,
    Closed,
    Denied,
    Opened,
    RulesChanged,
    TimerDue,
    Verdict,
    Writability,
)
from mdserver.core.inspection import Inspection
from mdserver.core.interest import Interest
from mdserver.core.marks import Marks
from mdserver.core.outputs import Disconnect, Output, Send, SetTimer
from mdserver.core.proposal import Outcome, Proposal
from mdserver.core.publications import Publications
from mdserver.core.publishers import PublisherKeys
from mdserver.core.replica import Replica
from mdserver.core.session import Session, SessionEvent, SessionState, session_name
from mdserver.core.settings import BrokerSettings
from mdserver.core.statistics import (
    BrokerCounts,
    BrokerStatistics,
    SessionStatistics,
    SubjectStatistics,
)
from mdserver.core.subscriptions import Subscriptions, deny
from mdserver.limits import (
    CLOSE_BUSY,
    CLOSE_CONNECT_DENIED,
    CLOSE_MOVED,
    CLOSE_TOKEN_EXPIRED,
    KEEPALIVE_MS_MIN,
    NS_PER_MS,
    PINGS_WAITING_MAX,
    PROTOCOL_VERSION,
    STEP_PAUSE_MS,
)

if TYPE_CHECKING:
    import random

ENDING_TIMER = ("broker", "ending")


class Broker:
    """Sessions, their subscriptions and publications, over the member's cache.

    `trouble` says what is wrong with the journal, None if nothing is. Whether publications are
    refused for it is another matter (`Publications.refusing`).
    """

    def __init__(self, settings: BrokerSettings, history: str, rng: "random.Random") -> None:
        self.settings = settings
        self.trouble: str | None = None
        self._sessions: dict[int, Session] = {}
        self._publishers = PublisherKeys(settings.publisher_secret, rng)
        self._authorizations = PendingAuthorizations(settings)
        self._cache = Cache(settings)
        self._interest = Interest()
        self._conflation = Conflation(settings.conflated_at_once)
        self._histories = Histories(history, settings.groups)
        self._ending: deque[Session] = deque()
        """Sessions that ended with more subscriptions than one step ends."""
        backfill = Backfill(settings, self._cache, self._interest, self._histories)
        self._catch_up = CatchUp(settings, self._cache, self._interest, self._histories, backfill)
        self._subscriptions = Subscriptions(
            settings,
            self._cache,
            self._interest,
            self._conflation,
            self._histories,
            backfill,
            self._catch_up,
        )
        self.publications = Publications(settings, self._cache, self._histories)
        self._marks = Marks(self._catch_up, self._conflation)
        self.replica = Replica(
            settings,
            self._sessions,
            self._cache,
            self._interest,
            self._conflation,
            self._histories,
            backfill,
            self._catch_up,
            self._marks,
        )
        self.claims = Claims(settings, self._cache, self._interest, self._histories)
        self.inspection = Inspection(self._sessions, self._cache, self._interest, settings.groups)
        # The interface of the replica is that of the broker too. A method that only forwards would
        # cost each publication another call.
        self.committed = self.replica.committed
        self.reached = self.replica.reached
        self.forget_subjects = self.replica.forget_subjects
        self.reset = self.replica.reset
        self.rename = self.replica.rename
        self.export_group = self.replica.export_group
        self.import_group = self.replica.import_group
        self.history_of = self._histories.of_group
        self._handlers: dict[type, Callable[..., None]] = {
            Connect: self._connect,
            Subscribe: self._subscribe,
            Resume: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Publish: self.publications.publish,
            RenewToken: self._renew,
            Ping: self._ping,
            Receipts: self._receipts,
            Malformed: self._malformed,
            Fetch: self._fetch,
        }

    # -- Sessions ------------------------------------------------------------------------------

    def opened(self, input: Opened, now: int, out: list[Output]) -> None:  # noqa: A002
        """Begin a session for a new connection; nothing is sent before its first command."""
        session = self._sessions[input.session] = Session(input)
        session.address_allowed = within(input.address, self.settings.publish_networks)

    def writability(self, input: Writability, now: int, out: list[Output]) -> None:  # noqa: A002
        """Pause or resume the catch-up of a session whose client takes no more bytes, or does."""
        session = self._sessions.get(input.session)
        if session is not None:
            session.congested = not input.writable
            self._catch_up.pause(session, now, out)
            if input.writable:
                # The outbox may have conflated what waited in it, which changes the order of places
                # that the latest mark promised.
                self._marks.again(session, out)

    def counts(self) -> BrokerCounts:
        """Count what grows, in time proportional to the number of sessions."""
        return BrokerCounts(
            sessions=len(self._sessions),
            subscriptions=sum(len(one.subscriptions) for one in self._sessions.values()),
            subjects=len(self._cache),
            cached_messages=self._cache.messages,
            cache_bytes=self._cache.bytes,
        )

    def statistics(self) -> BrokerStatistics:
        """Return the state of this broker as a snapshot."""
        return BrokerStatistics(
            sessions=tuple(self._sessions),
            ending=tuple(session.id for session in self._ending),
            scheduled=self._conflation.scheduled,
            cache=self._cache.statistics(),
            interest=self._interest.statistics(),
            catch_up=self._catch_up.statistics(),
            authorizations=self._authorizations.statistics(),
        )

    def session_statistics(self, number: int) -> SessionStatistics | None:
        """Return the state of one session as a snapshot; None if the session has ended."""
        session = self._sessions.get(number)
        return None if session is None else self._catch_up.session_statistics(session)

    def subject_statistics(self, subject: str) -> SubjectStatistics | None:
        """Return the state of one subject as a snapshot; None if nothing is known of it."""
        state = self._cache.find(subject)
        return None if state is None else state.statistics()

    def rules_changed(self, input: RulesChanged, now: int, out: list[Output]) -> None:  # noqa: A002
        """Take over rules of the configuration, which was read again.

        A new token of the Basic entitlement ends the trust in the sessions that gave the old one
        until they renew theirs.
        """
        renewed = input.allow_token != self.settings.allow_token
        self.settings = attrs.evolve(
            self.settings, allow_token=input.allow_token, publish_networks=input.publish_networks
        )
        self.publications.settings = self.settings
        for session in self._sessions.values():
            if renewed and session.trusted:
                session.trusted = False
                self._guard_reserved(session)
                self._subscriptions.rights_changed(session, now, out)
            session.address_allowed = within(session.address, input.publish_networks)

    def _guard_reserved(self, session: Session) -> None:
        """Take `/__mdserver__/...` from what a session may read, unless a right names it.

        Under `Policy.BASIC` sessions that gave the token may read these subjects. Under
        `Policy.ASK` an authorizer that simply allows everything was not necessarily written with
        them in mind, so it has to grant them by name.
        """
        policy = self.settings.policy
        if policy is Policy.BASIC:
            session.readable = None if session.trusted else ALL_BUT_RESERVED
        elif policy is Policy.ASK and session.readable is None:
            session.readable = ALL_BUT_RESERVED

    def received(
        self, session: int, commands: Sequence[AnyCommand], now: int, out: list[Output]
    ) -> list[Proposal]:
        """Take commands of a session, in order; commands of a session that ended are dropped.

        Returns the proposals for the logs of the subject groups.
        """
        known = self._sessions.get(session)
        if known is None:
            return []
        # Members of enums as locals: CPython 3.11 takes as long as a call to look one up.
        connected, asks = SessionState.CONNECTED, self.settings.policy is Policy.ASK
        handlers = self._handlers
        for command in commands:
            if known.state is connected and not asks:
                handlers[type(command)](known, command, None, now, out)
            elif known.state is not SessionState.ENDED:
                self._take(known, command, now, out)
        return self.publications.take_proposals()

    def _take(self, session: Session, command: AnyCommand, now: int, out: list[Output]) -> None:
        """Handle a command, or have those parts of it wait that need an authorization."""
        if session.state is SessionState.OPENED:
            # `connect` may be left out: another first command stands for an empty one before it.
            first = command if isinstance(command, Connect) else Connect()
            self._begin(session, first, now, out)
            if first is command:
                return
        for part in self._authorizations.parts(command):
            if self._authorizations.may_go(session, part, out):
                self._handlers[type(part)](session, part, None, now, out)

    def _begin(self, session: Session, first: Connect, now: int, out: list[Output]) -> None:
        """Admit a session by its first command, or ask whether it may connect."""
        if self.settings.policy is Policy.ASK:
            session.transition(SessionEvent.AUTHORIZE)
            self._authorizations.hold(session, first, [("connect", first.token, None)], out)
        else:
            self._admit(session, first, None, now, out)

    def closed(self, input: Closed, now: int, out: list[Output]) -> None:  # noqa: A002
        """End the session of a connection that is gone."""
        session = self._sessions.pop(input.session, None)
        if session is None:
            return
        was_connected = session.state is SessionState.CONNECTED
        self.claims.ended(session, now, out)
        if session.state is not SessionState.ENDED:
            self._end(session, now, out, gone=True)
        if was_connected and self.settings.ask_each:
            self._authorizations.ask(session, "disconnect", out)
        if self.settings.audit_access:
            out.append(session_log(ACCESS, "disconnect", session, now, reason=input.reason))

    def _end(self, session: Session, now: int, out: list[Output], *, gone: bool) -> None:
        """End a session; `gone`: its connection is closed already."""
        session.transition(SessionEvent.END)
        self._authorizations.end(session)
        self._marks.end(session)
        # While the client is connected, nothing may follow the `Disconnect`, so all subscriptions
        # end in this step. Once it is gone, what is addressed to it reaches nobody, and they can
        # end in portions.
        while not self._subscriptions.end_some(session, now, out):
            if gone:
                self._ending.append(session)
                out.append(SetTimer(ENDING_TIMER, now + STEP_PAUSE_MS * NS_PER_MS))
                break
        stop_token_timer(session, out)

    def _disconnect(
        self, session: Session, code: int, reason: str, now: int, out: list[Output]
    ) -> None:
        """End a session, and close its connection with a code and a reason."""
        self._end(session, now, out, gone=False)
        out.append(Disconnect(session.id, code, reason))

    def authorized(
        self,
        input: Authorized,  # noqa: A002
        now: int,
        out: list[Output],
    ) -> list[Proposal]:
        """Take a verdict, and handle the commands that waited for it.

        Returns the proposals for the logs of the subject groups.
        """
        found = self._authorizations.authorized(input, out)
        if isinstance(found, Recheck):
            if isinstance(input.verdict, Denied):
                reason = input.verdict.reason
                self._subscriptions.revoke(found.session, found.subject, reason, now, out)
        elif found is not None:
            for held in self._authorizations.released(found):
                self._handlers[type(held.command)](found, held.command, held.verdict, now, out)
        return self.publications.take_proposals()

    # -- Commands --------------------------------------------------------------------------------

    def _send(self, session: Session, event: AnyEvent, out: list[Output]) -> None:
        out.append(Send(session.id, event))

    def _connect(
        self, session: Session, command: Connect, verdict: Verdict, now: int, out: list[Output]
    ) -> None:
        """Admit a session whose `connect` was authorized; refuse a second `connect`."""
        if session.state is SessionState.AUTHORIZING:
            self._admit(session, command, verdict, now, out)
            return
        reason = "`connect` may only be the first command of a session."
        self._send(session, Error(code="out-of-order", reason=reason, id=command.id), out)

    def _admit(
        self, session: Session, command: Connect, verdict: Verdict, now: int, out: list[Output]
    ) -> None:
        """Answer `connect`: admit the session with the rights of the verdict, or end it."""
        verdict = unexpired(verdict, now)
        if isinstance(verdict, Denied) and verdict.busy:
            self._disconnect(session, CLOSE_BUSY, verdict.reason, now, out)
            return
        publisher = ""
        if not isinstance(verdict, Denied):
            user = None if verdict is None else verdict.user
            admitted = self._publishers.admit(command, user, session.address)
            if isinstance(admitted, Denied):
                verdict = admitted
            else:
                publisher = admitted
            if session.idempotency_key:
                publisher = self._publishers.keyed(session.idempotency_key, user)
        if isinstance(verdict, Denied):
            status = Status(status=StatusName.CONNECT_DENY, reason=verdict.reason, id=command.id)
            self._send(session, status, out)
            self._disconnect(session, CLOSE_CONNECT_DENIED, verdict.reason, now, out)
            if self.settings.audit_access:
                reason = verdict.reason
                out.append(session_log(ACCESS, "connect-denied", session, now, reason=reason))
            return
        session.transition(SessionEvent.ADMIT)
        session.client = command.client
        session.external_token = command.external_token
        session.publisher = publisher
        session.trusted = same_token(command.token, self.settings.allow_token)
        # The client may ask for a shorter interval than the server's, but for none so short that
        # keepalives become a load.
        asked = command.keepalive_ms or 0
        longest = self.settings.keepalive // NS_PER_MS
        self._send(
            session,
            Connected(
                session=session_name(self.settings.member, session.id),
                member=self.settings.member,
                version=PROTOCOL_VERSION,
                history=self._histories.current,
                groups=self.settings.groups,
                keepalive_ms=max(min(asked or longest, longest), min(KEEPALIVE_MS_MIN, longest)),
                message_bytes_max=self.settings.message_bytes_max,
                publisher=publisher or None,
                publisher_key=self._publishers.key(publisher) if publisher else None,
            ),
            out,
        )
        grant(session, verdict, self.settings.renew_token_before, now, out)
        self._guard_reserved(session)
        if self.settings.audit_access:
            secure = session.secure
            out.append(session_log(ACCESS, "connect", session, now, secure=secure))

    def _renew(
        self, session: Session, command: RenewToken, verdict: Verdict, now: int, out: list[Output]
    ) -> None:
        """Answer `token`: take the rights of a new token, and end what they no longer allow.

        A token that is refused changes nothing: the old one holds until it expires.
        """
        if self.settings.policy is not Policy.ASK:
            trusted = same_token(command.token, self.settings.allow_token)
            if self.settings.policy is Policy.BASIC and not trusted:
                verdict = Denied("This is not the token that the configuration names.")
            else:
                session.trusted = trusted
                self._guard_reserved(session)
        else:
            verdict = unexpired(verdict, now)
        if isinstance(verdict, Denied):
            name = verdict.status or StatusName.TOKEN_INVALID
            self._send(session, Status(status=name, reason=verdict.reason, id=command.id), out)
            return
        self._send(session, Status(status=StatusName.TOKEN_UPDATED, id=command.id), out)
        if self.settings.policy is Policy.ASK:
            grant(session, verdict, self.settings.renew_token_before, now, out)
            self._guard_reserved(session)
            self._subscriptions.rights_changed(session, now, out)
        if self.settings.ask_each:
            self._authorizations.recheck_all(session, out)

    def _subscribe(
        self, session: Session, command: Subscribe, verdict: Verdict, now: int, out: list[Output]
    ) -> None:
        self._subscriptions.subscribe(session, command, verdict, now, out)

    def _unsubscribe(
        self, session: Session, command: Unsubscribe, _: Verdict, now: int, out: list[Output]
    ) -> None:
        self._subscriptions.unsubscribe(session, command, now, out)

    def _fetch(
        self, session: Session, command: Fetch, verdict: Verdict, now: int, out: list[Output]
    ) -> None:
        """Answer a fetch of one subject, if the client may read it."""
        if isinstance(verdict, Denied):
            deny(session, command.subject, verdict.reason, out)
        else:
            self._subscriptions.fetch(session, command, now, out)

    def _ping(
        self,
        session: Session,
        command: Ping,
        _: Verdict,
        now: int,
        out: list[Output],
    ) -> None:
        """Answer a ping, at once or when all that was asked for has been sent."""
        if not command.caught_up:
            self._send(session, session.pong(command.t, self._histories.current), out)
            if session.transport == "sse":
                self._marks.follow(session, out)
            return
        # `t` is a view of the payload that it came in. The pong may wait for long, so it takes a
        # copy instead of keeping the whole payload in memory.
        if not self._catch_up.caught_up(session, command.t.copy(), out):
            reason = f"At most {PINGS_WAITING_MAX} pings with `caught_up` may wait."
            self._send(session, Error(code="too-many-pings", reason=reason, id=command.id), out)

    def _receipts(
        self, session: Session, command: Receipts, _: Verdict, now: int, out: list[Output]
    ) -> None:
        self.claims.take(session, command, now, out)

    def _malformed(
        self,
        session: Session,
        command: Malformed,
        _: Verdict,
        now: int,
        out: list[Output],
    ) -> None:
        """Answer a command that could not be understood."""
        error = Error(code=command.code, reason=command.reason, id=command.id)
        self._send(session, error, out)

    # -- What the group logs say -----------------------------------------------------------------

    def resolve(self, outcomes: Iterable[Outcome], now: int, out: list[Output]) -> None:
        """Take the outcomes of proposals, and answer their publishers."""
        self.publications.resolve(outcomes, self._sessions, now, out)

    @property
    def history(self) -> str:
        """The history id that new sessions are given."""
        return self._histories.current

    # -- Timers ----------------------------------------------------------------------------------

    def timer(self, input: TimerDue, now: int, out: list[Output]) -> None:  # noqa: A002
        """Do what a timer was set for; a timer of a session that is gone is ignored."""
        match input.timer:
            case ("broker", "expire"):
                self.replica.expire(now, out)
            case ("broker", "ending"):
                self._end_more(now, out)
            case ("broker", "conflate"):
                self._marks.sent(self._conflation.due(now, out), out)
            case ("broker", "catch-up"):
                self._marks.settle(self._catch_up.due(now, out), out)
            case (_, name, number):
                session = self._sessions.get(int(number))
                if session is not None and session.state is SessionState.CONNECTED:
                    self._session_timer(session, name, now, out)

    def _session_timer(
        self, session: Session, name: str | int, now: int, out: list[Output]
    ) -> None:
        """End a session whose token expired, or for which this member lacks what it saw."""
        if name == TOKEN_TIMER:
            if token_expired(session, now, out):
                reason = "The token has expired: connect with a new one."
                self._send(session, Status(status=StatusName.TOKEN_EXPIRED, reason=reason), out)
                self._disconnect(session, CLOSE_TOKEN_EXPIRED, reason, now, out)
        elif self._catch_up.timed_out(session, now, out):
            self._send(session, Move(delay_ms=0, reason="rebalance"), out)
            reason = "This member is behind what you have seen: connect to another one."
            self._disconnect(session, CLOSE_MOVED, reason, now, out)

    def _end_more(self, now: int, out: list[Output]) -> None:
        """End some more subscriptions of the sessions whose clients are gone."""
        if self._subscriptions.end_some(self._ending[0], now, out):
            self._ending.popleft()
        if self._ending:
            out.append(SetTimer(ENDING_TIMER, now + STEP_PAUSE_MS * NS_PER_MS))
