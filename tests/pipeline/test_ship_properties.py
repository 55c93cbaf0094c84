"""What publishers gave a server comes out of a replay: through its journal, `ship` and archive."""

import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from mdserver.client.client import Client
from mdserver.core.commands import Publish
from mdserver.core.message import Qos
from mdserver.limits import SUBJECT_BYTES_MAX
from mdserver.pipeline.archive import job as archive_job
from mdserver.pipeline.common import object_store
from mdserver.pipeline.common.sources import KafkaSource
from mdserver.pipeline.replay.job import plan, rows
from mdserver.pipeline.replay.windows import Selection
from mdserver.pipeline.ship.destination import Destination, SharedPlace
from mdserver.pipeline.ship.job import run_ship
from tests.live import live_server
from tests.live_kafka import LiveKafka

from .test_ship_topics import topics

pytestmark = [pytest.mark.pipeline, pytest.mark.soak]

SEED = 20_261_124
TIMEOUT_S = 120
PREFIX = "/r"
LETTERS = "aZ09 é€\U0001f600=%+&'~\"\\"


def text(draw: random.Random, characters: int) -> str:
    return "".join(draw.choices(LETTERS, k=characters))


def subject(draw: random.Random) -> str:
    """A subject, some as long as one may be with the prefix of the replay."""
    name = f"/{text(draw, draw.randint(1, 6))}/{text(draw, draw.randint(1, 6))}"
    if draw.random() < 0.2:
        name += "/" + "é" * ((SUBJECT_BYTES_MAX - len(PREFIX) - len(name.encode()) - 1) // 2)
    return name


def command(draw: random.Random) -> Publish:
    size = draw.choice((0, 1, 20, 300, 15_000))
    kind = draw.choice(("text", "bytes", "compressed"))
    binary = draw.randbytes(4 * size)
    if kind == "compressed":
        binary = zlib.compress(text(draw, size).encode())
    return Publish(
        subject=subject(draw),
        content=text(draw, size) if kind == "text" else None,
        content_base64=None if kind == "text" else binary,
        fields={text(draw, 3) + str(n): text(draw, 9) for n in range(draw.randint(1, 4))}
        if draw.random() < 0.5
        else None,
        closure=text(draw, 8) if draw.random() < 0.3 else None,
        retained=draw.random() < 0.7,
        qos=Qos.GUARANTEED,
        compressed=kind == "compressed",
        reply_subject=subject(draw) if draw.random() < 0.3 else None,
    )


def again(given: Publish) -> Publish:
    """The command that publishes it once more, below the prefix."""
    reply = given.reply_subject
    return msgspec.structs.replace(
        given,
        subject=PREFIX + given.subject,
        reply_subject=None if reply is None else PREFIX + reply,
    )


async def publish(url: str, commands: list[Publish]) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with Client([url]) as client:
            publications = [await client.submit_command(each) for each in commands]
            for each in publications:
                await each.outcome()


def comparable(commands: list[Publish]) -> list[str]:
    return sorted(map(repr, commands))


@pytest.mark.parametrize("seed", range(2))
def test_every_property_survives(
    spark: Any, kafka: LiveKafka, bucket: str, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(SEED + seed)
    commands = [command(draw) for _ in range(200)]
    journal = tmp_path / "journal"
    settings = ("Listen=127.0.0.1:0", "Entitlement=None", "Journal=on", f"JournalFolder={journal}")
    words = [part for each in settings for part in ("--set", each)]
    with live_server(tmp_path, *words) as server:
        trio.run(publish, server.url, commands)
    (tmp_path / "place").mkdir()
    topic = f"properties-{seed}.messages"
    kafka.create(topic, partitions=3)
    stores = {
        "folder": object_store.opened(str(tmp_path / "place")),
        "s3": object_store.opened(f"{bucket}/{tmp_path.name}"),
    }
    expected = comparable([again(each) for each in commands])
    destinations: dict[str, Destination] = {
        **{kind: SharedPlace(store, kind) for kind, store in stores.items()},
        "kafka": topics(kafka, topic),
    }
    for kind, to in destinations.items():
        tables = tmp_path / kind
        run_ship(journal, to, lambda _: None, once=True)
        source = KafkaSource(kafka.servers, [topic]) if kind == "kafka" else []
        archive_job.run_archive(
            spark, source, tables, lambda _: None, once=True, shipped=stores.get(kind)
        )
        found = [
            each.command
            for chunk in plan(rows(tables, Selection("/**")), None, PREFIX)
            for each in chunk
        ]
        assert comparable(found) == expected, kind
