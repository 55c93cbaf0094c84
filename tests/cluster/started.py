"""A cluster in memory that is ready, and what it has acknowledged."""

from mdserver.core.events import StatusName
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster


def acked(cluster: Cluster, name: str) -> dict[object, tuple[int | None, int | None]]:
    """Return the positions of the publications that a member has acknowledged, by their ids."""
    return {
        status.id: (status.epoch, status.seq)
        for status in cluster.members[name].statuses
        if status.status is StatusName.PUBLISH_OK
    }


def started(count: int = 3, **settings: object) -> Cluster:
    """Return a cluster of so many members, all of which are ready."""
    cluster = Cluster(count, **settings)  # type: ignore[arg-type]
    cluster.start()
    cluster.until(cluster.ready, limit=1000 * S)
    return cluster
