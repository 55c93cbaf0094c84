"""A wire that puts packets out of order: TCP puts them in order again."""

import subprocess
import sys

import pytest

from simulation.chaos import namespaces

pytestmark = pytest.mark.slow
ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
stream, _ = listener.accept()
with stream:
    while data := stream.recv(65536):
        stream.sendall(data)
"""
SCRIPT = """
import socket, sys
import trio
from simulation.chaos.namespaces import Namespaces
from simulation.chaos.processes import begun, end

PORT, PIECE, TEXT = 7000, 10_240, bytes(range(256)) * 8_000

def exchange(address):
    with socket.create_connection(address, 60) as stream:
        stream.settimeout(60)
        back = b""
        for at in range(0, len(TEXT), PIECE):
            stream.sendall(TEXT[at : at + PIECE])
            while len(back) < at + PIECE:
                back += stream.recv(65_536)
        assert back == TEXT

async def main():
    wire = Namespaces(2)
    async with trio.open_nursery() as nursery:
        await nursery.start(wire.run)
        host, _ = wire.peer(0)
        for shuffled in ([0], []):
            await wire.shuffle(shuffled)
            command = [*wire.command(0), sys.executable, "-c", sys.argv[1], host, str(PORT)]
            server = await begun(command)
            try:
                await trio.to_thread.run_sync(exchange, (host, PORT))
            finally:
                end(server)
            if shuffled:
                await wire.shuffle([])
                assert wire.disordered > 0
        nursery.cancel_scope.cancel()

for _ in range(2):  # a network is gone with its run, so there is room for the next
    trio.run(main)
"""


@pytest.fixture(autouse=True)
def possible() -> None:
    """Skip if no namespace can be made here, which only trying tells."""
    why = namespaces.missing()
    if why is not None:
        pytest.skip(f"no namespaces: {why}")


def test_what_is_sent_arrives_in_order_although_packets_overtake_each_other() -> None:
    done = subprocess.run(
        [*namespaces.unsharing(), sys.executable, "-c", SCRIPT, ECHO],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
