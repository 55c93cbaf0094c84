"""The client for asyncio (docs/clients.md).

It is the client of `mdserver.client`, which runs under the event loop in which it is entered; this
module only gives it a name of its own. A client belongs to the loop and the thread in which it was
entered. One task may enter it and another task leave it, so it works in fixtures, notebooks and the
lifespan of a web application.
"""

from mdserver.client import *  # noqa: F403
from mdserver.client import __all__  # noqa: F401
