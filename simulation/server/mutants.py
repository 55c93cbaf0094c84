"""Deliberate bugs that only whole servers can show: there members dial each other."""

from typing import Any

from mdserver.cluster.membership import Membership
from mdserver.config.values import Address
from mdserver.server.peers.peers import PeerSettings
from simulation import profiles
from simulation.mutant import Mutant


def nobody_is_a_stranger(_: object) -> Any:
    """Members that no list names are not dialed."""

    def stranger(self: Membership, name: str) -> bool:  # noqa: ARG001
        return False

    return stranger


def nobody_moves(_: object) -> Any:
    """Members are dialed where their names say, wherever they are."""

    def found_at(self: PeerSettings, name: Address) -> Address:  # noqa: ARG001
        return name

    return found_at


OF_SERVERS = (
    Mutant(
        "members that no list names are not dialed",
        ((Membership, "stranger", nobody_is_a_stranger),),
        profiles.elastic,
    ),
    Mutant(
        "a member that moved is dialed where it was",
        ((PeerSettings, "found_at", nobody_moves),),
        profiles.elastic,
    ),
)
