"""The session of one HTTP request: which events are its answers."""

from mdserver.core.events import Reset, Status, StatusName
from mdserver.server.clients.exchange import Exchange

from .test_sessions import sessions_of


def test_a_reset_is_no_answer_to_a_publication() -> None:
    """The history may change while a request waits, and every session is told."""
    sessions, _ = sessions_of()
    exchange = Exchange(sessions, "127.0.0.1")
    exchange.put(Reset(history="h2", subjects=["/**"]))
    assert not exchange.answered
    exchange.put(Status(status=StatusName.PUBLISH_OK, subject="/a", id=0, epoch=1, seq=1))
    assert exchange.answered
