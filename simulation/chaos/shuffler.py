"""A wire on which packets overtake each other and come twice: `shuffler ONE OTHER SEED`.

Takes every Ethernet frame that one interface receives to the other, both ways, by packet sockets
(packet(7)). It is a process of its own, needs CAP_NET_RAW in its network namespace, and runs until
it is killed. With each frame goes what the kernel has put off for it (checksums, segmentation), by
the header of PACKET_VNET_HDR.
"""

import heapq
import random
import select
import socket
import sys
import time
from contextlib import suppress

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ETH_P_ALL = 3
FRAME_BYTES_MAX = 80_000  # of 64 KB that are segmented later, with all headers
LATE, TWICE = 0.15, 0.1
"""How many frames are overtaken, and how many come a second time."""
LATE_MAX_S = 0.06
READY = "ready"


def opened(interface: str) -> socket.socket:
    """Return a socket for all that comes in at an interface."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.bind((interface, ETH_P_ALL))
    opened.setblocking(False)
    return opened


def main(one: str, other: str, seed: str) -> None:
    """Carry frames until killed."""
    rng = random.Random(seed)
    ends = {opened(one): opened(other)}
    ends |= {far: near for near, far in ends.items()}
    waiting: list[tuple[float, int, bytes, socket.socket]] = []
    count = 0
    print(READY, flush=True)
    while True:
        patience_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select(list(ends), [], [], patience_s)
        now = time.monotonic()
        for near in readable:
            frame = near.recv(FRAME_BYTES_MAX)
            for _ in range(1 + (rng.random() < TWICE)):
                late = rng.random() * LATE_MAX_S if rng.random() < LATE else 0.0
                count += 1
                heapq.heappush(waiting, (now + late, count, frame, ends[near]))
        while waiting and waiting[0][0] <= now:
            _, _, frame, far = heapq.heappop(waiting)
            with suppress(OSError):  # a frame that is lost is sent again by whoever needs it
                far.send(frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
