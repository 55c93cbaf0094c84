"""Makes the clients of a Kafka cluster, with the settings on which the engine's promises rest."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from mdserver.errors import ConfigError
from mdserver.limits import KAFKA_PENDING_BYTES_MAX, KAFKA_QUEUE_KB, KB
from mdserver.server.kafka.properties import KafkaSettings, Properties

ErrorCallback = Callable[[KafkaError], None]

CONSUMER: Properties = {
    "group.id": "mdserver",  # asked for; nothing is committed and no group is joined
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",  # what retention removed must not be passed over silently
    "enable.partition.eof": "true",
}
DEFAULTS: Properties = {
    # A broker that was away is tried again within a second, and not within ten.
    "reconnect.backoff.max.ms": "1000",
}
CONSUMER_DEFAULTS: Properties = {
    **DEFAULTS,
    "isolation.level": "read_committed",
    # A full queue stops fetching, which is how a busy member slows its partitions down. The
    # default would then wait for a second.
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": str(KAFKA_QUEUE_KB),
    "allow.auto.create.topics": "false",
}
PRODUCER: Properties = {"acks": "all", "enable.idempotence": "true"}
PRODUCER_DEFAULTS: Properties = {
    **DEFAULTS,
    "compression.type": "lz4",
    "linger.ms": "2",
    # How many partitions a topic has; it is asked for at once when another client finds more.
    "topic.metadata.refresh.interval.ms": "10000",
    "delivery.timeout.ms": "30000",
}

_SILENT = logging.getLogger("mdserver.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False  # errors come by callbacks, and are logged once


def _ignored(_: KafkaError) -> None:
    """Do nothing: the next request shows whether Kafka can be reached."""


def consumer(settings: KafkaSettings) -> Consumer:
    """Make a consumer. Raises ConfigError."""
    properties = {**CONSUMER_DEFAULTS, **settings.consumer, **CONSUMER, "error_cb": _ignored}
    made: Consumer = _made("consumer.properties", Consumer, properties)
    return made


def producer(settings: KafkaSettings, failed: ErrorCallback) -> Producer:
    """Make a producer; `failed` is called with errors in `poll`. Raises ConfigError."""
    properties = {
        **PRODUCER_DEFAULTS,
        # What the node lets wait, which counts headers as well: librdkafka does not.
        "queue.buffering.max.kbytes": str(KAFKA_PENDING_BYTES_MAX // KB // settings.producers),
        **settings.producer,
        **PRODUCER,
        "error_cb": failed,
    }
    made: Producer = _made("producer.properties", Producer, properties)
    return made


def admin(settings: KafkaSettings, failed: ErrorCallback = _ignored) -> AdminClient:
    """Make a client that asks for topics; `failed` is called with errors. Raises ConfigError."""
    properties = {**DEFAULTS, **settings.admin, "error_cb": failed}
    made: AdminClient = _made("consumer.properties", AdminClient, properties)
    return made


def _made(what: str, made: Callable[..., Any], properties: Mapping[str, object]) -> Any:
    try:
        return made(properties, logger=_SILENT)
    except (KafkaException, ValueError, TypeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.str() if isinstance(reason, KafkaError) else str(reason)
        raise ConfigError(f"{what}: {text}") from None


def described(error: BaseException) -> str:
    """Return what went wrong in a few words."""
    reason = error.args[0] if error.args else error
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return text or type(error).__name__
