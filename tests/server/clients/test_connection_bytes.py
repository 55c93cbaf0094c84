"""What an idle subscribed connection keeps in memory."""

import gc
import subprocess
import sys
import tracemalloc

import pytest
import trio
import trio.testing

from tests.server.serving import port_of, serving

COUNT = 300
BYTES_MAX = 6400  # by tracemalloc, which leaves out what the kernel and the allocator add
CROWD = """
import socket, sys
upgrade = b"GET /ws HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nUpgrade: websocket\\r\\n"
upgrade += b"Connection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
upgrade += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n"
subscribe = b'{"op":"subscribe","subjects":["/a/b"]}'
crowd = []
for _ in range(int(sys.argv[2])):
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    sock.sendall(upgrade + bytes((0x81, 0x80 | len(subscribe))) + bytes(4) + subscribe)
    crowd.append(sock)
for sock in crowd:
    received = b""
    while b"connected" not in received:
        received += sock.recv(4096)
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
async def test_an_idle_connection_keeps_little() -> None:
    async with serving() as server:

        async def connect(count: int) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", CROWD, str(port_of(server)), str(count)]
            crowd = subprocess.Popen(  # noqa: ASYNC220 - at once
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert crowd.stdout is not None
            await trio.to_thread.run_sync(crowd.stdout.readline)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            return crowd

        crowds = [await connect(20)]  # what the first ones load is no cost of a connection
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            crowds.append(await connect(COUNT))
            after, _ = tracemalloc.get_traced_memory()
            assert server.connections == 20 + COUNT
            assert (after - before) / COUNT < BYTES_MAX
        finally:
            tracemalloc.stop()
            for crowd in crowds:
                with crowd:
                    crowd.kill()
