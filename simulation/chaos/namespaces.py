"""Members in network namespaces of their own, on a bridge, with nftables between them.

The run itself is in a namespace that `unshare` made for it, so nothing of this is ever seen by the
host, and the kernel takes it all down with the last process. Where `unshare` may be used by anybody
(user namespaces), no rights are needed.
"""

import os
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path

import trio

from simulation.chaos.processes import COMMAND_TIMEOUT_S, begun, end, run, why_not
from simulation.chaos.proxy import Address
from simulation.chaos.wire import Pair

NETWORK = "198.18.0"  # RFC 2544: set aside for tests of networks
HUB = f"{NETWORK}.254"
PEER_PORT, CLIENT_PORT, ENCRYPTED_PORT, MONITOR_PORT = 8900, 8800, 8443, 4001
SLOW = "rate 200kbit burst 4kb latency 300ms"
CUT_S = 0.3
TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
}
TABLE = """
table inet chaos {
  set blocked { type ipv4_addr; }
  set broken { type ipv4_addr; }
  chain arriving {
    type filter hook input priority 0; policy accept;
    ip saddr @broken meta l4proto tcp reject with tcp reset
    ip saddr @blocked drop
  }
}
"""
TRIAL = """set -e
ip link set lo up
ip link add hub type bridge
ip link add one type veth peer name two
ip link set one master hub up
tc qdisc replace dev two root tbf %s
nft -f - <<'END'
%s
END
unshare --net true
""" % (SLOW, TABLE)  # noqa: UP031 - the table is full of braces


def unsharing() -> list[str]:
    """The command that makes a namespace: for root, or for anybody by a user namespace.

    It is one of mounts as well, for the disks that members may have.
    """
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--net", "--mount"]


@cache
def missing() -> str | None:
    """Why namespaces cannot be used here; None if they can. Tries it in one that is thrown away."""
    return why_not("setting up a namespace", TOOLS, [*unsharing(), "sh", "-c", TRIAL])


class Namespaces:
    """See `Wire`. Only for a process that is alone in its namespace."""

    told = "network namespaces with nftables"
    alters = True
    reads = False

    def __init__(self, members: int) -> None:
        self._count = members
        self._holders: list[subprocess.Popen[bytes]] = []
        self._moves = 0
        self._shufflers: dict[int, subprocess.Popen[bytes]] = {}
        self.disordered = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """A bridge, and for each member a namespace that an idle process keeps."""
        await run("ip", "link", "set", "lo", "up")
        await run("ip", "link", "add", "hub", "type", "bridge")
        await run("ip", "address", "add", f"{HUB}/24", "dev", "hub")
        await run("ip", "link", "set", "hub", "up")
        try:
            for member in range(self._count):
                await self._add(member)
            task_status.started()
            await trio.sleep_forever()
        finally:
            for process in (*self._holders, *self._shufflers.values()):
                end(process)
            with trio.move_on_after(COMMAND_TIMEOUT_S, shield=True):
                # The kernel would take them away some time after the holders.
                for link in ("hub", *(f"{end}{n}" for n in range(self._count) for end in "mw")):
                    with suppress(RuntimeError):  # it is gone already, or never was
                        await run("ip", "link", "del", link)

    async def _add(self, member: int) -> None:
        holder = await begun(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"])
        self._holders.append(holder)
        near = f"m{member}"
        await run(
            "ip",
            "link",
            "add",
            near,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(holder.pid),
        )
        await run("ip", "link", "set", near, "master", "hub", "up")
        await self._inside(member, "ip", "link", "set", "lo", "up")
        address = f"{self.peer(member)[0]}/24"
        await self._inside(member, "ip", "address", "add", address, "dev", "eth0")
        await self._inside(member, "ip", "link", "set", "eth0", "up")
        await self._inside(member, "nft", "-f", "-", stdin=TABLE)

    async def _inside(self, member: int, *command: str, stdin: str = "") -> None:
        await run(*self.command(member), *command, stdin=stdin)

    def peer(self, member: int) -> Address:
        """Its address on the bridge."""
        return f"{NETWORK}.{member + 1}", PEER_PORT

    def bind(self, member: int) -> Address:
        """The same."""
        return self.peer(member)

    async def another(self, member: int) -> Address:
        """The next port of the member's own network: what is blocked goes by its host."""
        await trio.lowlevel.checkpoint()
        self._moves += 1
        return self.peer(member)[0], PEER_PORT + self._moves

    def clients(self, member: int) -> Address:
        """For clients."""
        return self.peer(member)[0], CLIENT_PORT

    def encrypted(self, member: int) -> Address:
        """For clients, by TLS."""
        return self.peer(member)[0], ENCRYPTED_PORT

    def monitor(self, member: int) -> Address:
        """For operators."""
        return self.peer(member)[0], MONITOR_PORT

    def command(self, member: int) -> list[str]:
        """Enter the member's namespace."""
        return ["nsenter", f"--net=/proc/{self._holders[member].pid}/ns/net", "--"]

    async def _set(self, member: int, name: str, senders: Collection[int]) -> None:
        """What arrives from these members meets this rule, from now on."""
        lines = f"flush set inet chaos {name}\n"
        if senders:
            addresses = ", ".join(self.peer(sender)[0] for sender in senders)
            lines += f"add element inet chaos {name} {{ {addresses} }}\n"
        await self._inside(member, "nft", "-f", "-", stdin=lines)

    async def block(self, pairs: Collection[Pair]) -> None:
        """Drop what comes from the first where the second is."""
        async with trio.open_nursery() as nursery:
            for member in range(self._count):
                senders = [a for a in range(self._count) if (a, member) in pairs]
                nursery.start_soon(self._set, member, "blocked", senders)

    async def slow(self, members: Collection[int]) -> None:
        """A token bucket on what they send (tc-tbf(8))."""
        for member in range(self._count):
            words = ["root", "tbf", *SLOW.split()] if member in members else ["root", "pfifo"]
            await self._inside(member, "tc", "qdisc", "replace", "dev", "eth0", *words)

    async def shuffle(self, members: Collection[int]) -> None:
        """Carry what they send and get by a process that changes its order (`shuffler`).

        It stands between a member's end of its wire and the bridge. While either is taken off the
        bridge, frames are lost.
        """
        for member in range(self._count):
            if (member in members) != (member in self._shufflers):
                await (self._shuffle if member in members else self._unshuffle)(member)

    async def _shuffle(self, member: int) -> None:
        near, one, other = f"m{member}", f"w{member}", f"b{member}"
        await run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
        await run("ip", "link", "set", one, "up")
        await run("ip", "link", "set", near, "nomaster")
        await run("ip", "link", "set", other, "master", "hub", "up")
        command = [sys.executable, "-m", "simulation.chaos.shuffler", near, one, str(member)]
        self._shufflers[member] = await begun(command)

    async def _unshuffle(self, member: int) -> None:
        self.disordered = sum(out_of_order(holder.pid) for holder in self._holders)
        end(self._shufflers.pop(member))
        await run("ip", "link", "del", f"w{member}")
        await run("ip", "link", "set", f"m{member}", "master", "hub")

    async def cut(self, member: int, draw: int) -> None:
        """Answer the others' segments with a reset, for a moment that ends at no boundary."""
        others = [other for other in range(self._count) if other != member]
        await self._set(member, "broken", others)
        await trio.sleep(CUT_S + draw % 100 / 1000)
        await self._set(member, "broken", [])


def out_of_order(process: int) -> int:
    """Return how many TCP segments came before earlier ones, in the network of a process."""
    lines = Path(f"/proc/{process}/net/netstat").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in lines[:2])
    return int(dict(zip(names, values, strict=True))["TCPOFOQueue"])
