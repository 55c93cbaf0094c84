"""Answers requests for authorization by verifying tokens (JSON Web Tokens, RFC 7519)."""

from collections.abc import Callable

import structlog

from mdserver.codec.tokens import TokenVerifier
from mdserver.core.events import StatusName
from mdserver.core.inputs import Authorized, Denied, Grants
from mdserver.core.outputs import Authorize
from mdserver.server.clock import Clock

log = structlog.get_logger()


class TokenAuthorizer:
    """`Entitlement = JWT`: the claims of a token say what it allows.

    `verifier` may be replaced while the server runs. Sessions keep what they were granted until
    their tokens expire.
    """

    def __init__(
        self, verifier: TokenVerifier, clock: Clock, answer: Callable[[Authorized], None]
    ) -> None:
        self.verifier = verifier
        self._clock = clock
        self._answer = answer

    def ask(self, question: Authorize) -> None:
        """Answer a request at once, before this returns."""
        verdict: Grants | Denied
        if question.token:
            verdict = self._verified(question.token)
        else:
            verdict = Denied("Connect with a token (a JWT).", StatusName.TOKEN_INVALID)
        self._answer(Authorized(question.request, verdict))

    def _verified(self, token: str) -> Grants | Denied:
        """Return what the token grants.

        A bug in the verifier becomes a denial, because a token is input from strangers and must not
        be able to end more than its own session.
        """
        try:
            return self.verifier.verify(token, self._clock())
        except Exception:
            log.exception("token verification failed")
            return Denied("The server could not check this token.", StatusName.TOKEN_INVALID)
