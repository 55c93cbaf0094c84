"""Looks every few seconds which topics there are, and whether Kafka can be reached."""

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from mdserver.cluster.kafka_mode import Reachability, TopicsSeen
from mdserver.cluster.kafka_progress import TopicSeen
from mdserver.limits import KAFKA_CALL_TIMEOUT_S, KAFKA_LOOK_S, KAFKA_LOOK_TIMEOUT_S
from mdserver.server.engine import Engine
from mdserver.server.kafka import clients
from mdserver.server.kafka.properties import KafkaSettings
from mdserver.server.kafka.thread import EngineThread


class Watcher(EngineThread):
    """The thread that looks."""

    def __init__(self, settings: KafkaSettings, engine: Engine) -> None:
        super().__init__(engine)
        self._settings = settings

    def work(self) -> None:
        """Look until the server ends."""
        admin = clients.admin(self._settings)
        while not self._stopping.is_set():
            admin.poll(0)
            try:
                seen = self._look(admin)
            except (KafkaException, TimeoutError) as error:
                reason = f"Kafka cannot be reached: {clients.described(error)}"
                self.give(Reachability(reason))
            else:
                self.give(Reachability(None))
                self.give(seen)
            self._stopping.wait(KAFKA_LOOK_S)

    def _look(self, admin: AdminClient) -> TopicsSeen:
        """Return the topics that are to be read. Raises KafkaException and TimeoutError."""
        settings = self._settings
        metadata = admin.list_topics(timeout=KAFKA_LOOK_TIMEOUT_S)
        names = sorted(
            name
            for name, topic in metadata.topics.items()
            if settings.wants(name) and topic.error is None and topic.partitions
        )
        seen: list[TopicSeen] = []
        if names:
            asked = admin.describe_topics(
                TopicCollection(names), request_timeout=KAFKA_CALL_TIMEOUT_S
            )
            for name in names:
                try:
                    told = asked[name].result(KAFKA_CALL_TIMEOUT_S)
                except KafkaException:
                    continue  # deleted meanwhile
                seen.append(TopicSeen(name, str(told.topic_id), len(told.partitions)))
        there = {topic.name for topic in seen}
        missing = tuple(name for name in settings.topics if name not in there)
        return TopicsSeen(metadata.cluster_id or "", tuple(seen), missing)
