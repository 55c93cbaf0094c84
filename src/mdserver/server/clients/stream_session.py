"""A session whose events are the answer to a request: server-sent events, or a stream of frames.

Its client sends nothing more on this connection. Commands for a stream come in other requests, to
the secret path that `connected` contains (`mdserver.server.http.stream`).
"""

from mdserver.codec.streaming import StreamAnswer
from mdserver.server.clients.connection import Connection
from mdserver.server.clients.live_session import LiveSession
from mdserver.server.clients.session import give_commands


class StreamSession(LiveSession):
    """The session of an answer without end."""

    __slots__ = ("_answer",)

    def __init__(self, connection: Connection, answer: StreamAnswer) -> None:
        super().__init__(connection, answer.form)
        self._answer = answer

    async def serve(self) -> None:
        """Run the session until the client closes, or sends more than `discard` tolerates."""
        connection, outbox, answer = self.connection, self.outbox, self._answer
        sessions, secret = connection.context.sessions, answer.secret
        self.begin(answer.transport)
        if secret is not None:
            sessions.streams[secret] = outbox.session
        try:
            await give_commands(sessions, outbox.session, answer.commands)
            await connection.discard()
        finally:
            if secret is not None:
                del sessions.streams[secret]
        connection.abort()
