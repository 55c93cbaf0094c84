"""The subscriptions of a client, which may overlap and share what the server sends.

The server brings a session one copy of a message, however many of its subscriptions match. So a
subject is subscribed once for all that name it, and each message goes to every subscription that it
matches. One that begins beside others joins them: it asks for what they have seen already, and only
it gets that again. Until the server says that it has brought all of that a join is unfinished, and
begins again after whatever came between.
"""

from collections.abc import Callable, Iterable

from mdserver.client.core import values as out
from mdserver.client.core.machine import ClientCore
from mdserver.client.core.receipts import ReceiptBook
from mdserver.client.message import Message, message_of
from mdserver.client.routes import Routes
from mdserver.client.subscription import Subscription


class SharedSubscriptions:
    """All subscriptions over one core.

    `perform` carries out what the core says, `clock` is in ns. `interruptions` counts what may keep
    something from a subscription for a while: a new connection, a pause, or a lack of room.
    """

    def __init__(
        self,
        core: ClientCore,
        perform: Callable[[list[out.Output]], None],
        clock: Callable[[], int],
        receipts: ReceiptBook | None = None,
    ) -> None:
        self._core = core
        self._perform = perform
        self._clock = clock
        self._receipts = receipts
        self._routes = Routes()
        self._conflations: dict[str, dict[Subscription, int]] = {}
        self._marks = 0
        self._joining: dict[int, Subscription] = {}
        """By the mark that says from when on a subscription takes what comes."""
        self._histories: dict[Subscription, int] = {}
        """Those whose joins are unfinished, with the history that they want."""
        self._interrupted: dict[Subscription, None] = {}
        """Those of them that have to begin again."""
        self._finishing: tuple[int, list[Subscription]] | None = None
        """The mark that says that these joins are finished, unless something comes between."""
        self._asked: dict[int, None] = {}
        self.interruptions = 0

    def all(self) -> list[Subscription]:
        """Return each subscription once."""
        return self._routes.all()

    def add(self, subscription: Subscription, history: int, conflation_ms: int) -> None:
        """Begin a subscription. Raises InvalidSubjectError before anything is changed."""
        again = self._routes.overlapping(subscription.subjects)
        self._routes.add(subscription)
        new = [subject for subject in subscription.subjects if subject not in again]
        if self._receipts is not None and new:
            self._receipts.subscribed(new, conflated=conflation_ms > 0)
        for subject in subscription.subjects:
            self._conflations.setdefault(subject, {})[subscription] = conflation_ms
        if again:
            subscription.join()
            self._histories[subscription] = history
            self._join(subscription)
        else:
            subjects = subscription.subjects
            self._perform(
                self._core.subscribe(subjects, history=history, conflation_ms=conflation_ms)
            )

    def _join(self, subscription: Subscription) -> None:
        """Subscribe beside what overlaps: it is asked for again, as far as this one needs it.

        That is the case beside a pattern, which brings nothing of more exact subscriptions.
        The mark comes back when the server has got so far; what comes from then on is for the
        new subscription as well.
        """
        self._marks += 1
        self._joining[self._marks] = subscription
        self._perform(self._core.report((), -self._marks))
        history = self._histories[subscription]
        patterns = [one for one in subscription.subjects if "*" in one]
        for subject in dict.fromkeys([*self._routes.overlapping(patterns), *subscription.subjects]):
            conflation_ms = min(self._conflations[subject].values())
            self._perform(
                self._core.subscribe(
                    [subject], history=history, conflation_ms=conflation_ms, replay=True
                )
            )
        if not self._open_to(subscription):
            self._interrupted[subscription] = None

    def _open_to(self, subscription: Subscription) -> bool:
        """Return whether what the server brings reaches a subscription."""
        return self._core.receiving and not self.held(subscription)

    def interrupt(self) -> None:
        """Note that something that is on its way may not reach its subscription."""
        self.interruptions += 1
        self._interrupted |= dict.fromkeys(self._histories)
        self._finishing = None

    def go_on(self) -> None:
        """Begin the joins again that were interrupted, as far as nothing keeps them back."""
        for subscription in list(self._interrupted):
            if self._open_to(subscription):
                del self._interrupted[subscription]
                self._join(subscription)

    def _finish(self) -> None:
        """Ask when the joins under way are finished; one question at a time."""
        joins = [one for one in self._histories if one.started and one not in self._interrupted]
        if joins and self._finishing is None:
            self._finishing = self.ask_caught_up(), joins

    def remove(self, subscription: Subscription, subjects: Iterable[str]) -> None:
        """End a subscription, wholly or for some of its subjects."""
        self.release(subscription)
        subjects = list(subjects)
        gone = [one for one in subjects if self._forget(subscription, one)]
        self._perform(self._core.unsubscribe(gone))
        if self._receipts is not None:
            self._receipts.unsubscribed(gone, self._clock())
        for subject in subjects:
            subscription.drop(subject)
        if not subscription.subjects:
            self._forget_join(subscription)

    def unsubscribe(self, subject: str) -> None:
        """End all subscriptions of a subject or pattern."""
        for subscription in self._routes.named(subject):
            self.remove(subscription, [subject])

    def _forget(self, subscription: Subscription, subject: str) -> bool:
        """Drop one of the references to a subject; whether it was the last."""
        several = self._conflations.get(subject, {})
        several.pop(subscription, None)
        if not several:
            self._conflations.pop(subject, None)
        return self._routes.remove(subject, subscription)

    def _forget_join(self, subscription: Subscription) -> None:
        self._histories.pop(subscription, None)
        self._interrupted.pop(subscription, None)

    def release(self, subscription: Subscription) -> None:
        """Go on with a subscription that has room again."""
        self._perform(self._core.release(self._routes.release(subscription)))
        self.go_on()

    # Whether a subscription has got what comes before its live messages

    def held(self, subscription: Subscription) -> bool:
        """Return whether something of it is held, for a lack of room."""
        return self._routes.held(subscription.subjects)

    def ask_caught_up(self) -> int:
        """Ask the server to say when it has brought that of all subscriptions; gives a mark."""
        self._marks += 1
        self._asked[self._marks] = None
        self._perform(self._core.ask_caught_up(-self._marks))
        return self._marks

    def answered(self, mark: int) -> bool:
        """Return whether a question is answered, or was put on an earlier connection."""
        return mark not in self._asked

    # What the core says

    def connected(self) -> bool:
        """Note a new connection; returns whether `go_on` is to follow."""
        self.interrupt()
        self._joining.clear()
        self._asked.clear()
        return bool(self._interrupted)

    def subscribed(self, output: out.Subscribed) -> None:
        """Confirm subjects to those that subscribed to them."""
        for subject in output.subjects:
            for subscription in self._routes.named(subject):
                if subscription.started:
                    subscription.confirm(subject)

    def refused(self, output: out.Refused) -> None:
        """End what the server refuses."""
        for subject in output.subjects:
            for subscription in self._routes.named(subject):
                self._forget(subscription, subject)
                subscription.refuse(subject, output.reason)
                if not subscription.subjects:
                    self._forget_join(subscription)

    def reported(self, mark: int) -> None:
        """Note that the server has got as far as one of the marks."""
        joined = self._joining.pop(mark, None)
        if joined is not None:
            joined.started = True
        self._asked.pop(mark, None)
        if self._finishing is not None and self._finishing[0] == mark:
            for subscription in self._finishing[1]:
                self._forget_join(subscription)
            self._finishing = None
        self._finish()

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
                self._perform(self._core.hold(self._routes.hold(subscription)))
                self.interrupt()
