"""The stream `log` grows until it is written anew, whatever a group holds: nobody ends by that."""

from pathlib import Path

import pytest
import trio

from mdserver.client import Client
from mdserver.journal import segments
from mdserver.limits import JOURNAL_LOG_BYTES_MIN
from tests.journal.test_journal_process import history_of, options
from tests.live import live_server

CONTENT_BYTES = 60_000
TIMEOUT_S = 60


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["commit", "none"])
async def test_a_quiet_publisher_of_large_messages_ends_nobody(tmp_path: Path, fsync: str) -> None:
    """One message at a time, until the log was written anew, and once more after a restart."""
    arguments = options(
        tmp_path, 0, JournalFsync=fsync, MaxCachedMessagesPerSubject="2000", CacheExpireTime="1h"
    )
    filler = "x" * CONTENT_BYTES
    count = 0
    for _ in range(2):
        with live_server(tmp_path, *arguments) as server:
            with trio.fail_after(TIMEOUT_S):
                async with Client([server.url]) as client:
                    for _ in range(JOURNAL_LOG_BYTES_MIN // CONTENT_BYTES):
                        count += 1
                        await client.publish("/a/b", f"{count} {filler}")
            server.process.kill()
            server.process.wait()
        first = segments.sealed(tmp_path / "journal" / "log")[0].number
        assert first > 1, "the log was written anew, and what stood before it is gone"
    with live_server(tmp_path, *arguments) as server:
        texts = [text.partition(" ")[0] for _, _, text in history_of(server)]
    assert texts == [str(number) for number in range(1, count + 1)][-1000:]
