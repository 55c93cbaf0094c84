"""Reads the properties files of a consumer and a producer, as Java clients have them.

Most names mean the same to librdkafka. `RENAMED` has those that are called otherwise there,
`UNUSED` those that mean nothing outside Java, and `OURS` those that this server decides: positions,
repeats and acknowledgements would not be true with other values.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import javaproperties
from attrs import field, frozen

from mdserver.cluster.kafka_records import PARTITIONERS
from mdserver.config import Config
from mdserver.errors import ConfigError
from mdserver.limits import (
    KAFKA_CLIENTS_MAX,
    KAFKA_DESCRIBE_S,
    KAFKA_PROPERTIES_BYTES_MAX,
    KAFKA_QUEUE_KB,
    NS_PER_MS,
)

Properties = dict[str, str]

UNUSED = (
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "interceptor.classes",
    "partitioner.class",
    "max.poll.records",
    "max.block.ms",
    "default.api.timeout.ms",
    "producers.size",  # in the file of the other side; each takes out its own
    "consumers.size",
)
OURS: dict[str, tuple[str, ...]] = {
    "acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "enable.auto.commit": ("false",),
    "auto.offset.reset": (),
    "group.id": (),
    "transactional.id": (),
}
"""What this server decides, with the values that agree with that; none: it means nothing here."""
FOR_SERVERS = ("topics", "topics.regex", "recovery.on.start")
"""What only servers know, in the file of their consumer."""
IGNORED = ("enable.auto.commit", "auto.offset.reset", "group.id")
RENAMED: dict[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.location": "ssl.ca.location",
}
STORES = ("ssl.truststore.location", "ssl.keystore.location")
"""Files that a client of Java reads as soon as it is made."""
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SHARED = (
    "bootstrap.",
    "security.",
    "ssl.",
    "sasl.",
    "socket.",
    "client.",
    "broker.",
    "reconnect.",
)
"""The beginnings of the names that every client of the cluster needs."""


@frozen
class KafkaSettings:
    """What the properties files say. `topics` or `regex` is given; `recover_ms` is None if a start
    does not recover anything, otherwise how old the messages are that it reads.
    """

    consumer: Properties = field(repr=False)  # with passwords, as `producer` and `admin`
    producer: Properties = field(repr=False)
    topics: tuple[str, ...]
    regex: re.Pattern[str] | None
    recover_ms: int | None
    partitioner: str = "murmur2_random"
    admin: Properties = field(factory=dict, repr=False)
    describe_s: float = KAFKA_DESCRIBE_S
    consumers: int = 1
    producers: int = 1

    def wants(self, topic: str) -> bool:
        """Return whether a topic is to be read; those of Kafka itself never are."""
        if self.regex is None:
            return topic in self.topics
        return not topic.startswith("__") and self.regex.fullmatch(topic) is not None


def kafka_settings(config: Config) -> KafkaSettings:
    """Read both files. Raises ConfigError, with one sentence that names file and property."""
    file = config.kafka_consumer_properties
    consumer = read_properties("Kafka.ConsumerProperties", file)
    producer_file = config.kafka_producer_properties
    producer = read_properties("Kafka.ProducerProperties", producer_file)
    topics, regex = _topics(file, consumer)
    describe_ms = consumer.get("metadata.max.age.ms", str(KAFKA_DESCRIBE_S * 1000)).strip()
    if not describe_ms.isdigit() or not int(describe_ms):
        raise ConfigError(f"{file}: metadata.max.age.ms = {describe_ms}: expected milliseconds")
    consumers = _size(file, consumer, "consumers.size")
    producers = _size(producer_file, producer, "producers.size")
    # What waits for the server is bounded for all consumers together.
    if consumers > 1:
        consumer.setdefault("queued.max.messages.kbytes", str(KAFKA_QUEUE_KB // consumers))
    recover = _boolean(file, consumer, "recovery.on.start", default="true")
    partitioner = producer.setdefault("partitioner", "murmur2_random")
    if partitioner not in PARTITIONERS:
        raise ConfigError(
            f"{producer_file}: partitioner = {partitioner}: expected one of "
            f"{', '.join(PARTITIONERS)}, under which the partition of a key is known beforehand"
        )
    return KafkaSettings(
        translated(file, consumer),
        translated(producer_file, producer),
        topics,
        regex,
        config.cache_expire_time // NS_PER_MS if recover else None,
        partitioner,
        {
            name: value
            for name, value in translated(file, consumer).items()
            if name.startswith(_SHARED)
        },
        int(describe_ms) / 1000,
        consumers,
        producers,
    )


def read_properties(parameter: str, file: Path) -> Properties:
    """Return the properties of a file, which name the brokers. Raises ConfigError."""
    found = load_properties(parameter, file)
    if not found.get("bootstrap.servers", "").strip():
        raise ConfigError(f"{file}: bootstrap.servers is missing: the brokers, as host:port")
    return found


def load_properties(parameter: str, file: Path) -> Properties:
    """Return the properties of a file. Raises ConfigError."""
    try:
        if file.stat().st_size > KAFKA_PROPERTIES_BYTES_MAX:
            raise ConfigError(f"{parameter} = {file}: this is no properties file, it is too large")
        with file.open("rb") as source:
            found: Properties = javaproperties.load(source)
    except OSError as error:
        raise ConfigError(f"{parameter} = {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{parameter} = {file}: {error}") from None
    return found


def require_stores(parameter: str, file: Path, properties: Mapping[str, str]) -> None:
    """Raise ConfigError if a file of certificates or keys that properties name is not there."""
    for name in STORES:
        place = properties.get(name, "").strip()
        if place and not Path(place).exists():
            raise ConfigError(f"{parameter} = {file}: {name} = {place}: there is no such file")


def _size(file: Path, properties: Properties, name: str) -> int:
    """Take out how many clients share the partitions. Raises ConfigError."""
    text = properties.pop(name, "1").strip()
    if not text.isdigit() or not 1 <= int(text) <= KAFKA_CLIENTS_MAX:
        raise ConfigError(f"{file}: {name} = {text}: expected a number up to {KAFKA_CLIENTS_MAX}")
    return int(text)


def _topics(file: Path, consumer: Properties) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """Take the properties that name topics out. Raises ConfigError unless exactly one is given."""
    names, pattern = consumer.pop("topics", "").strip(), consumer.pop("topics.regex", "").strip()
    if bool(names) == bool(pattern):
        raise ConfigError(f"{file}: set exactly one of topics and topics.regex")
    if not pattern:
        listed = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
        for name in listed:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
                raise ConfigError(f"{file}: topics = {names}: {name} is no name of a topic")
        return listed, None
    try:
        return (), re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{file}: topics.regex = {pattern}: {error}") from None


def _boolean(file: Path, properties: Properties, name: str, default: str) -> bool:
    text = properties.pop(name, default).strip().lower()
    if text not in {"true", "false", "yes", "no"}:
        raise ConfigError(f"{file}: {name} = {text}: expected true or false")
    return text in {"true", "yes"}


def without_topics(properties: Mapping[str, str]) -> Properties:
    """Return what is for clients of Kafka in the file of a server's consumer."""
    return {name: value for name, value in properties.items() if name not in FOR_SERVERS}


def translated(file: Path, properties: Mapping[str, str]) -> Properties:
    """Return properties of Java clients under the names of librdkafka. Raises ConfigError."""
    found: Properties = {}
    for name, raw in properties.items():
        value = raw.strip()
        if name in OURS:
            agreed = OURS[name]
            if name not in IGNORED and value.lower() not in agreed:
                right = f"leave it out, or write {agreed[0]}" if agreed else "leave it out"
                raise ConfigError(f"{file}: {name} = {value}: this server decides it: {right}")
        elif name in _TRANSLATED:
            found |= _TRANSLATED[name](file, value)
        elif name not in UNUSED:
            found[RENAMED.get(name, name)] = value
    return found


def _memory(file: Path, value: str) -> Properties:
    if not value.isdigit():
        raise ConfigError(f"{file}: buffer.memory = {value}: expected a number of bytes")
    return {"queue.buffering.max.kbytes": str(max(1, int(value) // 1024))}


def _jaas(file: Path, value: str) -> Properties:
    """Return user and password of a line for Java's login modules. Raises ConfigError."""
    parts = dict(_JAAS.findall(value))
    if len(parts) != 2:
        raise ConfigError(
            f'{file}: sasl.jaas.config: expected username="..." and password="..." in it'
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", text) for name, text in parts.items()}


def _store_type(file: Path, value: str) -> Properties:
    if value.upper() != "PEM":
        raise ConfigError(
            f"{file}: a key or trust store of the type {value} is for Java alone: export it as "
            "PEM, and set its type to PEM"
        )
    return {}


def _java_password(file: Path, _: str) -> Properties:
    raise ConfigError(
        f"{file}: ssl.truststore.password: files in PEM have none; export the trust store as PEM"
    )


def _key_store(_: Path, value: str) -> Properties:
    return {"ssl.certificate.location": value, "ssl.key.location": value}


_TRANSLATED: dict[str, Callable[[Path, str], Properties]] = {
    "buffer.memory": _memory,
    "sasl.jaas.config": _jaas,
    "ssl.truststore.type": _store_type,
    "ssl.keystore.type": _store_type,
    "ssl.truststore.password": _java_password,
    "ssl.keystore.location": _key_store,
}
