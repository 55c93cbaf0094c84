"""The identity of a member: which member of which cluster its files belong to.

A vote record and a write-ahead log mean nothing to another cluster, and would do harm there. A
promise of one cluster is none in another; with other seeds another set of members is a majority, so
two quorums need not share a seed; and with another number of subject groups the same group has
other subjects. So each file carries the identity of its member. A start compares it with the
configuration, and if they differ it ends with a line that names the parameters, before it writes
anything (docs/cluster.md, "Vote file").
"""

import hashlib
from collections.abc import Sequence

from attrs import frozen


@frozen
class Identity:
    """One member of one cluster.

    `member` is its address, `seeds` are the addresses of the seeds in their order, and `groups` is
    the number of subject groups. A single server has no seeds, and its name is not compared.
    """

    member: str
    seeds: tuple[str, ...]
    groups: int

    @property
    def cluster(self) -> str:
        """Return the digest of seeds and groups that files carry; empty for a single server."""
        if not self.seeds:
            return ""
        return hashlib.sha256("\n".join([*self.seeds, str(self.groups)]).encode()).hexdigest()[:32]

    def differs(self, member: str, cluster: str, groups: int, seeds: Sequence[str]) -> str | None:
        """Return how a file's identity differs from this one, by parameters; None if it fits.

        Files of earlier versions do not list their seeds (`seeds` is empty): for them the digest
        `cluster` alone says whether the seeds differ.
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
        # The digest covers the number of groups too: if that differs, it says nothing of the seeds.
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
    """Return how the seeds of a file differ from those of the configuration."""
    if sorted(there) == sorted(here):
        what = "the order of ClusterMembers"
    elif len(there) != len(here):
        what = "how many there are (ClusterSeedMemberCount, or ClusterMembers)"
    else:
        what = "ClusterMembers"
    return f"it was written with {_list(there)}, and now {_list(here)}: {what} differs"


def _list(seeds: tuple[str, ...]) -> str:
    return f"{len(seeds)} seed{'s' * (len(seeds) != 1)} {', '.join(seeds)}"
