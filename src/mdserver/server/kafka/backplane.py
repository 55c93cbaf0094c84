"""The I/O of a member whose log is Kafka: three threads, and what the node wants of them."""

from typing import TYPE_CHECKING, Any

import attrs
import trio
from attrs import define

from mdserver.server.cluster_log import watch_service
from mdserver.server.cluster_log import write as write_to_log
from mdserver.server.kafka import clients
from mdserver.server.kafka.properties import KafkaSettings
from mdserver.server.kafka.reader import Reader
from mdserver.server.kafka.watcher import Watcher
from mdserver.server.kafka.writer import Writer

if TYPE_CHECKING:
    from mdserver.cluster.kafka_messages import Consume, Produce
    from mdserver.cluster.kafka_node import KafkaNode
    from mdserver.core.outputs import Log
    from mdserver.server.engine import Engine


@define(eq=False)
class Backplane:
    """The connection of a node to Kafka; `run` it."""

    node: "KafkaNode"
    watcher: Watcher
    reader: Reader
    writer: Writer

    def produce(self, output: "Produce") -> None:
        """Write records."""
        self.writer.produce(output)

    def consume(self, output: "Consume") -> None:
        """Read partitions."""
        self.reader.consume(output)

    def take(self, line: "Log") -> None:
        """Write an event of the node to the server log."""
        write_to_log(line)

    def statistics(self) -> dict[str, Any]:
        """Return counts since the start, what waits, and the lag of each partition."""
        return {
            **attrs.asdict(self.node.mode.counts()),
            "assignments": self.reader.assignments,
            "errors": {
                "look": self.watcher.errors,
                "read": self.reader.errors,
                "write": self.writer.errors + self.writer.refused,
            },
            "lag": dict(self.reader.lag),
        }

    async def run(self) -> None:
        """Run until cancelled; then wait for what is on its way to Kafka, at most some seconds."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_service, self.node)
            for part in (self.watcher, self.reader, self.writer):
                nursery.start_soon(part.run)


def connected(settings: KafkaSettings, node: "KafkaNode", engine: "Engine") -> Backplane:
    """Make the connection of a node. Raises ConfigError."""
    watcher = Watcher(settings, engine)
    reader = Reader(settings, engine, watcher.doubt)
    return Backplane(node, watcher, reader, Writer(settings, engine))


def try_clients(settings: KafkaSettings) -> None:
    """Raise ConfigError if librdkafka does not take the properties. No broker is asked."""
    clients.consumer(settings).close()
    clients.producer(settings, lambda _: None).flush(0)
    clients.admin(settings)
