"""An operator's commands to the node, as calls that return the answer."""

from itertools import count

from mdserver.cluster.messages import AdminCommand, AdminReply
from mdserver.server.engine import Engine


class OperatorCommands:
    """Gives operators' commands to the node. The answer is an output of the same step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = count(1)
        self._answers: dict[int, AdminReply] = {}

    def replied(self, output: AdminReply) -> None:
        """Keep the node's answer for the command that is under way."""
        self._answers[output.request] = output

    def __call__(self, action: str, member: str, force: bool) -> AdminReply:
        """Have the node carry a command out, and return its answer.

        `action` is one that `AdminCommand` names, `member` the name of the member that it concerns.
        `force` overrides a refusal of the node.
        """
        number = next(self._numbers)
        self._engine.dispatch(AdminCommand(number, action, member, force))
        return self._answers.pop(number)
