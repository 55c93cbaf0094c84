"""The operator's presence class: told in order, its failures are its own."""

from typing import Any

import trio
import trio.testing

from mdserver.core.outputs import Log
from mdserver.limits import NS_PER_S
from mdserver.server.plugins.presence import PresenceHook, Subscriber

ANN = Subscriber("n1-1", "127.0.0.1", "ann", "phone-1")


class Told:
    """Remembers what it is told; a subject may say that it fails or takes long."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Subscriber, str]] = []

    async def _note(self, name: str, who: Subscriber, subject: str) -> None:
        if subject == "/slow/x":
            await trio.sleep(60)
        if subject == "/bad/x":
            raise ValueError("boom")
        self.calls.append((name, who, subject))

    async def joined(self, who: Subscriber, subject: str) -> None:
        await self._note("joined", who, subject)

    async def left(self, who: Subscriber, subject: str) -> None:
        await self._note("left", who, subject)


def line(name: str, subject: str, session: int = 1, stream: str = "presence") -> Log:
    values: dict[str, Any] = {
        "time": 1,
        "session": session,
        "address": "127.0.0.1",
        "transport": "websocket",
        "client": None,
        "user": "ann",
        "external_token": "phone-1",
        "subject": subject,
    }
    return Log(stream, name, values)


async def tell(*lines: Log) -> list[tuple[str, Subscriber, str]]:
    told = Told()
    hook = PresenceHook(told, 5 * NS_PER_S, "n1")
    async with trio.open_nursery() as nursery:
        await nursery.start(hook.run)
        for each in lines:
            hook.take(each)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(6)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    hook.take(line("join", "/after/the-end"))
    return told.calls


async def test_joins_and_leaves_come_in_order(autojump_clock: trio.testing.MockClock) -> None:
    calls = await tell(line("join", "/a/b"), line("join", "/a/*"), line("leave", "/a/b"))
    assert calls == [("joined", ANN, "/a/b"), ("joined", ANN, "/a/*"), ("left", ANN, "/a/b")]


async def test_a_failing_or_slow_call_is_its_own_loss(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = await tell(
        line("join", "/bad/x"), line("join", "/slow/x", session=2), line("leave", "/a/b")
    )
    assert calls == [("left", ANN, "/a/b")]


async def test_other_streams_are_nothing_to_it(autojump_clock: trio.testing.MockClock) -> None:
    assert await tell(line("connect", "/a/b", stream="access")) == []
