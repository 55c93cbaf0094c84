"""The search for the subjects of patterns: some of it a step, counted in what is looked at."""

from collections.abc import Iterator

from mdserver.core.cache import Cache
from mdserver.core.interest import Interest
from mdserver.core.outputs import Output
from mdserver.core.session import CatchUpRequest, Subscription
from mdserver.core.settings import BrokerSettings
from mdserver.core.subjects import Pattern, segments_of, validate_subject
from mdserver.errors import InvalidSubjectError


class Work:
    """The budget of a step for work that may also be done later, counted in `left`.

    Steps are told apart by their lists of outputs, of which each step has its own.
    """

    __slots__ = ("_most", "_out", "left")

    def __init__(self, most: int) -> None:
        self.left = self._most = most
        self._out: list[Output] | None = None

    def begin(self, out: list[Output]) -> None:
        """Fill the budget if this is another step."""
        if out is not self._out:
            self._out = out
            self.left = self._most


class Search:
    """The subjects that were found for one subscription so far.

    `foreign` are positions of another history id; `newcomers` is how many of the cache's were
    looked at.
    """

    __slots__ = ("candidates", "foreign", "found", "newcomers")

    def __init__(self, newcomers: int) -> None:
        self.candidates: Iterator[str | None] = iter(())
        self.found: dict[str, None] = {}
        self.foreign: list[str] = []
        self.newcomers = newcomers


def is_one_of(subject: str, pattern: Pattern, settings: BrokerSettings) -> bool:
    """Return whether this is a subject that one can publish to, and one of the pattern's."""
    try:
        validate_subject(subject, settings.subject_segments_min, settings.subject_segments_max)
    except InvalidSubjectError:
        return False
    return pattern.matches(segments_of(subject))


class Searches:
    """The searches for the subjects of patterns that go on, one a subscription.

    What is looked for is in the cache and in the positions of the command, and comes into the cache
    meanwhile.
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
        """Search on for so much work at most; returns whether all is found."""
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
        """End a search; returns it with what it found."""
        subscription.searching = False
        search = self._searches.pop(subscription, None)
        if not self._searches:
            self._cache.newcomers = None
        return search

    def _candidates(self, request: CatchUpRequest, search: Search) -> Iterator[str | None]:
        """Yield the subjects that are to be brought, and None for what is looked at besides."""
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
