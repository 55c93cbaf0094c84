"""The only way into this room: its libraries are an extra, and loaded only if Kafka is the log."""

from typing import TYPE_CHECKING

from mdserver.cluster.kafka_node import KafkaNode
from mdserver.config import ClusterEngine, Config
from mdserver.errors import ConfigError

if TYPE_CHECKING:
    from mdserver.cluster.node import Node
    from mdserver.server import engine
    from mdserver.server.kafka.backplane import Backplane
    from mdserver.server.kafka.decoding import DecoderSettings
    from mdserver.server.kafka.properties import KafkaSettings


def open_kafka(config: Config) -> "KafkaSettings | None":
    """Return the settings of the Kafka engine; None if it is not used. Raises ConfigError."""
    if config.cluster_engine is not ClusterEngine.KAFKA:
        return None
    try:
        from mdserver.server.kafka.backplane import try_clients
        from mdserver.server.kafka.properties import kafka_settings
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"ClusterEngine = kafka: {error.name} is not installed: "
            "python -m pip install 'mdserver[kafka]'"
        ) from None
    settings = kafka_settings(config)
    try_clients(settings)
    return settings


def connect(
    settings: "KafkaSettings | None",
    node: "Node",
    engine: "engine.Engine",
    decoder: "DecoderSettings | None",
) -> "Backplane | None":
    """Make the connection of a node to Kafka; None without settings."""
    if settings is None or not isinstance(node, KafkaNode):
        return None
    from mdserver.server.kafka.backplane import connected

    return connected(settings, node, engine, decoder)
