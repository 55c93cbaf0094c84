"""What lies between members: the two networks of a chaos run have this in common.

Members are numbered from 0. A *pair* (a, b) is blocked when nothing that a sends reaches b.
"""

from collections.abc import Collection
from typing import Protocol

import trio

from simulation.chaos.proxy import Address

Pair = tuple[int, int]


class Wire(Protocol):
    """A network with faults. Blocks and slowness are told as a whole, so the last word counts."""

    @property
    def told(self) -> str:
        """Which network this is, in a few words."""

    @property
    def alters(self) -> bool:
        """Whether packets can be put out of order: see `shuffle`."""

    @property
    def reads(self) -> bool:
        """Whether it has to read what members say first, and so cannot carry encrypted links."""

    @property
    def disordered(self) -> int:
        """How many packets members got before earlier ones, if the run reorders packets."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Set it up, say so, keep it until cancelled."""

    def peer(self, member: int) -> Address:
        """Where the others call a member."""

    def bind(self, member: int) -> Address:
        """Where it listens for them."""

    async def another(self, member: int) -> Address:
        """An address where it never was, at which it can listen and the others find it."""

    def clients(self, member: int) -> Address:
        """Where it listens for clients."""

    def encrypted(self, member: int) -> Address:
        """Where it listens for clients that speak TLS."""

    def monitor(self, member: int) -> Address:
        """Where it listens for operators."""

    def command(self, member: int) -> list[str]:
        """What goes before a command that is to run where the member does."""

    async def block(self, pairs: Collection[Pair]) -> None:
        """From now on exactly these pairs are blocked."""

    async def slow(self, members: Collection[int]) -> None:
        """From now on exactly these members send slowly."""

    async def shuffle(self, members: Collection[int]) -> None:
        """From now on exactly these members' packets overtake each other, and some come twice."""

    async def cut(self, member: int, draw: int) -> None:
        """Break the member's links to the others, anywhere in what is on its way."""


def text(address: Address) -> str:
    """`host:port`."""
    return f"{address[0]}:{address[1]}"
