"""The two directions of a bridge at a real server, with rows in memory instead of a broker."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from confluent_kafka import KafkaError

from mdserver.bridge.inward import Copied, Inward
from mdserver.bridge.ledger import BridgeError
from mdserver.bridge.outward import Outward
from mdserver.bridge.rules import Rules, to_subjects, to_topics
from mdserver.client import Client, Publication
from mdserver.client.core.values import Numbering, PublishResult
from mdserver.cluster.kafka_records import ProducedRecord
from mdserver.core.events import StatusName
from mdserver.limits import KAFKA_BRIDGE_PATIENCE_S
from tests.kafka.talking import PATIENCE_S, client, take
from tests.live import LiveServer, live_server

ENOUGH = 1000


@define
class Rows:
    """Keeps what a bridge commits."""

    rows: dict[str, Any] = field(factory=dict)
    records: list[ProducedRecord] = field(factory=list)
    changed: trio.Event = field(factory=trio.Event)

    def load(self) -> dict[str, Any]:
        return dict(self.rows)

    def commit(self, records: Sequence[ProducedRecord], rows: dict[str, Any]) -> dict[int, str]:
        self.records += records
        self.rows |= rows
        trio.from_thread.run_sync(self._wake)
        return {}

    def _wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await self.changed.wait()


@define
class Read:
    """A record as a consumer gives it."""

    at: int
    its_key: bytes
    its_headers: list[tuple[str, bytes]] | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 7)

    def key(self) -> bytes:
        return self.its_key

    def value(self) -> bytes:
        return str(self.at).encode()

    def headers(self) -> list[tuple[str, bytes]] | None:
        if self.its_headers is None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return self.its_headers


async def watched(_: Client) -> None:
    """Report nothing."""


def outward(server: LiveServer, rows: Any, rule: str) -> Outward:
    def opened(**more: Any) -> Client:
        return client(server, **more)

    return Outward(
        Rules("b", topics=(to_topics(rule),)), rows, opened, watched, print, lambda: None
    )


def inward(rows: Any, told: list[str]) -> Inward:
    rules = Rules("b", (to_subjects("t=/{key}"),))
    return Inward(rules, {}, rows, Client, watched, told.append, ENOUGH, from_beginning=False)


@pytest.mark.slow
async def test_subjects_that_come_up_while_the_bridge_is_away_are_copied_whole(
    tmp_path: Path,
) -> None:
    rows = Rows()
    with live_server(tmp_path) as server:
        async with client(server) as it:
            await it.connected()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(outward(server, rows, "/out/**=o").run)
                await rows.until(lambda: "/out/**" in rows.rows)  # without any message
                await it.publish("/out/known", "1")
                await rows.until(lambda: "/out/known" in rows.rows)
                nursery.cancel_scope.cancel()
            for content in "23":
                await it.publish("/out/known", content)
                await it.publish("/out/new", content)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(outward(server, rows, "/out/**=o").run)
                await rows.until(lambda: len(rows.records) >= 5)
                await it.publish("/out/last", "4")
                await rows.until(lambda: "/out/last" in rows.rows)
                nursery.cancel_scope.cancel()
    found = sorted((one.key or b"", one.value) for one in rows.records)
    known, new = [(b"known", b"%d" % one) for one in (1, 2, 3)], [(b"new", b"2"), (b"new", b"3")]
    assert found == [*known, (b"last", b"4"), *new]
    assert None not in rows.rows.values()


@pytest.mark.slow
async def test_a_refused_record_is_told_and_the_numbers_of_the_others_are_kept(
    tmp_path: Path,
) -> None:
    rows = Rows()
    told: list[str] = []
    batch = [Read(0, b"s/a", []), Read(1, b"__mdserver__/x", []), Read(2, b"s/a")]
    batch += [Read(3, b"s/a", [(f"h{n}", b"") for n in range(257)]), Read(4, b"s/a", [])]
    with live_server(tmp_path) as server:
        async with client(server) as it, it.subscribe("/s/*") as subscription:
            await it.connected()
            for records in (batch, [Read(5, b"s/a", [])]):
                bridge = inward(rows, told)
                kept = rows.rows.get("t/0", {}).get("numbering")
                numbering = None if kept is None else Numbering(**kept)
                async with client(server, numbering=numbering) as publisher:
                    await publisher.connected()
                    bridge._copied["t", 0] = Copied("id", records[0].at, publisher)
                    with trio.fail_after(PATIENCE_S):
                        await bridge._publish(("t", 0), records)
                        await bridge._keep([("t", 0)])
            assert [one.content for one in await take(subscription, 3)] == ["0", "4", "5"]
    assert rows.rows["t/0"]["offset"] == 6
    assert max(rows.rows["t/0"]["numbering"]["taken"].values()) == 3
    assert [line.partition(":")[0] for line in sorted(told)] == [
        f"t/0@{one} left out" for one in (1, 2, 3)
    ]


@define
class Refusing:
    """A client whose server has no room for some contents at first, and takes them then."""

    lacking: list[str]
    taken: list[str] = field(factory=list)
    numbering: Numbering = field(factory=Numbering)

    async def submit_command(self, command: Any) -> Publication:
        made = Publication(lambda: None)
        status, certain = StatusName.PUBLISH_OK, True
        if command.content in self.lacking:
            self.lacking.remove(command.content)
            status = StatusName.PUBLISH_FAILED
        else:
            self.taken.append(command.content)
        made.result = PublishResult(1, status, reason="no room", certain=certain)
        return made

    async def settled(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_what_servers_could_not_take_just_then_is_repeated_and_the_rest_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rows, server = Rows(), Refusing(["1", "2", "1"])
    bridge: Any = inward(rows, [])
    bridge._copied["t", 0] = copied = Copied("id", 0, server, frozenset({3}))  # type: ignore[arg-type]
    await bridge._publish(("t", 0), [Read(at, b"s/a", []) for at in range(5)])
    assert server.taken == ["0", "4", "2", "1"]
    assert (rows.rows["t/0"]["offset"], rows.rows["t/0"]["beyond"]) == (1, [2, 3, 4])
    assert (copied.offset, copied.beyond) == (5, frozenset())


async def test_what_nobody_takes_for_long_ends_the_bridge_at_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rows = Rows()
    bridge: Any = inward(rows, [])
    bridge._copied["t", 0] = Copied("id", 7, Refusing(["7"] * 100))  # type: ignore[arg-type]
    with pytest.raises(BridgeError, match="t/0@7: PUBLISH_FAILED: no room"):
        await bridge._publish(("t", 0), [Read(7, b"s/a", []), Read(8, b"s/a", [])])
    assert (rows.rows["t/0"]["offset"], rows.rows["t/0"]["beyond"]) == (7, [8])


@pytest.mark.parametrize(("ends", "offset"), [((3, 9), 5), ((7, 9), 7), ((0, 4), None)])
async def test_an_offset_that_is_not_there_is_passed_over_only_if_retention_removed_it(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[int, int], offset: int | None
) -> None:
    told: list[str] = []
    bridge: Any = inward(Rows(), told)
    bridge._copied["t", 0] = copied = Copied("id", 5, client=None)  # type: ignore[arg-type]
    monkeypatch.setattr(Inward, "_ends", lambda *_: {("t", 0): ends})
    if offset is None:
        with pytest.raises(BridgeError, match="t/0: Kafka has lost records, or the topic was made"):
            await bridge._skip_removed(("t", 0))
    else:
        await bridge._skip_removed(("t", 0))
        assert copied.offset == offset
        assert len(told) == (offset == 7)


def test_other_sizes_are_other_rules() -> None:
    one, other = inward(None, []), inward(None, [])
    other.bytes_max += 1
    assert one._digest() != other._digest()


@define
class Away:
    """Rows in a Kafka that does not answer."""

    asked: trio.Event = field(factory=trio.Event)
    back: threading.Event = field(factory=threading.Event)

    def load(self) -> dict[str, Any]:
        trio.from_thread.run_sync(self.asked.set)
        assert self.back.wait(PATIENCE_S * 2)
        return {}


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_bridge_that_waits_for_kafka_can_be_ended(direction: str) -> None:
    away = Away()
    part: Any = inward(away, [])
    if direction == "out":
        rules = Rules("b", topics=(to_topics("/a/**=a"),))
        part = Outward(rules, away, Client, watched, print, lambda: None)  # type: ignore[arg-type]
    try:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(part.run)
                await away.asked.wait()
                nursery.cancel_scope.cancel()
    finally:
        away.back.set()


@define
class Failing:
    """A consumer whose partition fails once, and gives nothing then."""

    code: int
    told: bool = False

    def poll(self, _: float) -> Any:
        first, self.told = not self.told, True
        return Failed(0, b"", code=self.code) if first else None

    def consume(self, *_: object) -> list[Any]:
        return []


@define
class Failed(Read):
    """What a consumer gives instead of a record."""

    code: int = 0

    def error(self) -> KafkaError:
        return KafkaError(self.code)


async def test_a_partition_that_fails_for_long_is_asked_for(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge: Any = inward(Rows(), [])
    consumer = Failing(KafkaError._TRANSPORT)
    asked: list[list[tuple[str, int]]] = []
    monkeypatch.setattr(Inward, "_ends", lambda _, parts: asked.append(parts))
    for _ in range(3):
        await bridge._copy(consumer)
        assert not asked
    await trio.sleep(KAFKA_BRIDGE_PATIENCE_S + 1)
    await bridge._copy(consumer)
    await bridge._copy(consumer)
    assert asked == [[("t", 0)]]


async def test_a_topic_that_is_gone_ends_the_bridge() -> None:
    bridge: Any = inward(Rows(), [])
    with pytest.raises(BridgeError, match="t/0: "):
        await bridge._copy(Failing(KafkaError.UNKNOWN_TOPIC_OR_PART))
