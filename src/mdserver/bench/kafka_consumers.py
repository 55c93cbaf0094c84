"""A WebSocket server that gives each connection a Kafka consumer: what members are compared with.

    python -m mdserver.bench.kafka_consumers SERVERS TOPIC

Written as one would begin: the library `websockets`, and for each connection a consumer of
librdkafka in a thread of its own, which reads the whole topic from its end on. There is no consumer
group, so nothing is rebalanced when connections come. Each record is sent as a text message.
Prints `ready PORT`. A connection gets `hello` first, when it has its consumer.
"""

import asyncio
import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, Message, TopicPartition
from websockets.asyncio.server import ServerConnection, serve

CONNECTIONS_MAX = 5_000
TIMEOUT_S = 10.0
WAIT_S = 0.1
RECORDS_MAX = 100


class Consumers:
    """The consumers of one topic; each lives as long as its connection."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX)

    async def attend(self, connection: ServerConnection) -> None:
        """Send what comes to a connection, until it ends."""
        loop = asyncio.get_running_loop()
        consumer = await loop.run_in_executor(self._threads, self._begun)
        try:
            await connection.send("hello")  # from now on the consumer begins
            while True:
                records = await loop.run_in_executor(self._threads, self._next, consumer)
                for value in records:
                    await connection.send(value)
        finally:
            await loop.run_in_executor(self._threads, consumer.close)

    def _begun(self) -> Consumer:
        """Return a consumer at the end of all partitions."""
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "none", "enable.auto.commit": False}
        )
        partitions = consumer.list_topics(self._topic, TIMEOUT_S).topics[self._topic].partitions
        places = [TopicPartition(self._topic, number) for number in partitions]
        for place in places:
            _, place.offset = consumer.get_watermark_offsets(place, TIMEOUT_S)
        consumer.assign(places)
        return consumer

    @staticmethod
    def _next(consumer: Consumer) -> list[str]:
        found: list[Message] = consumer.consume(1, WAIT_S)
        found += consumer.consume(RECORDS_MAX, 0)
        return [(each.value() or b"").decode() for each in found if each.error() is None]


async def main(servers: str, topic: str) -> None:
    """Serve on a free port of 127.0.0.1 until the process is ended."""
    consumers = Consumers(servers, topic)

    async def handler(connection: ServerConnection) -> None:
        await consumers.attend(connection)

    async with serve(handler, "127.0.0.1", 0, compression=None, open_timeout=60) as server:
        print(f"ready {next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
