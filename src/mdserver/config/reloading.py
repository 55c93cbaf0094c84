"""Which changes a running server takes from a configuration that was read again."""

import attrs
from attrs import frozen

from mdserver.config.table import PARAMETERS, Config


@frozen
class Reload:
    """The result of a reload.

    `config` is in force from now on. `taken` names the parameters whose new values are in force,
    `refused` those that need a restart. With a `mistake` nothing was taken.
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
    taken = [row for row in changed if row.reloadable]
    return Reload(
        attrs.evolve(old, **{row.attribute: getattr(new, row.attribute) for row in taken}),
        tuple(row.name for row in taken),
        tuple(row.name for row in changed if not row.reloadable),
    )
