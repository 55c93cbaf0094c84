"""Publishers that are known to every member of a test, without having asked one before."""

import random

from mdserver.core.commands import Connect
from mdserver.core.publishers import PublisherKeys

SECRET = b"test"
KEYS = PublisherKeys(SECRET, random.Random(1))


def known(name: str | None) -> Connect:
    """The first command of a publisher whose identity is its name, or of somebody else."""
    if name is None:
        return Connect()
    return Connect(publisher=name, publisher_key=KEYS.key(name))
