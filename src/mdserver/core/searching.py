"""The search for the subjects of patterns, in portions that fit a step.

A search is a generator that is advanced for a bounded amount of `Work` and continued in a later
step. The cache may change in between. Subjects that are added meanwhile are noted by the cache
(`Cache.newcomers`) and looked at in the end, so a subject is found whether it was there before the
search or came during it.
"""

from collections.abc import Iterator

from mdserver.core.cache import Cache
from mdserver.core.interest import Interest
from mdserver.core.outputs import Output
from mdserver.core.session import CatchUpRequest, Subscription
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import Pattern, segments_of, validate_subject
from mdserver.errors import InvalidSubjectError


class Work:
    """The budget of a step for work that may also be done later; `left` is what remains of it.

    Each step has a list of outputs of its own, which identifies the step.
    """

    __slots__ = ("_earlier", "_most", "_out", "left")

    def __init__(self, most: int) -> None:
        self.left = self._most = most
        self._out: list[Output] | None = None
        self._earlier = 0

    @property
    def done(self) -> int:
        """The units of work done in all steps so far."""
        return self._earlier + self._most - self.left

    def begin(self, out: list[Output]) -> None:
        """Fill the budget if this is another step."""
        if out is not self._out:
            self._out = out
            self._earlier = self.done
            self.left = self._most


class Search:
    """The search for one subscription, and the subjects that it found so far.

    `foreign` are subjects of which the command named a position under another history id.
    `newcomers` is how many of `Cache.newcomers` the search has looked at.
    """

    __slots__ = ("candidates", "foreign", "found", "newcomers")

    def __init__(self, newcomers: int) -> None:
        self.candidates: Iterator[str | None] = iter(())
        self.found: dict[str, None] = {}
        self.foreign: list[str] = []
        self.newcomers = newcomers


def is_one_of(subject: str, pattern: Pattern, settings: BrokerSettings) -> bool:
    """Return whether this is a valid subject, and one that the pattern matches."""
    try:
        validate_subject(subject, settings.subject_segments_min, settings.subject_segments_max)
    except InvalidSubjectError:
        return False
    return pattern.matches(segments_of(subject))


class Searches:
    """The searches that are under way, at most one for each subscription.

    The subjects of a pattern are looked for in the cache and among the positions of the command.
    """

    def __init__(
        self, settings: BrokerSettings, cache: Cache, interest: Interest, work: Work
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._interest = interest
        self._work = work
        self._searches: dict[Subscription, Search] = {}

    def __len__(self) -> int:
        return len(self._searches)

    def get(self, subscription: Subscription) -> Search | None:
        """Return the search for a subscription, if there is one."""
        return self._searches.get(subscription)

    def advance(self, request: CatchUpRequest, most: int) -> bool:
        """Continue a search for at most `most` units of work, and return whether it is complete."""
        search = self._searches.get(request.subscription)
        if search is None:
            if self._cache.newcomers is None:
                self._cache.newcomers = []
            search = Search(len(self._cache.newcomers))
            search.candidates = self._candidates(request, search)
            self._searches[request.subscription] = search
        end = max(0, self._work.left - most)
        while self._work.left > end:
            before = self._interest.visited
            try:
                subject = next(search.candidates)
            except StopIteration:
                return True
            finally:
                self._work.left -= 1 + self._interest.visited - before
            if subject is not None:
                search.found[subject] = None
        return False

    def end(self, subscription: Subscription) -> Search | None:
        """End a search, and return it with what it found; None if there is none."""
        subscription.searching = False
        search = self._searches.pop(subscription, None)
        if not self._searches:
            self._cache.newcomers = None
        return search

    def _candidates(self, request: CatchUpRequest, search: Search) -> Iterator[str | None]:
        """Yield the subjects that are to be brought, and None for anything else looked at."""
        subscription, known = request.subscription, request.known
        pattern, settings = subscription.pattern, self._settings
        assert pattern is not None
        yield from self._cache.search(pattern)
        for subject in list(known.positions):
            yield subject if is_one_of(subject, pattern, settings) else None
        for subject in list(known.foreign):
            if is_one_of(subject, pattern, settings) and (
                self._interest.chosen(subscription.session, subject) is subscription
            ):
                search.foreign.append(subject)
            yield None
        newcomers = self._cache.newcomers
        while newcomers is not None and search.newcomers < len(newcomers):
            subject = newcomers[search.newcomers]
            search.newcomers += 1
            yield subject if pattern.matches(segments_of(subject)) else None
