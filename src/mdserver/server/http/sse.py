"""`GET /sse`: subjects as server-sent events, for `EventSource` in any browser.

The id of an event contains the positions of the subjects. A browser that reconnects sends it back
as `Last-Event-ID`, and the session resumes from these positions.
"""

from mdserver import limits
from mdserver.codec.http import Request, RequestRefusedError
from mdserver.codec.streaming import SSE_TYPE, SseForm, StreamAnswer, read_event_id, stream_headers
from mdserver.core.commands import Connect, Ping, Resume, Subscribe
from mdserver.core.subjects import parse_interest
from mdserver.errors import InvalidSubjectError
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Parameters, token_of

HEADERS = stream_headers(SSE_TYPE)


async def sse(request: Request, _exchange: Exchange) -> Answer | StreamAnswer:
    """Begin a session that subscribes to the subjects of the query; HEAD begins none."""
    if not request.http_1_1:
        raise RequestRefusedError(400, "Server-sent events need HTTP/1.1.")
    names = ("subject", "token", "conflation", "history")
    parameters = Parameters(request, names, repeated=("subject",))
    parameters.check()
    subjects = parameters.several("subject", limits.SSE_SUBJECTS_MAX)
    for subject in subjects:
        try:
            parse_interest(subject, 1)
        except InvalidSubjectError as error:
            raise RequestRefusedError(400, str(error)) from None
    last = request.header(b"last-event-id")
    known = read_event_id(last) if last else None
    history = parameters.count("history", limits.CACHED_MESSAGES_PER_SUBJECT_MAX) or 0
    conflation_ms = parameters.count("conflation", limits.CONFLATION_MS_MAX) or 0
    subscribe = Subscribe(subjects=subjects, history=history, conflation_ms=conflation_ms)
    if known is not None:
        subscribe = Resume(
            subjects=subjects,
            history=history,
            conflation_ms=conflation_ms,
            positions=known.after(),
            known=known.history,
            places=known.places,
        )
    if request.method == "HEAD":
        return Answer(200, HEADERS)
    return StreamAnswer(
        headers=HEADERS,
        form=SseForm(subjects, known),
        transport="sse",
        commands=[Connect(token=token_of(request, parameters)), subscribe, Ping()],
    )
