"""The log is written anew on a disk that fails: nothing acknowledged is lost, nothing refused comes
back, and one line says what is wrong.
"""

from pathlib import Path

import pytest
import trio

from mdserver.client import Client, ClientTimeoutError, PublishError
from mdserver.journal import segments
from mdserver.limits import JOURNAL_LOG_BYTES_MIN
from tests.disk.conftest import FailingDisk
from tests.disk.servers import killed
from tests.journal.test_journal_process import history_of, options, ready, wait_until
from tests.live import STOP_TIMEOUT_S, LiveServer, lines_about, live_server, wait_for_line

CONTENT_BYTES = 500_000
TIMEOUT_S = 60
FIRST = "*/journal/log/seg-000000000001.open"
SECOND = "*/journal/log/seg-000000000002.open"
"""The segment that the first picture begins with."""
CACHED = 20
SETTINGS = {
    "MaxCachedMessagesPerSubject": f"{CACHED}",
    "CacheExpireTime": "1h",
    "MaxMessageSize": "1048576",
}


def numbers_of(server: LiveServer) -> list[str]:
    return [text.partition(" ")[0] for _, _, text in history_of(server)]


def oldest(folder: Path) -> int:
    """The number of the oldest segment of the log, 0 while there is none that is sealed."""
    found = segments.sealed(folder / "journal" / "log")
    return found[0].number if found else 0


async def fill(client: Client, taken: list[str]) -> PublishError | None:
    """Publish until the log is written anew, or until that fails."""
    filler = "x" * CONTENT_BYTES
    try:
        for number in range(2 * JOURNAL_LOG_BYTES_MIN // CONTENT_BYTES):
            await client.publish("/a/b", f"{number} {filler}")
            taken.append(f"{number}")
    except PublishError as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        f"write ENOSPC -1 {SECOND}",
        f"write EIO -1 {SECOND}",
        f"open ENOSPC -1 {SECOND}",
        f"open EIO -1 {SECOND}",
        f"rename EIO -1 {FIRST}",
        "write ENOSPC -1 */journal/log/stream.id",
    ],
)
async def test_a_log_that_cannot_be_written_anew_waits_and_is_written_then(
    tmp_path: Path, disk: FailingDisk, rule: str
) -> None:
    arguments = options(tmp_path, 0, **SETTINGS)
    taken: list[str] = []
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        async with Client([server.url]) as client:
            await client.publish("/a/b", "first")
            taken.append("first")
            disk.fails(rule)
            with trio.fail_after(TIMEOUT_S):
                refused = await fill(client, taken)
            assert refused is not None
            assert refused.result.certain
            assert ready(server)[0] == 503
            wait_for_line(server.log, "journal blocked")
            assert oldest(tmp_path) <= 1, "what stood there before is there"
            disk.works()
            wait_until(lambda: ready(server)[0] == 200, "a server that is ready")
            with trio.fail_after(TIMEOUT_S):
                await client.publish("/a/b", "after")
            taken.append("after")
        wait_until(lambda: oldest(tmp_path) > 1, "a log that was written anew")
        assert len(lines_about(server.log, "journal blocked")) == 1
        assert numbers_of(server) == taken[-CACHED:]
        killed(server)
    with live_server(tmp_path, *arguments) as server:
        assert numbers_of(server) == taken[-CACHED:]


@pytest.mark.slow
async def test_a_checkpoint_that_may_not_be_on_the_disk_ends_the_server(
    tmp_path: Path, disk: FailingDisk
) -> None:
    arguments = options(tmp_path, 0, **SETTINGS)
    taken: list[str] = []
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        disk.fails(f"fsync EIO 1 {SECOND}")
        async with Client([server.url], timeout_s=5) as client:
            with trio.fail_after(TIMEOUT_S), pytest.raises(ClientTimeoutError):
                await fill(client, taken)
        assert server.process.wait(STOP_TIMEOUT_S) == 1
        (told,) = [line for line in server.log.read_text().splitlines() if "broken" in line]
        assert told.startswith("mdserver: The journal is broken: ")
    with live_server(tmp_path, *arguments) as server:
        found = numbers_of(server)
    last = found.index(taken[-1])
    assert found[: last + 1] == taken[-CACHED:][-last - 1 :]
