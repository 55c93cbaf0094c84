"""Draining, failing, and giving up rights."""

import json
import os
import pwd
import subprocess
import sys
from typing import Any

import pytest
import trio

from mdserver import limits
from mdserver.core.outputs import Output
from mdserver.errors import StartError
from mdserver.limits import NS_PER_MS
from mdserver.server.http.router import Router
from mdserver.server.privileges import drop_privileges
from mdserver.server.server import NodeFailedError
from mdserver.server.settings import ServerSettings
from tests.server.raw import CLOSE, TEXT, close_payload, connected, frame, upgraded
from tests.server.serving import port_of, serving

SUBSCRIBE = frame(TEXT, b'{"op":"subscribe","subjects":["/a/b"]}')


async def test_drain_tells_sessions_to_move_and_waits_for_them() -> None:
    async with serving(handler=Router()) as server:
        async with upgraded(port_of(server)) as client, connected(port_of(server)) as idle:
            await client.send(SUBSCRIBE)
            await client.frame()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.drain, ["http://other:8800"])
                move = json.loads((await client.frame())[1])
                assert (move["op"], move["reason"]) == ("move", "drain")
                assert move["servers"] == ["http://other:8800"]
                assert 0 <= move["delay_ms"] <= limits.DRAIN_SPREAD_MS_MIN
                assert await idle.rest() == b""
                assert server.unready == "draining"
                with pytest.raises(OSError, match="connect"):
                    await trio.open_tcp_stream("127.0.0.1", port_of(server))
                await client.send(frame(CLOSE, close_payload(1000)))
                assert await client.closed_with() == 1000
        assert server.connections == 0


async def test_who_does_not_move_is_closed_with_4003() -> None:
    settings = ServerSettings(drain_timeout=100 * NS_PER_MS)
    async with (
        serving(settings) as server,
        upgraded(port_of(server)) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.drain)
        assert b"move" in (await client.frame())[1]
        assert await client.closed_with() == limits.CLOSE_SHUTTING_DOWN


class Failing:
    """A node with a bug: the second command breaks it."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002
        self.steps += 1
        assert self.steps < 2, "an invariant"
        return []


async def test_a_broken_invariant_ends_the_server() -> None:
    """A node that is wrong must not go on answering clients."""
    node = Failing()

    async def serve() -> None:
        async with serving(node=node) as server, upgraded(port_of(server)) as client:
            await client.send(SUBSCRIBE)
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught, trio.fail_after(10):
        await serve()
    assert caught.group_contains(NodeFailedError, depth=None)
    assert node.steps == 2


def test_becoming_a_user_that_is_not_there() -> None:
    with pytest.raises(StartError, match="there is no such user"):
        drop_privileges("no-such-user-here")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has groups to take away")
@pytest.mark.parametrize("capable", [True, False])
def test_becoming_oneself_takes_the_groups_of_others_away(capable: bool) -> None:
    program = (
        "import os, pwd; from mdserver.errors import StartError\n"
        "from mdserver.server.privileges import drop_privileges\n"
        "nobody = pwd.getpwnam('nobody'); os.setgroups([0, 6])\n"
        "os.setresgid(*3 * [nobody.pw_gid])\n"
        f"os.setresuid(nobody.pw_uid, nobody.pw_uid, {0 if capable else 'nobody.pw_uid'})\n"
        f"if {capable}: os.seteuid(0)\n"
        "try: drop_privileges('nobody')\nexcept StartError as error: print(error)\n"
        "print(os.getresuid(), os.getgroups())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    nobody = pwd.getpwnam("nobody")
    *refused, after = done.stdout.splitlines()
    if capable:
        assert (refused, after) == ([], f"{(nobody.pw_uid,) * 3} [{nobody.pw_gid}]")
    else:
        assert "groups that this user has not (0, 6" in refused[0]


def test_becoming_oneself_with_ones_own_groups_changes_nothing() -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    program = (
        "import os, sys\nfrom mdserver.server.privileges import drop_privileges\n"
        "before = os.getresuid()\n"
        f"drop_privileges({user!r}); sys.exit(os.getresuid() != before)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_root_becomes_nobody_for_good() -> None:
    program = (
        "import os\nfrom mdserver.server.privileges import drop_privileges\n"
        "drop_privileges('nobody'); "
        "print(os.getuid(), os.getgid(), os.getgroups())\n"
        "try: os.setuid(0)\nexcept PermissionError: print('for good')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    nobody = pwd.getpwnam("nobody")
    assert done.stdout.splitlines()[0].startswith(f"{nobody.pw_uid} {nobody.pw_gid} ")
    assert done.stdout.splitlines()[1] == "for good"
