"""Section: Kafka as the log of all members."""

import enum
from pathlib import Path

import attrs

from mdserver.config import values
from mdserver.config.parameter import parameter


class ClusterEngine(enum.Enum):
    """What keeps the messages, and brings them from one member to the others."""

    BUILTIN = "builtin"
    KAFKA = "kafka"


@attrs.frozen(kw_only=True, slots=False)
class Kafka:
    """Kafka"""

    cluster_engine: ClusterEngine = parameter(
        "ClusterEngine",
        values.choice(ClusterEngine),
        ClusterEngine.BUILTIN,
        """What brings messages from one member to the others. `builtin`: the members themselves, or
        this server alone. `kafka`: the topics of a Kafka cluster, whose records are the messages of
        subjects `/topic/key` (docs/kafka.md); it needs the extra `mdserver[kafka]` and a
        `ClusterPassword`, the same on every member.""",
    )
    kafka_consumer_properties: Path = parameter(
        "Kafka.ConsumerProperties",
        values.PATH,
        Path("addons/kafka/consumer.properties"),
        """How topics are read: a Java properties file of a Kafka consumer, and in it `topics` or
        `topics.regex`, and `recovery.on.start`.""",
    )
    kafka_producer_properties: Path = parameter(
        "Kafka.ProducerProperties",
        values.PATH,
        Path("addons/kafka/producer.properties"),
        """How publications are written: a Java properties file of a Kafka producer.""",
    )
