"""The settings of a cluster, as one member has them at its start.

They do not change while it runs, but for the list of members, of which `Membership` has the present
one.
"""

from typing import TYPE_CHECKING

from attrs import Factory, evolve, frozen

from mdserver import limits

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping


@frozen
class ClusterSettings:
    """The settings of one member; all but `me`, `name` and `client` are the same on every member.

    Durations are in nanoseconds. `members` is the ordered list of peer addresses; the first ones
    are the seeds. A member that is not in the list of another one is taken as a further member that
    never votes. Of each publisher in a group the positions of `numbers_kept` numbers are kept for
    repeats, and as many numbers may be without a result; about `publishers_max` publishers are
    known in all groups. `writes_wal`: a seed writes its logs down (`mdserver.cluster.wal`), and
    with `acks_wait_for_wal` it acks only what is on the disk. With `wants_wal` each seed is to do
    both; a member that becomes one while it runs cannot before its next start. While `hold_bytes`
    of entries are on their way to the disk a coordinator takes no more, and with `behind_bytes` a
    seed takes none.

    `workers`: this member has worker processes, which serve its clients (`cluster/workers.py`).
    `learner`: this is one of them. It knows its member only, and never coordinates a group.
    """

    me: str
    members: tuple[str, ...]
    seed_count: int = 0  # 0: three, or five if there are five members or more
    guaranteed: bool = True  # False: nobody votes, there are no seeds
    client: str = ""
    heartbeat: int = limits.PEER_HEARTBEAT_MS * limits.NS_PER_MS
    suspect: int = limits.PEER_SUSPECT_MS * limits.NS_PER_MS
    publish_timeout: int = limits.PUBLISH_TIMEOUT_S * limits.NS_PER_S
    log_kept: int = limits.LOG_ENTRIES_KEPT
    numbers_kept: int = limits.PUBLISHER_NUMBERS_KEPT
    publishers_max: int = limits.PUBLISHERS_MAX
    trace: bool = False
    writes_wal: bool = False
    acks_wait_for_wal: bool = False
    wants_wal: bool = False
    hold_bytes: int = limits.JOURNAL_HOLD_BYTES
    behind_bytes: int = limits.JOURNAL_BEHIND_BYTES
    name: str = ""  # what people call this member; empty: its address
    workers: bool = False
    learner: bool = False
    moved: "Mapping[str, str]" = Factory(dict)  # members that are at another address -> there

    @property
    def seeds(self) -> tuple[str, ...]:
        """Return the members that vote as this one starts; `Seeds` has the present ones."""
        if not self.guaranteed:
            return ()
        return self.members[: self.seed_count or (5 if len(self.members) >= 5 else 3)]

    @property
    def single(self) -> bool:
        """Return whether this is a single server, a majority by itself without a vote record."""
        return self.guaranteed and self.members == (self.me,)


def alone(
    member: str, *, writes_wal: bool = False, acks_wait_for_wal: bool = False
) -> ClusterSettings:
    """Return the settings of a single server: a cluster of one seed."""
    return ClusterSettings(
        member, (member,), log_kept=0, writes_wal=writes_wal, acks_wait_for_wal=acks_wait_for_wal
    )


def with_workers(server: ClusterSettings) -> ClusterSettings:
    """Return the settings of a member that has worker processes."""
    return evolve(server, workers=True)


def worker_of(server: str, name: str) -> ClusterSettings:
    """Return the settings of a worker process of the member that is called so."""
    return ClusterSettings(
        name,
        (server,),
        heartbeat=limits.WORKER_HEARTBEAT_MS * limits.NS_PER_MS,
        suspect=limits.WORKER_SUSPECT_S * limits.NS_PER_S,
        # The server gives up first, and knows whether anything may still become of a publication.
        publish_timeout=(limits.PUBLISH_TIMEOUT_S + limits.WORKER_MARGIN_S) * limits.NS_PER_S,
        name=name,
        learner=True,
    )


def delay(settings: ClusterSettings, rng: "random.Random", turns: float) -> int:
    """Return a random time of about `turns` heartbeats (ns).

    Members that saw the same failure at the same time then try to take over one after another.
    """
    return int(settings.heartbeat * (turns + rng.random()))
