"""The base of the parts of a member, with what each of them works on.

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
    """Base of the parts: the groups, the settings, the other members, and the step's outputs."""

    groups: "Groups"
    _settings: "ClusterSettings"
    _members: "Membership"
    _outgoing: "Outgoing"
