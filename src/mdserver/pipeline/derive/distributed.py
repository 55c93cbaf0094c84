"""The distributed engine of the job `derive`: rules on executors, their states in Spark's store.

Each task that reads a part of the source divides its rows among shards (`shards`), in packs of
many messages. Spark's `transformWithState` keeps the groups of each shard in its RocksDB state
store, one shard to a partition, and runs the rules on the executor that has the shard. The driver
gets what the rules say of a batch, puts it in order, and publishes it as a step (`steps`), as the
embedded engine does.

A batch that comes again after a crash finds the states as they were before it, and gives the same
results, because offsets, the rows between them and the moment of the batch are in Spark's
checkpoint. If its step is in the log, the results are dropped, and only the states are kept. So
what may differ between both runs may not change what becomes of the batch: without rows the wall
clock publishes in the repetition as well, also with `--once`, and rules that the step did not know
take no messages of it, as their results would be lost.

Between batches a process keeps the shards that it had in memory, each with a random token that is
in the state store as well. A shard whose token is not the store's, after a failed task or on
another executor, is read from the store. So a batch writes groups that changed, and reads none.

Time is that of the messages (`shards`). While there are none, the wall clock goes on: each shard
has one timer, at the moment at which its next group is due, and Spark makes a batch without rows.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from attrs import define, frozen
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from mdserver import limits
from mdserver.pipeline.common.places import Tables
from mdserver.pipeline.derive.batches import watched
from mdserver.pipeline.derive.operators import US
from mdserver.pipeline.derive.publisher import StepPublisher
from mdserver.pipeline.derive.rule_engine import fingerprint
from mdserver.pipeline.derive.rules import Rule
from mdserver.pipeline.derive.shards import Result, RowRouter, Shard, ShardPart, merged
from mdserver.pipeline.derive.step_log import StepLog
from mdserver.pipeline.derive.steps import BatchCounts, Steps

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Each batch uploads what it changed, and not the files of the database.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
TRIGGER = {"processingTime": "1 second"}
"""Spark makes a batch at each trigger, also without rows, because a timer may be due."""
US_PER_MS = 1_000
PACKED = pa.schema([("shard", pa.int32()), ("part", pa.binary())])
PROCESS_GROUPS_MAX = 4 * limits.DERIVE_SHARD_GROUPS_MAX
"""How many groups a process keeps in memory between batches, of all its shards."""

_encoder = msgspec.msgpack.Encoder()
_part = msgspec.msgpack.Decoder(ShardPart)
_result = msgspec.msgpack.Decoder(Result)
_json = msgspec.json.Encoder()


@define
class KeptShard:
    """A shard as a process had it at the end of a batch, with the token of that moment."""

    shard: Shard
    token: str


_kept: OrderedDict[tuple[str, int], KeptShard] = OrderedDict()
"""The shards of this process by run and number, the one that was used last at the end."""


class Distributed:
    """One run of the job; the counterpart of `batches.Derive`, with the same methods.

    `once` says that the wall clock publishes nothing: what is due after the last message is left to
    the next run. Only a batch of the last run that is repeated gives what it gave then.
    """

    never_ends = True
    """Spark takes it for possible that a timer is due, whenever a batch has ended."""

    def __init__(
        self,
        rules: Sequence[Rule],
        log: StepLog,
        publisher: StepPublisher,
        tables: Tables,
        report: Callable[[BatchCounts], None],
        shards: int,
        *,
        once: bool,
    ) -> None:
        self.failure: Exception | None = None
        self._rules = rules
        self._steps = Steps(log, publisher, tables)
        self._report = report
        self._shards = shards
        self._once = once
        self._lock = threading.Lock()

    def found(self, raw: DataFrame, checkpoint: Path) -> DataFrame:
        """Return the frame whose batches `batch` takes, from the raw lines of the source."""
        spark = raw.sparkSession
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        spark.conf.set("spark.sql.shuffle.partitions", str(self._shards))
        keys = keys_of(spark, self._shards)
        run = secrets.token_hex(8)
        processor = ShardProcessor(
            self._rules, keys, run, once=self._once, repeated=self._repeated(checkpoint)
        )
        return (
            watched(raw, self._rules)
            .mapInArrow(
                _Route(RowRouter(self._rules, self._shards), keys), "shard int, part binary"
            )
            .groupBy("shard")
            .transformWithState(processor, "result binary", "append", "processingTime")
        )

    def _repeated(self, checkpoint: Path) -> "RepeatedBatch":
        """Return the batch with which Spark begins because the last run did not finish it."""
        batch_id, moment_ms = unfinished(checkpoint)
        known = self._steps.batch_rules
        if not 0 <= batch_id <= self._steps.batch or known is None:
            return RepeatedBatch(moment_ms)
        new = [rule.name for rule in self._rules if known.get(rule.name) != fingerprint(rule)]
        return RepeatedBatch(moment_ms, frozenset(new))

    def resume(self) -> None:
        """Publish what the last run may not have published. Call this before the first batch."""
        self._steps.resume({})

    def batch(self, found: DataFrame, batch_id: int) -> None:
        """Take what the shards say of one batch; called by Spark.

        The frame is always computed, since that is what keeps the states of the batch.
        """
        try:
            with self._lock:
                began = time.monotonic()
                result = merged(_result.decode(row["result"]) for row in found.collect())
                if batch_id > self._steps.batch:
                    self._finish(result, batch_id, began)
        except Exception as error:
            # Spark wraps the error in a page of Java's stack; the job reports this one.
            self.failure = error
            raise

    def idle(self, now: int) -> None:
        """Do nothing: each shard has a timer of its own."""

    def leave(self) -> None:
        """End a publication that waits for a server that is away, because the job ends."""
        self._steps.leave()

    def _finish(self, result: Result, batch_id: int, began: float) -> None:
        derived = [one.derived for one in result.said]
        self._steps.finish(batch_id, [], derived, result.aside, {})
        if result.rows or derived or result.aside:
            lag = time.time() - result.newest / US if result.newest else 0.0
            seconds = time.monotonic() - began
            self._report(
                BatchCounts(
                    batch_id, result.rows, len(derived), len(result.aside), seconds, max(lag, 0.0)
                )
            )


@frozen
class RepeatedBatch:
    """A batch of the last run that Spark makes again: its moment, 0 if there is none.

    `without` are the rules that take no messages of it, as its step was made without them.
    """

    moment_ms: int = 0
    without: frozenset[str] = frozenset()


def unfinished(checkpoint: Path) -> tuple[int, int]:
    """Return the number and the moment (ms) of the batch that Spark began and did not commit.

    Both are in the checkpoint before a batch begins. Returns (-1, 0) if all are committed.
    """
    numbers = [int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*")]
    last = max(numbers, default=-1)
    if last < 0 or (checkpoint / "commits" / str(last)).exists():
        return -1, 0
    lines = (checkpoint / "offsets" / str(last)).read_bytes().splitlines()
    try:
        return last, int(msgspec.json.decode(lines[1])["batchTimestampMs"])
    except (IndexError, KeyError, ValueError):
        return -1, 0  # of a write that was cut off: Spark says what is wrong with it


def keys_of(spark: SparkSession, shards: int) -> list[int]:
    """Return the key of each shard: numbers that Spark puts into as many different partitions.

    It chooses the partition by a hash, which of the numbers from 0 on would put several into one.
    """
    number = f.col("id").cast("int")
    partition = f.pmod(f.hash(number), f.lit(shards))
    # Of n partitions all are hit by n * (ln n + c) numbers but for a share of exp(-c).
    found = spark.range(shards * 40).groupBy(partition.alias("partition"))
    rows = found.agg(f.min(number).alias("key")).collect()
    keys = {row["partition"]: row["key"] for row in rows}
    return [keys[partition] for partition in range(shards)]


class _Route:
    """The function that divides the rows of one task; sent to executors."""

    def __init__(self, router: RowRouter, keys: Sequence[int]) -> None:
        self._router = router
        self._keys = keys

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (batch.to_pylist() for batch in batches)
        for shard, part in self._router.route(rows):
            columns = [[self._keys[shard]], [_encoder.encode(part)]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, each.type) for column, each in zip(columns, PACKED, strict=True)],
                schema=PACKED,
            )


class ShardProcessor(StatefulProcessor):
    """Runs the rules on the shards of one task; Spark has one for each task.

    `keys` are the keys of the shards in their order, `run` names this run of the job, so that a
    process that outlives a run does not take the shards of another one for its own.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        keys: Sequence[int],
        run: str,
        *,
        once: bool,
        repeated: RepeatedBatch,
    ) -> None:
        self._rules = list(rules)
        self._numbers = {key: number for number, key in enumerate(keys)}
        self._run = run
        self._once = once
        self._repeated = repeated

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the states of the task."""
        self._marks = {rule.name: fingerprint(rule) for rule in self._rules}
        self._handle = handle
        self._groups = handle.getMapState(
            "groups", "rule string, name string", "mark string, state binary"
        )
        self._token = handle.getValueState("token", "token string")
        self._fed: set[int] = set()

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Take the parts of a batch; each batch with rows has one for each shard."""
        number = self._numbers[key[0]]
        self._fed.add(number)
        kept = self._open(number)
        now = timerValues.getCurrentProcessingTimeInMs()
        without = self._repeated.without if now <= self._repeated.moment_ms else ()
        result = kept.shard.take((_part.decode(bytes(row["part"])) for row in rows), without)
        self._close(number, kept, timerValues)
        yield Row(result=_encoder.encode(result))

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,
        expiredTimerInfo: Any,  # noqa: ARG002 (its time is a bound, and others may be due too)
    ) -> Iterator[Row]:
        """Publish what is due by the wall clock, if the batch has no rows.

        A job that catches up has rows in each batch, and their times are what counts.
        """
        number = self._numbers[key[0]]
        kept = self._open(number)
        result = Result()
        now = timerValues.getCurrentProcessingTimeInMs()
        if number not in self._fed and (not self._once or now <= self._repeated.moment_ms):
            result = kept.shard.idle(now * US_PER_MS)
        self._close(number, kept, timerValues)
        if result.said:
            yield Row(result=_encoder.encode(result))

    def close(self) -> None:
        """Do nothing: all is in the store already."""

    def _open(self, number: int) -> KeptShard:
        """Return a shard as it is in the store.

        It is not kept while it is in use: if the task fails, nobody may take it as it is then.
        """
        token = self._token.get()
        kept = _kept.pop((self._run, number), None)
        if kept is not None and token is not None and kept.token == token[0]:
            return kept
        states = {}
        old = []
        for name, value in self._groups.iterator() if token is not None else ():
            if self._marks.get(name[0]) == value[0]:
                states[name[0], name[1]] = msgspec.json.decode(bytes(value[1]))
            else:
                old.append(name)
        for name in old:  # of rules that are gone, or mean something else now
            self._groups.removeKey(name)
        shard = Shard(number, len(self._numbers), self._rules, states)
        return KeptShard(shard, "" if token is None else token[0])

    def _close(self, number: int, kept: KeptShard, timers: Any) -> None:
        """Write what changed, set the timer, and keep the shard for the next batch."""
        if kept.shard.changed or not kept.token:
            for key in kept.shard.changed:
                state = kept.shard.states.get(key)
                if state is not None:
                    self._groups.updateValue(key, (self._marks[key[0]], _json.encode(state)))
                elif self._groups.containsKey(key):
                    self._groups.removeKey(key)
            kept.shard.changed.clear()
            kept.token = secrets.token_hex(8)
            self._token.update((kept.token,))
        now = timers.getCurrentProcessingTimeInMs()
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        due = kept.shard.next_due()
        if due is not None:
            # Later than now, or it would be due again in this batch.
            self._handle.registerTimer(max(-(-due // US_PER_MS), now + 1))
        _kept[self._run, number] = kept
        while (
            len(_kept) > 1 and sum(len(e.shard.states) for e in _kept.values()) > PROCESS_GROUPS_MAX
        ):
            _kept.popitem(last=False)
