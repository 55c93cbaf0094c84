"""`/subjects` of the monitor: the subjects with most of something, or one of them."""

import heapq
from collections.abc import AsyncIterator

import attrs
import trio

from mdserver import limits
from mdserver.codec.http import Request
from mdserver.core.inspection import Inspection, SubjectView
from mdserver.core.text import safe_text
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
WORK_AT_ONCE = 10_000  # subjects and cached messages looked at before others have a turn
SUBJECT_WORK = 20  # what a look at a subject counts for beside its messages


class SubjectsPage:
    """The top subjects, or the one that `subject` names: JSON, or `?format=text`.

    All subjects have to be looked at for it, which takes some seconds for a million of them; others
    get their turns, and one request at a time looks.
    """

    def __init__(self, inspection: Inspection, clock: Clock) -> None:
        self._inspection = inspection
        self._clock = clock
        self._looking = trio.Lock()

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the rows; 404 for a subject of which nothing is known."""
        asked = Parameters(request, ("subject", "sort", "limit", "format"))
        asked.check()
        sort = asked.choice("sort", SORTS, "per_second")
        limit = asked.count("limit", limits.SUBJECTS_SHOWN_MAX)
        as_text = asked.choice("format", FORMATS, False)
        subject = asked.text("subject")
        if subject is not None:
            found = self._inspection.subject(subject, self._clock())
            if found is None:
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
        return text_answer(aligned(rows)) if as_text else json_answer(rows)

    async def _views(self) -> AsyncIterator[SubjectView]:
        inspection, work = self._inspection, 0
        for subject in inspection.subjects():
            work += SUBJECT_WORK + inspection.cached(subject)
            view = inspection.subject(subject, self._clock())
            if view is not None:
                yield view
            if work >= WORK_AT_ONCE:
                work = 0
                await trio.lowlevel.checkpoint()
