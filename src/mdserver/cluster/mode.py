"""What a delivery mode has to say, so that `Node` can run it.

A mode decides who numbers the publications of a group, and when a number counts. `Guaranteed` has
seeds vote, `Standard` takes whoever is in sight; one that leaves numbering to an outside log
(Kafka's offsets, say) would be the third. All of them use the same group logs, caches and
publishers' queues, so what is theirs alone is small: the messages that only they exchange, what
they do a few times a second, and why a member does not serve clients now.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mdserver.cluster.messages import Heartbeat, Hello, LedGroup


class Sequencer(Protocol):
    """What a member does for the groups in which it numbers publications itself."""

    def leads(self) -> list["LedGroup"]:
        """Return the groups that this member coordinates, for its heartbeat."""

    def forget_idle(self) -> None:
        """Forget publishers that were idle for long; a single server does so too."""

    def take_held_back(self) -> None:
        """The write-ahead log took more: go on with what was held back for it."""

    def refuse_held_back(self, reason: str) -> None:
        """The disk takes nothing more: refuse what was held back for it."""

    def withdraw(self, reason: str) -> None:
        """The only seed's disk has nothing of what is not committed, and refuses: take it back."""


class Mode(Protocol):
    """A delivery mode of one member. Called within steps, with `Outgoing.now` set."""

    @property
    def sequencer(self) -> Sequencer:
        """Who numbers publications."""

    @property
    def handlers(self) -> Mapping[type, Callable[[str, Any], None]]:
        """What it does with the messages of this mode; others have their links closed for them."""

    def greeted(self, peer: str, hello: "Hello") -> None:
        """A member said who it is, and what it knows of this one."""

    def outdated(self, peer: str, hello: "Hello") -> None:
        """A member came as an incarnation older than a known one; its link is closed after this."""

    def heartbeat(self, peer: str, heartbeat: "Heartbeat") -> None:
        """A member said how it is, and what it coordinates."""

    def link_lost(self, peer: str) -> None:
        """What was on its way to or from a member may be lost."""

    def member_unreachable(self) -> None:
        """A link is gone: look at once whose turn it is to coordinate."""

    def tick(self) -> None:
        """Do what is to be done a few times a second."""

    def rebalance(self) -> None:
        """Look at the next tick whether groups should move: members miss others than before."""

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
