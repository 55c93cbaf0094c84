"""A node that judges its clients itself, in place of an authorizer."""

from typing import Any

from mdserver.cluster.node import Node
from mdserver.core.inputs import Authorized, Grants
from mdserver.core.outputs import Authorize


class Judged(Node):
    """A node whose judge takes the token for the user."""

    def step(self, input: Any, now: int) -> Any:  # noqa: A002
        out = super().step(input, now)
        for ask in [one for one in out if isinstance(one, Authorize)]:
            grants = Grants(("/**",), ("/**",), None, ask.token)
            out = [*out, *super().step(Authorized(ask.request, grants), now)]
        return [one for one in out if not isinstance(one, Authorize)]
