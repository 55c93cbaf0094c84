"""The interface of a delivery mode to `Node`.

A mode decides which member numbers the publications of a group, and when a number counts. In
`Guaranteed` seeds vote, in `Standard` the members in sight of each other agree without votes. Both
use the same group logs, caches and publishers' queues. So each has little of its own: the messages
that only its members exchange, its periodic work, and the reasons why a member does not serve
clients. `KafkaMode` leaves numbering to an external log with its offsets, and uses the cache only.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mdserver.cluster.messages import Heartbeat, Hello, LedGroup


class Sequencer(Protocol):
    """The part that numbers publications, in the groups that this member coordinates."""

    def leads(self) -> list["LedGroup"]:
        """Return the groups that this member coordinates, for its heartbeat."""

    def forget_idle(self) -> None:
        """Forget publishers that were idle for long; also called on a single server."""

    def take_held_back(self) -> None:
        """Number publications that were held back: the write-ahead log has reached the disk."""

    def refuse_held_back(self, reason: str) -> None:
        """Refuse the publications that were held back: the disk accepts no more writes."""

    def withdraw(self, reason: str) -> None:
        """Take back uncommitted entries: the disk of the only seed refused to store them."""


class Mode(Protocol):
    """One member in a delivery mode. It is called within steps only, with `Outgoing.now` set."""

    @property
    def sequencer(self) -> Sequencer:
        """Return the part that numbers publications."""

    @property
    def handlers(self) -> Mapping[type, Callable[[str, Any], None]]:
        """Return the handlers of messages; a link that brings any other message is closed."""

    def greeted(self, peer: str, hello: "Hello") -> None:
        """Handle the first message of a link: who a member is, and what it knows of this one."""

    def outdated(self, peer: str, hello: "Hello") -> None:
        """Handle a member of an incarnation older than a known one, before its link is closed."""

    def heartbeat(self, peer: str, heartbeat: "Heartbeat") -> None:
        """Handle what a member says of itself, and of the groups that it coordinates."""

    def link_lost(self, peer: str) -> None:
        """Assume that what was on its way to or from a member is lost."""

    def member_unreachable(self) -> None:
        """Handle a member that became unreachable: look at once whose turn it is to coordinate."""

    def tick(self) -> None:
        """Do the periodic work, a few times a second: elections, claims, hand-overs."""

    def rebalance(self) -> None:
        """Look at the next tick whether groups should move: members miss others than before."""

    def unready(self) -> str | None:
        """Return why this member serves no clients now; None if it does."""
