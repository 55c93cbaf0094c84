"""Section: Kafka as the log of all members."""

import enum
from pathlib import Path

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.limits import NS_PER_MS, NS_PER_S


class ClusterEngine(enum.Enum):
    """What keeps the messages, and brings them from one member to the others."""

    BUILTIN = "builtin"
    KAFKA = "kafka"


class KafkaAway(enum.Enum):
    """What happens to publications while Kafka cannot be reached."""

    REFUSE = "refuse"
    HOLD = "hold"


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
    kafka_away: KafkaAway = parameter(
        "Kafka.Away",
        values.choice(KafkaAway),
        KafkaAway.REFUSE,
        """What happens to publications while Kafka cannot be reached. `refuse`: they are refused,
        and surely not taken. `hold`: they wait for Kafka; those that it has not acknowledged after
        10 s end as uncertain, and may be taken nevertheless (docs/kafka.md, "While Kafka is
        away").""",
    )
    kafka_decoder_class: str = parameter(
        "Kafka.Decoder.Class",
        values.text(512),
        "",
        """A Python class that makes content of the values of records, such as those of a schema
        registry: `package.module:Class`, found as Python finds modules. docs/kafka.md says what it
        has to offer. Without one a value is shown as it is.""",
    )
    kafka_decoder_deadline: int = parameter(
        "Kafka.Decoder.Deadline",
        values.duration(10 * NS_PER_MS, 600 * NS_PER_S),
        limits.KAFKA_DECODER_DEADLINE_S * NS_PER_S,
        """How long the class may take for a record; one that takes longer is passed over.""",
    )
