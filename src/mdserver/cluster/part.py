"""What every part of a member is given when it is made.

The behaviour of a member is cut into parts (election, learner, coordinators, ...), each with little
state of its own: what they work on is the `Group`s. A part declares as fields what it needs besides
and holds nothing else of the member, so the fields of a class say all that it can reach.
"""

from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from mdserver.cluster.groups import Groups
    from mdserver.cluster.membership import Membership
    from mdserver.cluster.outgoing import Outgoing
    from mdserver.cluster.settings import ClusterSettings


@define(eq=False)
class MemberPart:
    """Base of the parts: the groups, what is configured, who is in sight, and what is said."""

    groups: "Groups"
    _settings: "ClusterSettings"
    _members: "Membership"
    _outgoing: "Outgoing"
