"""The base of the parts of a member, with the objects on which all of them work.

The behaviour of a member is divided into parts (election, learner, coordinators, ...), each with
little state of its own: the state is in the `Group`s. A part declares the other objects that it
needs as fields, and holds nothing else of the member. So the fields of a class show everything that
it can reach.
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
