"""Which member of which cluster the files of a member belong to.

Vote record and write-ahead log mean nothing to another cluster, and would do harm there: a promise
of one cluster is none in another, and with another number of subject groups the same group has
other subjects. So files carry the identity of their member, and a start compares it with the
configuration and says which parameter differs instead of guessing.
"""

import hashlib
from collections.abc import Sequence

from attrs import frozen


@frozen
class Identity:
    """One member of one cluster. A single server has no `seeds`, and may be called anything."""

    member: str
    seeds: tuple[str, ...]
    groups: int

    @property
    def cluster(self) -> str:
        """Return what the files of a cluster carry; empty for a single server."""
        if not self.seeds:
            return ""
        return hashlib.sha256("\n".join([*self.seeds, str(self.groups)]).encode()).hexdigest()[:32]

    def differs(self, member: str, cluster: str, groups: int, seeds: Sequence[str]) -> str | None:
        """Return how what a file says differs from this, by parameters; None if it fits.

        Files of earlier versions do not list their seeds: those differ in `cluster` alone.
        """
        found = []
        if groups != self.groups:
            found.append(
                f"it was written with ClusterSubjectGroups = {groups}, and now"
                f" ClusterSubjectGroups = {self.groups}"
            )
        if bool(cluster) != bool(self.seeds):
            kinds = ("a single server", "a member of a cluster")
            found.append(
                f"it was written by {kinds[bool(cluster)]}, and this is {kinds[bool(self.seeds)]}"
                " (ClusterMembers)"
            )
        elif seeds and tuple(seeds) != self.seeds:
            found.append(_seeds(tuple(seeds), self.seeds))
        elif not seeds and not found and cluster != self.cluster:
            found.append(
                f"it was written with other seeds than {', '.join(self.seeds)} (ClusterMembers,"
                " ClusterSeedMemberCount)"
            )
        if cluster and self.seeds and member != self.member:
            found.append(
                f"it was written with ClusterMemberListen = {member}, and now"
                f" ClusterMemberListen = {self.member}"
            )
        return "; ".join(found) or None


def _seeds(there: tuple[str, ...], here: tuple[str, ...]) -> str:
    if sorted(there) == sorted(here):
        what = "the order of ClusterMembers"
    elif len(there) != len(here):
        what = "how many there are (ClusterSeedMemberCount, or ClusterMembers)"
    else:
        what = "ClusterMembers"
    return f"it was written with {_list(there)}, and now {_list(here)}: {what} differs"


def _list(seeds: tuple[str, ...]) -> str:
    return f"{len(seeds)} seed{'s' * (len(seeds) != 1)} {', '.join(seeds)}"
