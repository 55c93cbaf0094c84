"""What members say of themselves to operators: read again and again during a run."""

import base64
import json
from typing import Any

import h11
import trio
from attrs import frozen

from simulation.chaos.members import PASSWORD, USER
from simulation.chaos.proxy import Address
from simulation.chaos.wire import text

ANSWER_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
NORMAL = ("NORMAL", "DRAINED")
"""The states of a member that votes in every group."""


class NoAnswerError(Exception):
    """A member did not answer, or not as it should."""


async def ask(address: Address, path: str, method: str = "GET") -> bytes:
    """The body of an answer with 200. Raises NoAnswerError."""
    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            async with await trio.open_tcp_stream(*address) as stream:
                return await _exchange(stream, address, path, method)
    except (OSError, trio.TooSlowError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
        raise NoAnswerError(f"{method} {path}: {str(error) or type(error).__name__}") from None


async def _exchange(stream: trio.SocketStream, address: Address, path: str, method: str) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = [
        ("Host", text(address)),
        ("Authorization", f"Basic {credentials}"),
        ("Connection", "close"),
        ("Content-Length", "0"),
        ("X-Mdserver", "1"),
    ]
    request = connection.send(h11.Request(method=method, target=path, headers=headers)) or b""
    await stream.send_all(request + (connection.send(h11.EndOfMessage()) or b""))
    status, body = 0, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(65_536))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
            if len(body) > ANSWER_BYTES_MAX:
                raise NoAnswerError(f"{method} {path}: the answer has no end")
        elif isinstance(event, h11.EndOfMessage):
            break
    if status != 200:
        raise NoAnswerError(f"{method} {path}: {status} {body.decode(errors='replace').strip()}")
    return body


@frozen
class Seeds:
    """The list of seeds that a member knows, and whether a change of it goes on."""

    number: int
    seeds: list[str]
    next: list[str] | None
    missing: list[str]
    settled: bool

    @property
    def at_rest(self) -> bool:
        """Whether this member knows of nothing that is to come."""
        return self.next is None and self.settled and not self.missing


@frozen
class Status:
    """One member's answer: its state, and of each group what it thinks of it."""

    at: float
    state: str
    quorum: bool
    coordinators: list[str | None]
    epochs: list[int]
    committed: list[int]
    lengths: list[int]
    lag: int
    history: str
    led: int  # groups that it coordinates itself
    seeds: Seeds | None  # None: nobody votes in Standard mode, and releases before have no lists

    @property
    def shown(self) -> str:
        """In a few words."""
        quorum = "" if self.quorum else ", no quorum"
        return f"{self.state}{quorum}, history {self.history[:4]}"

    @property
    def trouble(self) -> str | None:
        """What keeps this from being the status of a member at rest."""
        if self.state != "NORMAL":
            return f"is {self.state}"
        if None in self.coordinators:
            return "knows a group without a coordinator"
        return f"has {self.lag} entries that are not committed" if self.lag else None


async def status_of(address: Address, me: str) -> Status:
    """A member's status. Raises NoAnswerError."""
    body = await ask(address, "/cluster/status")
    answer: dict[str, Any] = json.loads(body)
    groups = answer["groups"]
    (own,) = (row for row in answer["members"] if row["address"] == me)
    coordinators = [row["coordinator"] for row in groups]
    return Status(
        at=trio.current_time(),
        state=own["state"],
        quorum=answer["quorum"],
        coordinators=coordinators,
        epochs=[row["epoch"] for row in groups],
        committed=[row["committed"] for row in groups],
        lengths=[row["committed"] + row["lag"] for row in groups],
        lag=sum(row["lag"] for row in groups),
        history=answer["history"] or "several",
        led=coordinators.count(me),
        seeds=Seeds(**answer["seeds"]) if "seeds" in answer else None,
    )
