"""An operator's commands to the node."""

from itertools import count

from mdserver.cluster.messages import Operate, Operated
from mdserver.server.engine import Engine


class OperatorCommands:
    """Asks the node what an operator wants; the answer comes with the same step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = count(1)
        self._answers: dict[int, Operated] = {}

    def operated(self, output: Operated) -> None:
        """Keep the node's answer for the command that is under way."""
        self._answers[output.request] = output

    def __call__(self, action: str, member: str, force: bool) -> Operated:
        """Have a command carried out."""
        number = next(self._numbers)
        self._engine.dispatch(Operate(number, action, member, force))
        return self._answers.pop(number)
