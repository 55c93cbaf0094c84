"""What the audit streams say of a session; the columns are described in docs/operations.md."""

from mdserver.core.outputs import Log
from mdserver.core.session import Session

ACCESS = "access"
PRESENCE = "presence"


def session_log(
    stream: str, name: str, session: Session, now: int, **values: str | int | None
) -> Log:
    """One line about a session; `time` is in ns since the Unix epoch."""
    return Log(
        stream,
        name,
        {
            "time": now,
            "session": session.id,
            "address": session.address,
            "transport": session.transport,
            "client": session.client,
            "user": session.user,
            **values,
        },
    )
