"""A replay into a server: what is compressed reaches subscribers as what it was."""

from pathlib import Path
from typing import Any

import pytest
import trio

from mdserver.client.client import Client
from mdserver.client.message import deflated
from mdserver.core.message import Publication
from mdserver.pipeline.replay.job import plan, publish, rows
from mdserver.pipeline.replay.windows import Selection
from tests.live import live_server

from .conftest import archived

pytestmark = pytest.mark.pipeline

TIMEOUT_S = 60


def test_compressed_content_is_readable_after_a_replay(spark: Any, tmp_path: Path) -> None:
    publication = Publication(
        "/a/b", deflated("prices"), text=False, compressed=True, closure="c", fields={"f": "1"}
    )
    folder = archived(spark, tmp_path, [publication])
    chosen = rows(folder, Selection("/**"))

    async def replayed(address: str) -> tuple[str | bytes, str | None, dict[str, str]]:
        with trio.fail_after(TIMEOUT_S):
            async with Client([address]) as client:
                done = await publish(client, plan(chosen, None, "/replay"))
                assert done.published == 1
                async with client.subscribe("/replay/a/b", history=1) as subscription:
                    async for message in subscription:
                        return message.content, message.closure, dict(message.fields)
        raise AssertionError

    with live_server(tmp_path) as server:
        assert trio.run(replayed, server.url) == ("prices", "c", {"f": "1"})
