"""Who answers the core's questions about entitlement where the core cannot itself."""

from mdserver.codec.tokens import TokenVerifier
from mdserver.core.events import StatusName
from mdserver.core.inputs import Decided, Denied, Grants
from mdserver.core.outputs import Ask
from mdserver.net.engine import Engine


class TokenJudge:
    """`Entitlement = JWT`: a token says itself what it allows.

    `verifier` may be replaced while the server runs; sessions keep what they were granted until
    their tokens expire.
    """

    def __init__(self, verifier: TokenVerifier, engine: Engine) -> None:
        self.verifier = verifier
        self._engine = engine

    def ask(self, question: Ask) -> None:
        """Takes a question and answers it at once."""
        verdict: Grants | Denied
        if question.token:
            verdict = self.verifier.verify(question.token, self._engine.clock())
        else:
            verdict = Denied("Connect with a token (a JWT).", StatusName.TOKEN_INVALID)
        self._engine.dispatch(Decided(question.request, verdict))
