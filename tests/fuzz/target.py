"""A live server with everything on, what is sent to it, and whether it is well afterwards."""

import base64
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import define

from mdserver.bench.processes import free_ports
from mdserver.codec.binary_form import COMMAND
from mdserver.codec.frames import frame as binary_frame
from mdserver.limits import SUBPROTOCOL_BINARY
from tests.fuzz.inputs import EVERYTHING, GOOD_TOKEN, SECRET, TOKEN_MARK, Input, packed, token
from tests.live import LiveServer, live_server
from tests.server.raw import BINARY, TEXT, RawClient, frame, upgrade

INPUT_S = 0.3  # after which an input that is not answered is left alone
WELL_S = 20.0  # in which a well-behaved client has to be served, on a busy machine
AT_ONCE = 80
ENDED = (OSError, trio.BrokenResourceError, AssertionError)
END_MARK = b"the end of the input"


class Unwell(Exception):  # noqa: N818 - what is wrong is in its text
    """The server ended, serves nobody, or has written a traceback."""


@define
class Target:
    """One running server."""

    server: LiveServer
    peer_port: int
    folder: Path
    read: int = 0

    async def play(self, inputs: Sequence[Input]) -> None:
        """Send all inputs, some at the same time, and read what is answered."""
        room = trio.Semaphore(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for one in inputs:
                await room.acquire()
                nursery.start_soon(self._play, one, room)

    async def _play(self, one: Input, room: trio.Semaphore) -> None:
        try:
            # The server may end the connection at any time.
            with suppress(*ENDED), trio.move_on_after(INPUT_S):
                await self._send(one)
        finally:
            room.release()

    async def _send(self, one: Input) -> None:
        port = self.peer_port if one.kind == "peer" else self.server.port
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            client = RawClient(stream)
            if one.kind in ("peer", "http"):
                await stream.send_all(one.data.replace(TOKEN_MARK, GOOD_TOKEN))
                await stream.send_eof()
                await client.rest()
            else:
                await self._send_in_session(client, one)

    async def _send_in_session(self, client: RawClient, one: Input) -> None:
        binary = one.kind == "binary"
        lines = [f"Sec-WebSocket-Protocol: {SUBPROTOCOL_BINARY}"] if binary else []
        key = base64.b64encode(os.urandom(16))
        given = one.data.decode(errors="surrogateescape") if one.kind == "token" else None
        connect = {"op": "connect", "token": given or GOOD_TOKEN.decode()}
        await client.send(upgrade("/ws", *lines, key=key) + said(connect, binary=binary))
        await client.until(b"\r\n\r\n")
        if one.kind == "frames":
            await client.send(one.data)
        elif one.kind != "token":
            await client.send(frame(BINARY if binary else TEXT, one.data))
        await client.send(said({"op": "ping", "t": END_MARK.decode()}, binary=binary))
        await client.until(END_MARK)

    async def check(self) -> None:
        """Raise Unwell unless the server runs, serves others, and logged no error."""
        if self.server.process.poll() is not None:
            raise Unwell(f"the server ended with {self.server.process.returncode}\n{self._said()}")
        try:
            with trio.fail_after(WELL_S):
                await self._round_trip()
        except (*ENDED, trio.TooSlowError) as error:
            raise Unwell(
                f"a well-behaved client is not served: {error!r}\n{self._said()}"
            ) from None
        errors = self._errors()
        if errors:
            raise Unwell("\n".join(errors))

    async def _round_trip(self) -> None:
        """Publish something new, and get it as a subscriber."""
        content = secrets.token_hex(8)
        async with await trio.open_tcp_stream("127.0.0.1", self.server.port) as stream:
            client = RawClient(stream)
            await client.send(upgrade("/ws"))
            await client.until(b"\r\n\r\n")
            own = token({**EVERYTHING, "sub": "neighbour"}).decode()
            for command in (
                {"op": "connect", "token": own},
                {"op": "subscribe", "subjects": ["/neighbour/own"], "id": 1},
                {"op": "publish", "subject": "/neighbour/own", "content": content, "id": 2},
            ):
                await client.send(said(command))
            await client.until(content.encode())

    def _errors(self) -> list[str]:
        with (self.folder / "mdserver.log").open("rb") as log:
            log.seek(self.read)
            lines = log.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self.read += len(lines)
        return [
            line.decode(errors="backslashreplace")
            for line in lines.splitlines()
            if json.loads(line)["level"] in ("error", "critical") or b"Traceback" in line
        ]

    def _said(self) -> str:
        return self.server.log.read_text(errors="backslashreplace")[-4000:]

    def resident_kib(self) -> int:
        """How much memory the server has."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


def said(command: dict[str, Any], *, binary: bool = False) -> bytes:
    """A command as a WebSocket message."""
    if binary:
        return frame(BINARY, binary_frame(COMMAND, packed(command)))
    return frame(TEXT, json.dumps(command).encode())


@contextmanager
def target(folder: Path) -> Iterator[Target]:
    """A member of a cluster of one, where tokens decide, with every log and a journal."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    (peer_port,) = free_ports(1)
    member = f"127.0.0.1:{peer_port}"
    settings = [
        "Listen=127.0.0.1:0",
        "NodeName=fuzzed",
        "Entitlement=JWT",
        "MaxCacheBytes=64MB",
        f"EntitlementJWT.HmacSecretFile={secret}",
        f"LogFolder={folder}",
        "LogRotateLimit=1GB",
        f"ClusterMembers={member}",
        f"ClusterMemberListen={member}",
        "ClusterSubjectGroups=8",
        f"ClusterMemberCoordinationFolder={folder}",
        "Extension.Presence=true",
        "Extension.Audit.Access=true",
        "Extension.Audit.Message=true",
        "Journal=on",
        f"JournalFolder={folder / 'journal'}",
        "JournalFsync=none",
        "JournalSizeLimit=256MB",
    ]
    arguments = [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "MDSERVER_CLUSTERPASSWORD": secrets.token_hex(16)}
    with live_server(folder, *arguments, environment=environment) as server:
        yield Target(server, peer_port, folder)
