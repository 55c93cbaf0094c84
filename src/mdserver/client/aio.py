"""The client for asyncio (docs/clients.md).

It is the client of `mdserver.client`, which runs under whichever event loop it is entered in. A
client belongs to the loop and the thread in which it was entered; one task may enter it and another
one leave it, so it can live in fixtures, notebooks and the lifespan of a web application.
"""

from mdserver.client import *  # noqa: F403
from mdserver.client import __all__  # noqa: F401
