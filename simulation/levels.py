"""The levels of the simulator: the same plans and checks, with more and more of the server.

1: the state machines, whose messages pass through the codec whole. 2: likewise, but links carry
pieces of frames that are cut anywhere. 3: whole servers under Trio's mock clock, with sockets,
WebSocket and the handshakes of links.
"""

from collections.abc import Callable
from functools import partial

from attrs import frozen

from simulation import plan, run
from simulation.server import run as server
from simulation.world import World

Run = Callable[[plan.Plan], tuple[run.Result, World]]


@frozen
class Level:
    """How a seed's plan is made, and how a plan is run."""

    plan: Callable[[int], plan.Plan]
    run: Run


LEVELS = {
    1: Level(plan.make, run.run),
    2: Level(plan.make, partial(run.run, split=True)),
    3: Level(server.plan_of, server.run),
}
