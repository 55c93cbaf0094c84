"""Which member should coordinate a group: weighted rendezvous hashing.

The protocol does not depend on it: any member may coordinate, and members that disagree about who
is in sight only take longer to agree.

Every member computes the same order from the same list of members, without any message; when one
comes or goes, only the groups move that it gains or loses (Thaler and Ravishankar, "Using
name-based mappings to increase hit rates", 1998; weights as in Schindelhauer and Schomaker, 2005).
"""

import functools
import hashlib
import math


@functools.lru_cache(maxsize=65_536)
def score(member: str, group: int, weight: int) -> float:
    """Return the score of a member for a group, the highest first; with weight 0 it comes last."""
    if not weight:
        return -math.inf
    digest = hashlib.blake2b(f"{member}\0{group}".encode(), digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
    return -weight / math.log(share)


def ranking(group: int, weights: dict[str, int]) -> list[str]:
    """Return the members in the order in which they should coordinate the group."""
    return sorted(weights, key=lambda name: (score(name, group, weights[name]), name), reverse=True)
