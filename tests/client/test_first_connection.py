"""The wait for the first connection: what ends it, and what begins it again."""

import trio
from trio.testing import MockClock

from mdserver.client.client import Client
from mdserver.client.errors import ConnectError


def test_it_fails_once_and_begins_again_with_each_connect() -> None:
    """Nobody listens at port 1, so nothing is ever reached; the clock of Trio jumps."""

    async def main() -> list[str]:
        said: list[str] = []
        async with Client(["127.0.0.1:1"], connect_timeout_s=7) as client:
            for _ in range(2):
                began = trio.current_time()
                try:
                    await client.connected()
                except ConnectError as error:
                    said.append(f"{trio.current_time() - began:.0f} {str(error).partition(':')[0]}")
                try:
                    await client.connected()  # it has failed already
                except ConnectError:
                    said.append("at once")
                client.connect()
            client.disconnect()
        return said

    expected = ["7 no server was reached in 7 s", "at once"]
    assert trio.run(main, clock=MockClock(autojump_threshold=0.05)) == 2 * expected
