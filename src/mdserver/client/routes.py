"""Finds the subscriptions of a client that get a message, and the subjects to hold for full ones.

Subscriptions may overlap: a subject is subscribed once at the server for all subscriptions that
name it, and a message goes to each subscription that it matches.
"""

from collections.abc import Iterable

from mdserver.client.subscription import Subscription
from mdserver.core.subjects import Pattern, parse_interest, segments_of
from mdserver.limits import CLIENT_POSITIONS_MAX


class Routes:
    """The subscriptions of a client by subject and pattern, in the order of subscription.

    `_found` caches the subscriptions of each subject of which messages came; every change empties
    it. `_slow` has, for each held subject, the full subscriptions for which it is held.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[Subscription, None]] = {}
        self._patterns: dict[str, Pattern] = {}
        self._found: dict[str, tuple[Subscription, ...]] = {}
        self._slow: dict[str, dict[Subscription, None]] = {}

    def __contains__(self, subject: str) -> bool:
        return subject in self._of

    def all(self) -> list[Subscription]:
        """Return each subscription once."""
        return list(dict.fromkeys(each for several in self._of.values() for each in several))

    def named(self, subject: str) -> list[Subscription]:
        """Return the subscriptions that name this subject or pattern."""
        return list(self._of.get(subject, ()))

    def add(self, subscription: Subscription) -> None:
        """Add a subscription.

        Raises InvalidSubjectError before anything is changed.
        """
        parsed = {one: parse_interest(one, segments_min=1) for one in subscription.subjects}
        self._found.clear()
        for subject, pattern in parsed.items():
            self._of.setdefault(subject, {})[subscription] = None
            if pattern is not None:
                self._patterns[subject] = pattern

    def remove(self, subject: str, subscription: Subscription) -> bool:
        """Remove a subscription of a subject; return whether no other one needs the subject."""
        self._found.clear()
        several = self._of.get(subject, {})
        several.pop(subscription, None)
        if several:
            return False
        self._of.pop(subject, None)
        self._patterns.pop(subject, None)
        return True

    def takers(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a message of this subject is for."""
        found = self._found.get(subject)
        if found is None:
            if len(self._found) >= CLIENT_POSITIONS_MAX:
                self._found.clear()
            found = self._found[subject] = self._search(subject)
        return found

    def _search(self, subject: str) -> tuple[Subscription, ...]:
        takers = dict(self._of.get(subject, {}))
        segments = segments_of(subject) if self._patterns else ()
        for text, pattern in self._patterns.items():
            if pattern.matches(segments):
                takers |= self._of[text]
        return tuple(takers)

    def overlapping(self, subjects: Iterable[str]) -> list[str]:
        """Return the subscribed subjects and patterns that share messages with these."""
        given = [(one, parse_interest(one, segments_min=1)) for one in subjects]
        return [
            there
            for there in self._of
            if any(
                _overlap(there, self._patterns.get(there), one, pattern) for one, pattern in given
            )
        ]

    def sharing(self, subject: str) -> Iterable[Subscription]:
        """Return the subscriptions whose messages may come through a subject or pattern."""
        if subject not in self._patterns:
            return self.takers(subject)
        return self.overlapped([subject])

    def overlapped(self, subjects: Iterable[str]) -> dict[Subscription, None]:
        """Return the subscriptions that share messages with these subjects and patterns."""
        names = self.overlapping(subjects)
        return dict.fromkeys(each for name in names for each in self._of[name])

    def hold(self, subscription: Subscription) -> list[str]:
        """Note that a subscription is full; return the subjects that are to be held now.

        Subjects that overlap it are held as well, because its messages may come through them.
        """
        held = []
        for subject in self.overlapping(subscription.subjects):
            full = self._slow.setdefault(subject, {})
            if not full:
                held.append(subject)
            full[subscription] = None
        return held

    def hold_again(self) -> list[str]:
        """Return the subjects that are to be held now because a subscription was added.

        It overlaps a full one, whose messages may come through it.
        """
        full = dict.fromkeys(each for several in self._slow.values() for each in several)
        return [subject for each in full for subject in self.hold(each)]

    def held(self, subjects: Iterable[str]) -> bool:
        """Return whether one of these subjects is held."""
        return any(subject in self._slow for subject in subjects)

    def release(self, subscription: Subscription) -> list[str]:
        """Note that a subscription has room again; return the subjects to be released now."""
        released = []
        for subject, full in list(self._slow.items()):
            if full.pop(subscription, subscription) is None and not full:
                del self._slow[subject]
                released.append(subject)
        return released


def _overlap(first: str, of_first: Pattern | None, second: str, of_second: Pattern | None) -> bool:
    """Return whether two subjects or patterns can match the same subject."""
    if of_first is not None and of_second is not None:
        return of_first.meets(of_second)
    if of_first is not None:
        return of_first.matches(segments_of(second))
    if of_second is not None:
        return of_second.matches(segments_of(first))
    return first == second
