"""A worker's process as the server sees it."""

import trio

from mdserver.server.workers.process import start_process


async def test_a_process_whose_server_says_nothing_ends_and_says_how() -> None:
    worker = await start_process([])
    worker.channel.close()
    with trio.fail_after(60):
        await worker.watch()
    worker.peer.close()
    assert worker.ended.is_set()
    assert worker.describe_end() == "exit status 1"
    lines: list[bytes] = []
    with trio.fail_after(60):
        await worker.pump_log(lines.append)
    assert lines == []


async def test_a_killed_process_is_told_by_its_signal() -> None:
    worker = await start_process([])
    worker.kill()
    with trio.fail_after(60):
        await worker.watch()
        await worker.pump_log(lambda _: None)
    await worker.end()
    worker.peer.close()
    assert worker.describe_end() == "signal SIGKILL"
