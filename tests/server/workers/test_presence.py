"""Who leaves when a worker dies."""

from mdserver.core.outputs import Log
from mdserver.server.workers.presence import WorkerPresence


def line(name: str, session: str, subject: str, stream: str = "presence") -> Log:
    return Log(stream, name, {"time": 1, "session": session, "user": "u", "subject": subject})


def test_all_who_joined_and_did_not_leave_leave_with_their_worker() -> None:
    presence = WorkerPresence()
    presence.take(1, line("join", "a-1", "/x"))
    presence.take(1, line("join", "a-1", "/y"))
    presence.take(1, line("join", "a-2", "/x"))
    presence.take(2, line("join", "a-3", "/x"))
    presence.take(1, line("leave", "a-1", "/x"))
    presence.take(1, line("leave", "a-2", "/x"))
    presence.take(1, line("leave", "unknown", "/x"))
    presence.take(1, line("connect", "a-4", "/x", "access"))
    left = presence.ended(1, 7)
    assert [(one.name, one.values) for one in left] == [
        ("leave", {"time": 7, "session": "a-1", "user": "u", "subject": "/y"})
    ]
    assert not presence.ended(1, 8)
    assert [one.values["session"] for one in presence.ended(2, 9)] == ["a-3"]
