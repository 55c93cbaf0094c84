"""Looks every few seconds which topics there are, and whether Kafka can be reached.

A list of topics says how many partitions each has, but not which topic it is: one that was created
again may look as before. So topics are described as well, when the list has changed, when reading
finds a topic shorter than it was (`doubt`), and otherwise every `metadata.max.age.ms`.
"""

import math
import threading
import time

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from mdserver.cluster.kafka_messages import Reachability, TopicsSeen
from mdserver.cluster.kafka_progress import TopicSeen
from mdserver.limits import KAFKA_CALL_TIMEOUT_S, KAFKA_LOOK_S, KAFKA_LOOK_TIMEOUT_S
from mdserver.server.engine import Engine
from mdserver.server.kafka import clients
from mdserver.server.kafka.properties import KafkaSettings
from mdserver.server.kafka.thread import EngineThread

_REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Errors that say more than that an answer did not come."""


class Watcher(EngineThread):
    """The thread that looks."""

    def __init__(self, settings: KafkaSettings, engine: Engine) -> None:
        super().__init__(engine)
        self._settings = settings
        self._listed: dict[str, int] = {}
        self._described_at = -math.inf
        self._doubted = threading.Event()
        self._refused: str | None = None

    def doubt(self) -> None:
        """Have the topics described with the next look; called from another thread."""
        self._doubted.set()

    def work(self) -> None:
        """Look until the server ends."""
        admin = clients.admin(self._settings, self._failed)
        while not self._stopping.is_set():
            admin.poll(0)
            try:
                seen = self._look(admin)
            except (KafkaException, TimeoutError) as error:
                self.errors += 1
                reason = self._refused or clients.described(error)
                self.give(Reachability(f"Kafka cannot be reached: {reason}"))
            else:
                self._refused = None
                self.give(Reachability(None))
                if seen is not None:
                    self.give(seen)
            self._stopping.wait(KAFKA_LOOK_S)

    def _failed(self, error: KafkaError) -> None:
        """Note that a broker refuses this member; a request that waits for it just times out."""
        if error.code() in _REFUSALS:
            self._refused = error.str()

    def _look(self, admin: AdminClient) -> TopicsSeen | None:
        """Return the topics that are to be read; None if nothing says that they are others.

        Raises KafkaException and TimeoutError.
        """
        settings = self._settings
        metadata = admin.list_topics(timeout=KAFKA_LOOK_TIMEOUT_S)
        listed = {
            name: len(topic.partitions)
            for name, topic in sorted(metadata.topics.items())
            if settings.wants(name) and topic.error is None and topic.partitions
        }
        due = self._described_at + settings.describe_s <= time.monotonic()
        if listed == self._listed and not due and not self._doubted.is_set():
            return None
        # Before the question: a doubt that comes up meanwhile may be about what is answered.
        doubted = self._doubted.is_set()
        self._doubted.clear()
        try:
            seen = _described(admin, list(listed))
        except (KafkaException, TimeoutError):
            if doubted:
                self._doubted.set()
            raise
        # What was not described differs from the next list, and is looked at again.
        self._listed = there = {topic.name: topic.partitions for topic in seen}
        if doubted and len(there) < len(listed):
            self._doubted.set()
        self._described_at = time.monotonic()
        missing = tuple(name for name in settings.topics if name not in there)
        return TopicsSeen(metadata.cluster_id or "", tuple(seen), missing)


def _described(admin: AdminClient, names: list[str]) -> list[TopicSeen]:
    """Return what is known of topics, but for those that the broker does not know just now.

    Raises KafkaException and TimeoutError.
    """
    if not names:
        return []
    asked = admin.describe_topics(TopicCollection(names), request_timeout=KAFKA_CALL_TIMEOUT_S)
    seen: list[TopicSeen] = []
    for name in names:
        try:
            told = asked[name].result(KAFKA_CALL_TIMEOUT_S)
        except KafkaException:
            continue  # deleted meanwhile, or the broker has just started
        seen.append(TopicSeen(name, str(told.topic_id), len(told.partitions)))
    return seen
