"""Which changes a running server takes from a configuration that was read again."""

import attrs
from attrs import frozen

from mdserver.config.table import PARAMETERS, Config

_OF_MEMBERS = ("ClusterMembers", "ClusterSeedMemberCount")


@frozen
class Reload:
    """The result of a reload.

    `config` is in force from now on. `taken` names the parameters whose new values are in force,
    `refused` those that need a restart; one that is taken in part is in both. With a `mistake`
    nothing was taken.
    """

    config: Config
    taken: tuple[str, ...]
    refused: tuple[str, ...]
    mistake: str | None = None


def reloaded(old: Config, new: Config) -> Reload:
    """Return `old` with the reloadable changes of `new`."""
    changed = [
        row
        for row in PARAMETERS.values()
        if getattr(old, row.attribute) != getattr(new, row.attribute)
    ]
    # A single server becomes no member of a cluster while it runs, nor the other way round.
    alone = not (old.cluster_members and new.cluster_members)
    left = [row for row in changed if not row.reloadable or (alone and row.name in _OF_MEMBERS)]
    taken = [row for row in changed if row not in left]
    return Reload(
        attrs.evolve(old, **{row.attribute: getattr(new, row.attribute) for row in taken}),
        tuple(row.name for row in taken),
        tuple(row.name for row in left),
    )
