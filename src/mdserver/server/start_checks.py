"""Checks what a configuration names before a start: files, keys, classes and addresses."""

from collections.abc import Callable, Iterator
from functools import partial

from mdserver import limits
from mdserver.config import Config, Entitlement
from mdserver.config.keys import token_verifier
from mdserver.errors import MdserverError
from mdserver.server.clients.admission import DESCRIPTORS_KEPT_BACK, lowered
from mdserver.server.member import open_member
from mdserver.server.plugins.custom import load_class
from mdserver.server.plugins.presence import METHODS
from mdserver.server.settings import server_settings
from mdserver.server.tls import Identity, KeyStore


def unusable(config: Config) -> list[str]:
    """Return a sentence for each thing that would keep a server from starting; change nothing."""
    mistakes = []
    for check in _checks(config):
        try:
            check()
        except MdserverError as error:
            mistakes.append(str(error))
    return mistakes


def limited(config: Config) -> list[str]:
    """Return a sentence for each parameter of which the system allows less.

    Nobody asked for as much as the default of MaxConnections: it counts only up to a figure below.
    """
    possible = lowered(config.max_connections)
    asked = config.max_connections != limits.CONNECTIONS_MAX
    if possible is None or (possible >= limits.CONNECTIONS_EXPECTED and not asked):
        return []
    return [lowered_sentence(config.max_connections, possible)]


def lowered_sentence(connections_max: int, possible: int) -> str:
    """Say how many connections there can be, and what would allow more."""
    return (
        f"MaxConnections = {connections_max}: this process may open only "
        f"{possible + DESCRIPTORS_KEPT_BACK} files, so it takes at most {possible} connections; "
        "raise that limit (LimitNOFILE of systemd, ulimit -Hn), or lower MaxConnections"
    )


def _checks(config: Config) -> Iterator[Callable[[], object]]:
    """Yield what a start does with the configuration, up to its first effect."""
    yield partial(server_settings, config)
    stores = dict.fromkeys((config.key_store,) if config.key_store else ())
    stores |= dict.fromkeys(files for _, files in config.key_stores)
    for files in stores:
        yield partial(Identity, KeyStore(*files), config.cipher_list)
    if config.entitlement is Entitlement.JWT:
        yield partial(token_verifier, config)
    if config.entitlement is Entitlement.CUSTOM:
        yield partial(load_class, config.custom_class)
    if config.presence_class:
        yield partial(
            load_class, config.presence_class, "Extension.Presence.Class", METHODS.values()
        )
    yield partial(open_member, config)
