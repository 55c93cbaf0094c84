"""`/subjects` of the monitor: the top subjects by an indicator, or one subject."""

import heapq
from collections.abc import AsyncIterator
from typing import Protocol

import attrs
import trio

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.core.inspection import Inspection, SubjectView
from mdserver.core.subjects import validate_subject
from mdserver.core.text import safe_text
from mdserver.errors import InvalidSubjectError
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clock import Clock
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.monitor.pages import FORMATS, aligned

SORTS = {
    "rate": "per_second",
    "subscribers": "subscribers",
    "bytes": "bytes",
    "messages": "messages",
}
WORK_AT_ONCE = 10_000  # units of work, one a cached message, before the other tasks run
SUBJECT_WORK = 20  # units of work that a subject takes beside its messages


class SubscriberCounts(Protocol):
    """The subscribers at worker processes."""

    async def subscribers(self, subjects: list[str]) -> dict[str, int]:
        """Return how many subscribers each subject has."""


class SubjectsPage:
    """The top subjects, or the one that `subject` names: JSON, or `?format=text`.

    The top subjects need a look at all of them, which takes some seconds for a million. The other
    tasks run in between, and only one request looks at a time.
    With `workers` their subscribers are counted, and subjects cannot be sorted by them.
    """

    def __init__(
        self, inspection: Inspection, clock: Clock, workers: SubscriberCounts | None = None
    ) -> None:
        self._workers = workers
        self._inspection = inspection
        self._clock = clock
        self._looking = trio.Lock()

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the rows; the answer is 404 for a subject of which nothing is known."""
        asked = Parameters(request, ("subject", "sort", "limit", "format"))
        asked.check()
        sort = asked.choice("sort", SORTS, "per_second")
        limit = asked.count("limit", limits.SUBJECTS_SHOWN_MAX)
        as_text = asked.choice("format", FORMATS, False)
        subject = asked.text("subject")
        if sort == "subscribers" and self._workers is not None:
            return text_answer("With workers, subjects are not sorted by their subscribers.\n", 409)
        if subject is not None:
            found = self._inspection.subject(subject, self._clock())
            if found is None:
                check_subject(subject)
                return text_answer(
                    f"Nothing was published to {safe_text(subject, 256)}, or it was forgotten.\n",
                    404,
                )
            views = [found]
        else:
            async with self._looking:
                every = [(getattr(view, sort), view.subject, view) async for view in self._views()]
            top = heapq.nlargest(20 if limit is None else limit, every)
            views = [view for _, _, view in top]
        rows = [attrs.asdict(view) for view in views]
        if self._workers is not None:
            counts = await self._workers.subscribers([view.subject for view in views])
            for row in rows:
                row["subscribers"] = counts.get(row["subject"], 0)
        return text_answer(aligned(rows)) if as_text else json_answer(rows)

    async def _views(self) -> AsyncIterator[SubjectView]:
        """Yield each subject; the other tasks run after every `WORK_AT_ONCE` units of work."""
        inspection, work = self._inspection, 0
        for subject in inspection.subjects():
            work += SUBJECT_WORK + inspection.cached(subject)
            view = inspection.subject(subject, self._clock())
            if view is not None:
                yield view
            if work >= WORK_AT_ONCE:
                work = 0
                await trio.lowlevel.checkpoint()


def check_subject(subject: str) -> None:
    """Raise RequestRefusedError (400) if nothing can be published to this, so nothing is known."""
    if not subject:
        raise RequestRefusedError(400, "The parameter `subject` is empty.")
    try:
        validate_subject(subject, segments_min=1, purpose="look up")
    except InvalidSubjectError as error:
        raise RequestRefusedError(400, str(error)) from None
