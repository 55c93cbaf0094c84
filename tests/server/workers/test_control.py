"""The control channel between a server and a worker."""

import socket
from contextlib import aclosing
from typing import Any

import pytest
import trio
import trio.testing

from mdserver.server.workers import control
from mdserver.server.workers.control import AskRefusedError, Channel, ControlError, first_message

LEVEL = control.SetWorkerLogLevel("debug")


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


async def test_a_question_gets_the_answer_of_its_number() -> None:
    here, there = (Channel(sock) for sock in pair())
    try:

        async def answer() -> None:
            asked = []
            async for message in there.messages():
                assert isinstance(message, control.Question)
                asked.append(message)
                if len(asked) == 2:
                    for question in reversed(asked):
                        value = question.values["n"]
                        await there.send(control.QuestionAnswer(question.number, value))

        async def listen() -> None:
            async for message in here.messages():
                raise AssertionError(message)

        found: dict[int, object] = {}

        async def ask(number: int) -> None:
            found[number] = await here.ask("n", {"n": number}, b"\xff")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            nursery.start_soon(listen)
            async with trio.open_nursery() as asking:
                asking.start_soon(ask, 1)
                asking.start_soon(ask, 2)
            nursery.cancel_scope.cancel()
        assert found == {1: 1, 2: 2}
    finally:
        here.close()
        there.close()


async def test_a_side_that_is_gone_answers_nothing_and_ends_the_messages() -> None:
    here, there = (Channel(sock) for sock in pair())
    there.close()
    try:
        assert [message async for message in here.messages()] == []
        assert await here.ask("n", {}) is None
    finally:
        here.close()


async def test_a_question_that_is_given_up_halfway_tears_no_later_message() -> None:
    here, there = (Channel(sock) for sock in pair())
    try:
        with trio.CancelScope() as asking:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.ask, "n", {}, bytes(1_000_000))
                await trio.testing.wait_all_tasks_blocked()
                asking.cancel()  # nobody reads, so the socket has taken a part of it
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.send, LEVEL)
                async with aclosing(there.messages()) as messages:
                    asked = await anext(messages)
                    assert isinstance(asked, control.Question)
                    assert asked.body == bytes(1_000_000)
                    assert await anext(messages) == LEVEL
    finally:
        here.close()
        there.close()


async def answering(channel: Channel, values: dict[str, Any]) -> None:
    """Answer each question with the value of its name, until the channel ends."""
    async with aclosing(channel.messages()) as messages:
        async for message in messages:
            assert isinstance(message, control.Question)
            await channel.answer(message.number, values[message.what])


async def test_answers_too_large_for_a_message_come_in_parts_or_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "WORKER_CONTROL_BYTES_MAX", 1000)
    rows = [{"session": f"s-{number}", "text": "x" * 50} for number in range(200)]
    here, there = (Channel(sock) for sock in pair())

    async def hear() -> None:
        assert [message async for message in here.messages()] == []

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answering, there, {"rows": rows, "row": ["x" * 2000], "few": [1]})
            nursery.start_soon(hear)
            with trio.fail_after(60):
                assert await here.ask("rows", {}) == rows
                with pytest.raises(AskRefusedError, match=r"1,000 bytes at once, not 2,0\d\d"):
                    await here.ask("row", {})
                with pytest.raises(AskRefusedError, match="bytes"):
                    await here.ask("few", {}, bytes(2000))
                assert await here.ask("few", {}) == [1], "the channel goes on"
            nursery.cancel_scope.cancel()
    finally:
        here.close()
        there.close()


async def test_the_first_message_takes_no_byte_of_the_next() -> None:
    one, two = pair()
    here = Channel(one)
    try:
        await here.send(LEVEL)
        await here.send(control.DrainWorker())
        assert first_message(two) == LEVEL
        there = Channel(two)
        async with aclosing(there.messages()) as messages:
            assert await anext(messages) == control.DrainWorker()
        there.close()
    finally:
        here.close()


async def test_what_is_no_message_is_refused() -> None:
    for data, reason in (
        (b"\0\0\0\x02{}", "cannot be understood"),
        (b'\0\0\0\x03"\xf2"', "cannot be understood"),
        (b"\xff\xff\xff\xff", "4294967295 bytes"),
    ):
        one, two = pair()
        there = Channel(two)
        try:
            one.sendall(data)
            with pytest.raises(ControlError, match=reason):
                async for _ in there.messages():
                    pass
        finally:
            one.close()
            there.close()


def test_a_server_that_ends_at_once_is_noticed() -> None:
    one, two = pair()
    one.close()
    with two, pytest.raises(ControlError, match="ended before"):
        first_message(two)
