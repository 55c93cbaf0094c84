"""What clients can make the broker do or keep has a bound, in a running server."""

import json

import msgspec
import trio

from mdserver.core.settings import BrokerSettings
from mdserver.limits import KB, MB, NS_PER_MS, NS_PER_S
from tests.hostile.test_hostile import SETTINGS
from tests.server.raw import TEXT, RawClient, frame, upgraded
from tests.server.serving import new_node, port_of, serving

Event = dict[str, object]


async def send(client: RawClient, command: Event) -> None:
    await client.send(frame(TEXT, json.dumps(command).encode()))


async def events(client: RawClient) -> list[Event]:
    """What the next frame holds: one event, or a list of them."""
    _, payload = await client.frame()
    found = msgspec.json.decode(payload)
    return found if isinstance(found, list) else [found]


async def ask(client: RawClient, command: Event) -> Event:
    """Send a command, and return the first answer that has its id."""
    await send(client, command)
    while True:
        for event in await events(client):
            if event.get("id") == command["id"]:
                return event


async def test_ever_new_field_names_do_not_make_a_snapshot_grow() -> None:
    refused = 0
    node = new_node(BrokerSettings())
    async with serving(SETTINGS, node=node) as server, upgraded(port_of(server)) as client:
        for number in range(40):
            fields = {f"{number}-{name}": "x" * 200 for name in range(200)}
            command = {"op": "publish", "subject": "/a/b", "content": "", "fields": fields}
            answer = await ask(client, {**command, "id": number})
            if answer["status"] == "PUBLISH_FAILED":
                refused += 1
                assert "at most 256 are allowed" in str(answer["reason"])
                assert answer["certain"] is True
        subject = node.broker.subject_statistics("/a/b")
        assert subject is not None
        assert subject.snapshot is not None
        assert len(subject.snapshot.publication.fields or {}) <= 256
        assert subject.snapshot_bytes <= 4 * 64 * KB
    assert refused == 39


async def test_snapshots_that_expired_make_room_for_others() -> None:
    broker = BrokerSettings(
        cache_bytes_max=MB, cache_expire=100 * NS_PER_MS, snapshot_expire=NS_PER_S
    )
    async with serving(SETTINGS, broker=broker) as server, upgraded(port_of(server)) as client:
        number, refused = 0, False
        with trio.fail_after(20):
            while True:
                number += 1
                answer = await ask(
                    client,
                    {
                        "op": "publish",
                        "subject": f"/a/{number}",
                        "id": number,
                        "content": "x" * 60_000,
                    },
                )
                if answer["status"] == "PUBLISH_FAILED":
                    refused = True
                    assert "take all the memory" in str(answer["reason"])
                elif refused:
                    break
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_many_patterns_over_many_subjects_keep_nobody_waiting() -> None:
    broker = BrokerSettings()
    async with (
        serving(SETTINGS, broker=broker) as server,
        upgraded(port_of(server)) as publisher,
        upgraded(port_of(server), timeout=60) as attacker,
    ):
        for first in range(0, 20_000, 500):
            commands = [
                {"op": "publish", "subject": f"/users/{user}/x{user % 4_000}", "content": "1"}
                for user in range(first, first + 500)
            ]
            await publisher.send(frame(TEXT, json.dumps(commands).encode()))
            await ask(publisher, {"op": "publish", "subject": "/a/b", "content": "", "id": first})
        await send(
            attacker,
            {"op": "subscribe", "subjects": [f"/users/*/x{number}" for number in range(4_000)]},
        )
        # 20 s of work before: a neighbour's answer came after all of it.
        with trio.fail_after(2):
            await ask(publisher, {"op": "publish", "subject": "/a/b", "content": "", "id": "now"})
