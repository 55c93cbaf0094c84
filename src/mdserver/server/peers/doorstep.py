"""Bounds the callers at the peer port that have not proved yet that they are members.

Strangers must not keep members out, however many of them call. Two rules see to that. Callers from
the address of a listed member have places that strangers cannot take. And a caller for whom there
is no place takes the place of the one that has proved nothing for the longest time: a member proves
itself within a round trip or two, so it is gone from its place before its turn comes.
"""

from collections.abc import Iterable

import trio
from attrs import field, frozen

from mdserver.core.text import safe_text
from mdserver.limits import (
    CLUSTER_MEMBERS_MAX,
    PEER_COMPLAINTS_KEPT,
    PEER_COMPLAINTS_MAX,
    PEER_COMPLAINTS_S,
    PEER_UNPROVEN_MAX,
    PEER_UNPROVEN_PER_ADDRESS_MAX,
)
from mdserver.server.logger import Logger


@frozen(eq=False)
class Place:
    """The place of one caller. `scope` is cancelled when another caller takes the place."""

    address: str
    scope: trio.CancelScope = field(factory=trio.CancelScope)


class Doorstep:
    """The places of callers, oldest first.

    `_listed` are the hosts of listed members, and `_reached` has the addresses at which members
    answered, for a host that is a name. Members call from both.
    """

    def __init__(self, listed: Iterable[str]) -> None:
        self._listed = dict.fromkeys(listed)
        self._reached: dict[str, str] = {}
        self._of_address: dict[str, dict[Place, None]] = {}
        self._strangers: dict[Place, None] = {}

    def relist(self, listed: Iterable[str]) -> None:
        """Take the hosts of another list of members; callers from others are strangers now."""
        self._listed = dict.fromkeys(listed)

    def reach(self, name: str, address: str) -> None:
        """Note at which address a member answered that is dialed."""
        self._reached[name] = address

    def forget(self, name: str) -> None:
        """Forget a member that is not dialed any more."""
        self._reached.pop(name, None)

    def _expects(self, address: str) -> bool:
        return address in self._listed or address in self._reached.values()

    def enter(self, address: str) -> Place:
        """Return a place for a caller from this address; another caller may lose its place."""
        here = self._of_address.setdefault(address, {})
        if len(here) >= PEER_UNPROVEN_PER_ADDRESS_MAX:
            self._displace(next(iter(here)))
        strange = not self._expects(address)
        if strange and len(self._strangers) >= PEER_UNPROVEN_MAX:
            self._displace(next(iter(self._strangers)))
        place = Place(address)
        self._of_address.setdefault(address, {})[place] = None
        if strange:
            self._strangers[place] = None
        return place

    def leave(self, place: Place) -> None:
        """Free the place of a caller that has proved itself or is gone."""
        self._strangers.pop(place, None)
        here = self._of_address.get(place.address, {})
        here.pop(place, None)
        if not here:
            self._of_address.pop(place.address, None)

    def _displace(self, place: Place) -> None:
        self.leave(place)
        place.scope.cancel()


class Complaints:
    """Logs why there is no link to a member, without flooding the log.

    For a member that is dialed, each reason is logged once and not at every attempt, until there is
    a link again. For callers, whose names are unknown, there are at most `PEER_COMPLAINTS_MAX`
    lines in `PEER_COMPLAINTS_S` altogether; the next line says how many `more` there were.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._said: dict[str, dict[str, None]] = {}
        self._since = 0.0
        self._lines = 0
        self._more = 0

    def forget(self, name: str) -> None:
        """Forget the reasons that were logged for a member: it has a link, or is given up."""
        self._said.pop(name, None)

    def say(self, name: str, reason: str, where: str = "") -> None:
        """Log why there is no link, unless that was logged already.

        `name` is empty for a caller. `where` is the address, if it differs from the name.
        """
        reason = safe_text(reason, 1000)
        said = self._said.setdefault(name, {})
        if reason in said or len(self._said) > CLUSTER_MEMBERS_MAX:
            return
        if len(said) == PEER_COMPLAINTS_KEPT:
            said.clear()
        if name:
            self._log.warning("no link", peer=safe_text(name), address=where or name, reason=reason)
        elif self._may_say():
            more = {"more": self._more} if self._more else {}
            self._more = 0
            self._log.warning("no link", peer="a caller", address=where, reason=reason, **more)
        else:
            self._more += 1
            return
        said[reason] = None

    def _may_say(self) -> bool:
        now = trio.current_time()
        if now - self._since >= PEER_COMPLAINTS_S:
            self._since, self._lines = now, 0
        self._lines += 1
        return self._lines <= PEER_COMPLAINTS_MAX
