"""The I/O of a member whose log is Kafka: its threads, and what the node wants of them.

One thread looks which topics there are. Partitions are shared among the consumers, and among the
producers (`consumers.size`, `producers.size`), so that each partition has one of each: its records
come and go in order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import attrs
import trio
from attrs import define

from mdserver.cluster.kafka_messages import Consume, Produce
from mdserver.cluster.kafka_progress import Partition
from mdserver.cluster.kafka_records import ProducedRecord
from mdserver.server.cluster_log import watch_service
from mdserver.server.cluster_log import write as write_to_log
from mdserver.server.kafka import clients
from mdserver.server.kafka.decoding import DecoderSettings
from mdserver.server.kafka.properties import KafkaSettings
from mdserver.server.kafka.reader import Reader
from mdserver.server.kafka.watcher import Watcher
from mdserver.server.kafka.writer import Writer

if TYPE_CHECKING:
    from mdserver.cluster.kafka_node import KafkaNode
    from mdserver.core.outputs import Log
    from mdserver.server.engine import Engine


@define(eq=False)
class Backplane:
    """The connection of a node to Kafka; `run` it."""

    node: "KafkaNode"
    watcher: Watcher
    readers: Sequence[Reader]
    writers: Sequence[Writer]

    def produce(self, output: Produce) -> None:
        """Write records."""
        count = len(self.writers)
        if count == 1:
            self.writers[0].produce(output)
            return
        shares: dict[int, list[ProducedRecord]] = {}
        for record in output.records:
            share = share_of((record.topic, record.partition), count)
            shares.setdefault(share, []).append(record)
        for share, records in shares.items():
            self.writers[share].produce(Produce(records))

    def consume(self, output: Consume) -> None:
        """Read partitions; they may be new, so producers have to learn of them as well."""
        for writer in self.writers:
            writer.look_again()
        for number, reader in enumerate(self.readers):
            mine = [one for one in output.partitions if share_of(one, len(self.readers)) == number]
            if mine or output.anew or output.ended:
                reader.consume(Consume(mine, output.anew, output.whole, output.ended))

    def take(self, line: "Log") -> None:
        """Write an event of the node to the server log."""
        write_to_log(line)

    def statistics(self) -> dict[str, Any]:
        """Return counts since the start, what waits, and the lag of each partition."""
        return {
            **attrs.asdict(self.node.mode.counts()),
            "assignments": max(reader.assignments for reader in self.readers),
            "errors": {
                "look": self.watcher.errors,
                "read": sum(reader.errors for reader in self.readers),
                "write": sum(writer.errors + writer.refused for writer in self.writers),
            },
            "lag": {name: lag for reader in self.readers for name, lag in reader.lag.items()},
        }

    async def run(self) -> None:
        """Run until cancelled; then wait for what is on its way to Kafka, at most some seconds."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_service, self.node)
            for part in (self.watcher, *self.readers, *self.writers):
                nursery.start_soon(part.run)


def connected(
    settings: KafkaSettings, node: "KafkaNode", engine: "Engine", decoder: DecoderSettings | None
) -> Backplane:
    """Make the connection of a node. Raises ConfigError."""
    watcher = Watcher(settings, engine)
    readers = [Reader(settings, engine, watcher.doubt, decoder) for _ in range(settings.consumers)]
    writers = [Writer(settings, engine) for _ in range(settings.producers)]
    return Backplane(node, watcher, readers, writers)


def share_of(partition: Partition, count: int) -> int:
    """Return the number of the client that has a partition, of so many that share them all."""
    topic, number = partition
    return (crc32(topic.encode()) + number) % count


def try_clients(settings: KafkaSettings) -> None:
    """Raise ConfigError if librdkafka does not take the properties. No broker is asked."""
    clients.consumer(settings).close()
    clients.producer(settings, lambda _: None).flush(0)
    clients.admin(settings)
