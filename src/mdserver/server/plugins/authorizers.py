"""Answers requests for authorization that need a token to be verified."""

from collections.abc import Callable

import structlog

from mdserver.codec.tokens import TokenVerifier
from mdserver.core.events import StatusName
from mdserver.core.inputs import Authorized, Denied, Grants
from mdserver.core.outputs import Authorize
from mdserver.server.clock import Clock

log = structlog.get_logger()


class TokenAuthorizer:
    """`Entitlement = JWT`: a token says itself what it allows.

    `verifier` may be replaced while the server runs; sessions keep what they were granted until
    their tokens expire.
    """

    def __init__(
        self, verifier: TokenVerifier, clock: Clock, answer: Callable[[Authorized], None]
    ) -> None:
        self.verifier = verifier
        self._clock = clock
        self._answer = answer

    def ask(self, question: Authorize) -> None:
        """Take a question and answer it at once."""
        verdict: Grants | Denied
        if question.token:
            verdict = self._verified(question.token)
        else:
            verdict = Denied("Connect with a token (a JWT).", StatusName.TOKEN_INVALID)
        self._answer(Authorized(question.request, verdict))

    def _verified(self, token: str) -> Grants | Denied:
        """Return the verdict; a denial if the verifier fails, as it reads what strangers wrote."""
        try:
            return self.verifier.verify(token, self._clock())
        except Exception:
            log.exception("token verification failed")
            return Denied("The server could not check this token.", StatusName.TOKEN_INVALID)
