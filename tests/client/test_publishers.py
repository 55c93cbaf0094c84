"""Whose numbers are counted as whose: publishers of one name, against a server process."""

import secrets
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from mdserver.client import Client, ReconnectSettings, StoppedError
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.server.http.router import Router
from tests.client.judged import Judged
from tests.live import live_server
from tests.server.serving import serving

OPEN = ("--set", "Entitlement=None")
RECONNECT = ReconnectSettings(quick_initial_delay_s=0.05, quick_max_retries=200)


def single(*more: str) -> tuple[str, ...]:
    return ("--set", "Listen=127.0.0.1:0", *OPEN, *more)


@pytest.mark.parametrize("encoding", ["json", "binary"])
async def test_a_stranger_with_the_same_name_takes_no_number(tmp_path: Path, encoding: Any) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url], encoding=encoding, publisher="feed") as stranger:
            for number in range(3):
                await stranger.publish("/a/b", f"stranger {number}")
        async with Client([server.url], encoding=encoding, publisher="feed") as victim:
            result = await victim.publish("/a/b", "victim")
            assert (result.duplicate, result.seq) == (False, 4)
            async with victim.subscribe("/a/b") as subscription:
                assert (await anext(subscription)).content == "victim"


async def test_who_keeps_its_numbering_goes_on_after_a_restart_of_the_server(
    tmp_path: Path,
) -> None:
    kept_in = single(
        "--set",
        "Journal=on",
        "--set",
        f"JournalFolder={tmp_path / 'journal'}",
        "--set",
        "JournalFsync=commit",
    )
    with trio.fail_after(60):
        with live_server(tmp_path, *kept_in) as server:
            async with Client([server.url], publisher="feed") as first:
                await first.publish("/a/b", "1")
                kept = first.numbering
                await first.publish("/a/b", "2")
                assert (first.publisher, first.publisher_key) == (
                    kept.publisher,
                    kept.publisher_key,
                )
        with live_server(tmp_path, *kept_in) as server:
            async with Client([server.url], numbering=kept) as second:
                again = await second.publish("/a/b", "2")
                following = await second.publish("/a/b", "3")
                assert (again.duplicate, again.seq) == (True, 2)
                assert (following.duplicate, following.seq) == (False, 3)
                assert second.publisher == kept.publisher
    key = tmp_path / "journal" / "publishers.key"
    assert key.stat().st_mode & 0o777 == 0o600


async def test_a_wrong_key_is_denied(tmp_path: Path) -> None:
    with live_server(tmp_path) as server, trio.fail_after(30):
        async with Client([server.url], publisher="feed") as victim:
            await victim.publish("/a/b", "1")
            taken = victim.numbering
        assert taken.publisher_key is not None
        for wrong in ("nonsense", taken.publisher_key[:-1] + "~", "é"):
            guessed = attrs.evolve(taken, publisher_key=wrong)
            async with Client([server.url], numbering=guessed) as thief:
                with pytest.raises(StoppedError, match="publisher_key"):
                    await thief.connected()


@pytest.mark.slow
async def test_a_server_that_lost_its_secret_gives_another_identity(tmp_path: Path) -> None:
    """A server without a journal knows nothing of what was before: clients go on all the same."""
    with live_server(tmp_path) as server, trio.fail_after(60):
        port = server.port
        async with Client([server.url], publisher="feed", reconnect=RECONNECT) as client:
            await client.publish("/a/b", "1")
            before = client.publisher
            server.process.kill()
            server.process.wait()
            same = single()[2:]
            with live_server(tmp_path, "--set", f"Listen=127.0.0.1:{port}", *same):
                result = await client.publish("/a/b", "2")
                assert (result.seq, result.duplicate) == (1, False)
                assert client.publisher != before
                assert client.publisher is not None
                assert client.publisher.endswith("/feed")


async def test_a_user_goes_on_by_the_name_alone() -> None:
    node = Judged(BrokerSettings(policy=Policy.ASK), secrets.SystemRandom())
    async with serving(node=node, handler=Router()) as server:
        identities = []
        for user in ("alice", "alice", "bob", "a/b@c %"):
            async with Client(server.urls, token=user, publisher="feed") as client:
                result = await client.publish("/a/b", "once")
                identities.append((client.publisher, result.duplicate))
    assert identities == [
        ("@alice/feed", False),
        ("@alice/feed", True),
        ("@bob/feed", False),
        ("@a%2Fb%40c%20%25/feed", False),
    ]
