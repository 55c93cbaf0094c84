"""The subscriptions of a client, which may overlap and share what the server sends.

The server sends a session one copy of a message, however many of its subscriptions match. So the
client subscribes to a subject once for all subscriptions that name it, and hands each message to
every subscription that it matches.

A subscription that overlaps others when it begins *joins* them: it must get a snapshot or history
that the others have had before. The states of a join:

    WAITING   --- the pong of the first ping ------------------->  STARTED
    STARTED   --- the pong of a second ping, with `caught_up` --->  FINISHED
    WAITING, STARTED  --- an interruption ---------------------->  INTERRUPTED
    INTERRUPTED  --- messages can come again ------------------->  WAITING

- WAITING: a ping with a mark was sent. The commands after it subscribe to the overlapping subjects
  again, with `replay`. What arrives before the pong was sent before the join began, so the new
  subscription takes nothing yet.
- STARTED: the subscription takes what arrives. Messages that the others have had before go to it
  alone (`DeliverMessages.repeated`).
- FINISHED: everything that precedes live messages has come.
- INTERRUPTED: a new connection, a pause or a full buffer may have kept messages from the
  subscription, or a subject that was to bring some has ended, so the answers to earlier pings prove
  nothing. The join starts over. A subscription that had started goes on taking messages, and drops
  those that it got before, so nothing is delivered twice.
"""

from collections.abc import Callable, Iterable

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.phases import Phase
from mdserver.client.core.receipts import ReceiptBook
from mdserver.client.message import Message, message_of
from mdserver.client.routes import Routes
from mdserver.client.subscription import Subscription
from mdserver.client.waiting import ClientStanding


class SharedSubscriptions:
    """All subscriptions of one client.

    `perform` carries out outputs of the core; `clock` returns the time in ns; `standing` wakes the
    tasks that wait. `interruptions` counts the events that may keep messages from a subscription
    for a while, or take the place of an earlier command: a new connection, a pause, a full buffer,
    or a join.

    The core gets the marks of this class as negative numbers, which tells them from the marks of
    receipts.
    """

    def __init__(
        self,
        core: ClientCore,
        perform: Callable[[list[out.Output]], None],
        standing: ClientStanding,
        clock: Callable[[], int],
        receipts: ReceiptBook | None = None,
    ) -> None:
        self._core = core
        self._perform = perform
        self.standing = standing
        self._clock = clock
        self._receipts = receipts
        self._routes = Routes()
        self._conflations: dict[Subscription, int] = {}
        self._marks = 0
        self._joining: dict[int, Subscription] = {}
        """The joins that wait to start, by their mark."""
        self._histories: dict[Subscription, int] = {}
        """The subscriptions with an unfinished join, and the history that they want."""
        self._interrupted: dict[Subscription, None] = {}
        """The unfinished joins that have to begin again."""
        self._finishing: tuple[int, list[Subscription]] | None = None
        """The mark whose answer finishes these joins; None after an interruption."""
        self._asked: dict[int, None] = {}
        """The marks of the question that is under way and of the one after it, at most two."""
        self.interruptions = 0

    def all(self) -> list[Subscription]:
        """Return each subscription once."""
        return self._routes.all()

    def add(self, subscription: Subscription, history: int, conflation_ms: int) -> None:
        """Begin a subscription, as a join if it overlaps others.

        Raises InvalidSubjectError if a subject is invalid; nothing is changed then.
        """
        again = self._routes.overlapping(subscription.subjects)
        self._routes.add(subscription)
        new = [subject for subject in subscription.subjects if subject not in again]
        if self._receipts is not None and new:
            self._receipts.subscribed(new, conflated=conflation_ms > 0)
        self._conflations[subscription] = conflation_ms
        if again:
            subscription.join(history)
            self._histories[subscription] = history
            self._join(subscription)
        else:
            subjects = subscription.subjects
            self._perform(
                self._core.subscribe(subjects, history=history, conflation_ms=conflation_ms)
            )
        self._hold(self._routes.hold_again())

    def _join(self, subscription: Subscription) -> None:
        """Send the mark, and subscribe again to everything that brings messages of a subscription.

        For a pattern these are also the subscriptions that overlap it, because the server sends a
        message by the most exact subscription alone. What a command brings may take the place of
        what an earlier one was to bring, so questions that were asked before it prove nothing.
        """
        self.interruptions += 1
        self._finishing = None
        self._marks += 1
        self._joining[self._marks] = subscription
        self._perform(self._core.report((), -self._marks))
        history = self._histories[subscription]
        patterns = [one for one in subscription.subjects if "*" in one]
        for subject in dict.fromkeys([*self._routes.overlapping(patterns), *subscription.subjects]):
            shortest = min(self._conflations[each] for each in self._routes.sharing(subject))
            self._perform(
                self._core.subscribe(
                    [subject], history=history, conflation_ms=shortest, replay=True
                )
            )
        if not self._open_to(subscription):
            self._interrupted[subscription] = None

    def _open_to(self, subscription: Subscription) -> bool:
        """Return whether messages from the server reach a subscription now."""
        return self._core.receiving and not self.held(subscription)

    def interrupt(self) -> None:
        """Note that messages on their way may not reach their subscription.

        Every unfinished join has to start over.
        """
        self.interruptions += 1
        self._interrupted |= dict.fromkeys(self._histories)
        self._finishing = None

    def go_on(self) -> None:
        """Start interrupted joins over, except those that messages still cannot reach."""
        for subscription in list(self._interrupted):
            if self._open_to(subscription):
                del self._interrupted[subscription]
                self._join(subscription)

    def _finish(self) -> None:
        """Ask the server when the started joins have caught up, one question at a time."""
        joins = [one for one in self._histories if one.started and one not in self._interrupted]
        if joins and self._finishing is None:
            self._finishing = self.ask_caught_up(), joins

    def remove(self, subscription: Subscription, subjects: Iterable[str]) -> None:
        """End a subscription for these of its subjects.

        A subject is unsubscribed at the server when no other subscription names it.
        """
        self.release(subscription)
        subjects = list(subjects)
        gone = [one for one in subjects if self._routes.remove(one, subscription)]
        self._perform(self._core.unsubscribe(gone))
        if self._receipts is not None:
            self._receipts.unsubscribed(gone, self._clock())
        for subject in subjects:
            subscription.drop(subject)
        self._forget_ended(subscription)
        self._join_without(gone)
        self.standing.changed()

    def _join_without(self, gone: Iterable[str]) -> None:
        """Start the joins over that these subjects, which ended, were to bring messages for."""
        for subscription in self._routes.overlapped(gone) if self._histories else ():
            if subscription in self._histories:
                self._interrupted[subscription] = None
                self._finishing = None
        self.go_on()

    def unsubscribe(self, subject: str) -> None:
        """End all subscriptions of a subject or pattern."""
        for subscription in self._routes.named(subject):
            self.remove(subscription, [subject])

    def _forget_ended(self, subscription: Subscription) -> None:
        if not subscription.subjects:
            self._conflations.pop(subscription, None)
            self._forget_join(subscription)

    def _forget_join(self, subscription: Subscription) -> None:
        self._histories.pop(subscription, None)
        self._interrupted.pop(subscription, None)

    def _hold(self, subjects: list[str]) -> None:
        if subjects:
            self._perform(self._core.hold(subjects))
            self.interrupt()

    def release(self, subscription: Subscription) -> None:
        """Receive the messages of a subscription again, which has room for them."""
        subscription.released()
        self._perform(self._core.release(self._routes.release(subscription)))
        self.go_on()
        self.standing.changed()

    # Whether a subscription has got what precedes its live messages

    def held(self, subscription: Subscription) -> bool:
        """Return whether a subject of a subscription is held, because a buffer is full."""
        return self._routes.held(subscription.subjects)

    def ask_caught_up(self) -> int:
        """Ask the server when all subscriptions have caught up; return the mark of the question.

        At most one question is under way, because a server accepts only a few at once. The next one
        is sent when that is answered, and serves every caller that asked meanwhile. None of them
        loses time by this: each question is about all subscriptions, so a later one is never
        answered before an earlier one.
        """
        if len(self._asked) < 2:
            self._marks += 1
            self._asked[self._marks] = None
            if len(self._asked) == 1:
                self._perform(self._core.ask_caught_up(-self._marks))
        return next(reversed(self._asked))

    async def caught_up(self, subscription: Subscription) -> None:
        """Wait until a subscription has got everything that precedes its live messages.

        The answer of the server counts only if nothing kept messages from the subscription after
        the question: no full buffer, no pause, no new connection and no join. Otherwise ask again.
        Raises what `ClientStanding.wait_until` raises.
        """
        answered = False
        while not answered:
            await self.standing.wait_until(
                lambda: self._core.phase is Phase.UP and not self.held(subscription)
            )
            mark, since = self.ask_caught_up(), self.interruptions
            await self.standing.wait_until(
                lambda mark=mark, since=since: (  # type: ignore[misc]
                    self.answered(mark) or self.interruptions != since
                )
            )
            answered = self.interruptions == since

    def answered(self, mark: int) -> bool:
        """Return whether a mark was answered, or lost with an earlier connection."""
        return mark not in self._asked

    # What the core says

    def connected(self) -> bool:
        """Note a new connection; return whether joins wait for `go_on`."""
        self.interrupt()
        self._joining.clear()
        self._asked.clear()
        return bool(self._interrupted)

    def subscribed(self, output: out.Subscribed) -> None:
        """Confirm subjects to their subscriptions, except to joins that have not started.

        The confirmation may answer the command of an earlier subscription to the same subject.
        """
        for subject in output.subjects:
            for subscription in self._routes.named(subject):
                if subscription.started:
                    subscription.confirm(subject)
        self.standing.changed()

    def refused(self, output: out.Refused) -> None:
        """End the subjects that the server refuses."""
        for subject in output.subjects:
            for subscription in self._routes.named(subject):
                self._routes.remove(subject, subscription)
                subscription.refuse(subject, output.reason)
                self._forget_ended(subscription)
        self._join_without(output.subjects)
        self.standing.changed()

    def reported(self, mark: int) -> None:
        """Handle the answer to a mark: start or finish the joins that wait for it.

        The question after an answered one is sent now.
        """
        joined = self._joining.pop(mark, None)
        if joined is not None:
            joined.started = True
        if mark in self._asked:
            del self._asked[mark]
            for waiting in self._asked:
                self._perform(self._core.ask_caught_up(-waiting))
        if self._finishing is not None and self._finishing[0] == mark:
            for subscription in self._finishing[1]:
                self._forget_join(subscription)
                subscription.joined()
            self._finishing = None
        self._finish()
        self.standing.changed()

    def deliver(self, output: out.DeliverMessages) -> None:
        """Hand messages to all subscriptions that they match; hold those that are full."""
        batches: dict[Subscription, list[Message]] = {}
        history, repeated = self._core.positions.history, output.repeated
        for event in output.messages:
            message: Message | None = None
            for subscription in self._routes.takers(event.subject):
                if subscription.wants(event, history, repeated=repeated):
                    message = message or message_of(event)
                    batches.setdefault(subscription, []).append(message)
            if message is not None and self._receipts is not None and not repeated:
                match = event.match or event.subject
                self._receipts.delivered(event, match, history, self._clock())
        for subscription, batch in batches.items():
            if subscription.put(batch):
                self._hold(self._routes.hold(subscription))
