"""Properties files of Java clients: what is taken, translated and refused, each in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from mdserver.config import load
from mdserver.config.concerns import concerns
from mdserver.errors import ConfigError
from mdserver.server.kafka.backplane import share_of
from mdserver.server.kafka.opening import open_kafka
from mdserver.server.kafka.properties import KafkaSettings

SERVERS = "bootstrap.servers = 127.0.0.1:1\n"
TOPICS = SERVERS + "topics = vehicles, prices\n"


def files(folder: Path, consumer: str = TOPICS, producer: str = SERVERS) -> list[str]:
    """Write both files; return the settings that name them."""
    (folder / "consumer.properties").write_text(consumer)
    (folder / "producer.properties").write_text(producer)
    return [
        "ClusterEngine=kafka",
        "ClusterPassword=0123456789abcdef",
        f"Kafka.ConsumerProperties={folder}/consumer.properties",
        f"Kafka.ProducerProperties={folder}/producer.properties",
    ]


def settings(folder: Path, consumer: str = TOPICS, producer: str = SERVERS) -> KafkaSettings:
    found = open_kafka(load(overrides=files(folder, consumer, producer)).config)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("secret", "warned"),
    [
        ('sasl.jaas.config=x username="a" password="b";', True),
        ("ssl.key.password : abc", True),
        ("# ssl.key.password = abc", False),
        ("client.id = password", False),
    ],
)
def test_a_secret_that_everybody_may_read_is_a_warning(
    tmp_path: Path, secret: str, warned: bool
) -> None:
    overrides = [*files(tmp_path, TOPICS + secret + "\n"), "Entitlement=None", "AllowedOrigins=x"]
    (tmp_path / "consumer.properties").chmod(0o644)
    (tmp_path / "producer.properties").chmod(0o644)
    told = [one for one in concerns(load(overrides=overrides)) if "Kafka" in one]
    expected = f"Kafka.ConsumerProperties: every user of this machine may read {tmp_path}"
    assert [one.startswith(expected) for one in told] == [True] * warned
    (tmp_path / "consumer.properties").chmod(0o600)
    assert not [one for one in concerns(load(overrides=overrides)) if "Kafka" in one]


def test_how_often_topics_are_described(tmp_path: Path) -> None:
    assert settings(tmp_path).describe_s == 10
    assert settings(tmp_path, TOPICS + "metadata.max.age.ms=500\n").describe_s == 0.5
    with pytest.raises(ConfigError, match=r"metadata.max.age.ms = soon: expected milliseconds"):
        settings(tmp_path, TOPICS + "metadata.max.age.ms=soon\n")


def test_several_consumers_share_what_may_wait(tmp_path: Path) -> None:
    found = settings(tmp_path, TOPICS + "consumers.size=4\n", SERVERS + "producers.size = 2\n")
    assert (found.consumers, found.producers) == (4, 2)
    assert found.consumer["queued.max.messages.kbytes"] == "8192"
    assert "producers.size" not in found.producer


def test_each_partition_has_one_client_and_all_clients_have_some() -> None:
    shares = [share_of(("vehicles", number), 3) for number in range(6)]
    assert sorted(shares) == [0, 0, 1, 1, 2, 2]


def test_names_of_java_are_those_of_librdkafka(tmp_path: Path) -> None:
    consumer = TOPICS + (
        "# a comment\n"
        "fetch.max.wait.ms : 20\n"
        "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
        "group.id=other\n"
        "enable.auto.commit=true\n"
        "client.id=na\\u00efve\n"
    )
    producer = SERVERS + "buffer.memory=2097152\nacks=all\nmax.request.size = 2000000\n"
    found = settings(tmp_path, consumer, producer)
    assert found.topics == ("vehicles", "prices")
    assert found.consumer == {
        "bootstrap.servers": "127.0.0.1:1",
        "fetch.wait.max.ms": "20",
        "client.id": "naïve",
    }
    assert found.admin == {"bootstrap.servers": "127.0.0.1:1", "client.id": "naïve"}
    assert found.producer == {
        "bootstrap.servers": "127.0.0.1:1",
        "queue.buffering.max.kbytes": "2048",
        "message.max.bytes": "2000000",
        "partitioner": "murmur2_random",
    }
    assert found.recover_ms == 180_000


def test_sasl_is_passed_through(tmp_path: Path) -> None:
    jaas = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="se\\\\"cret";\n'
    )
    found = settings(tmp_path, TOPICS + jaas)
    assert found.admin == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'se"cret',
    }


def test_topics_by_an_expression(tmp_path: Path) -> None:
    found = settings(tmp_path, SERVERS + "topics.regex=veh.*|_.*\nrecovery.on.start=false\n")
    wanted = ["vehicles", "prices", "_one", "__consumer_offsets"]
    assert [name for name in wanted if found.wants(name)] == ["vehicles", "_one"]
    assert found.recover_ms is None


@pytest.mark.parametrize(
    ("consumer", "producer", "sentence"),
    [
        (SERVERS, SERVERS, "set exactly one of topics and topics.regex"),
        (TOPICS + "topics.regex=a", SERVERS, "set exactly one of topics and topics.regex"),
        (SERVERS + "topics=a b", SERVERS, "a b is no name of a topic"),
        (SERVERS + "topics.regex=(", SERVERS, "topics.regex = (: "),
        ("topics=a", SERVERS, "bootstrap.servers is missing"),
        (TOPICS + "recovery.on.start=maybe", SERVERS, "expected true or false"),
        (TOPICS + "consumers.size=17", SERVERS, "consumers.size = 17: expected a number up to 16"),
        (TOPICS, SERVERS + "producers.size=0", "producers.size = 0: expected a number up to 16"),
        (TOPICS + "ssl.truststore.type=JKS", SERVERS, "export it as PEM"),
        (TOPICS + "ssl.truststore.password=x", SERVERS, "export the trust store as PEM"),
        (TOPICS + "sasl.jaas.config=nothing", SERVERS, 'expected username="..."'),
        (TOPICS + "no.such=1", SERVERS, "consumer.properties: "),
        (TOPICS, SERVERS + "acks=1", "acks = 1: this server decides it"),
        (TOPICS, SERVERS + "transactional.id=x", "transactional.id = x: this server decides it"),
        (TOPICS, SERVERS + "partitioner=random", "expected one of murmur2_random"),
        (TOPICS, SERVERS + "buffer.memory=much", "expected a number of bytes"),
        (TOPICS, SERVERS + "linger.ms=soon", "producer.properties: "),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, consumer: str, producer: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, consumer, producer)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_check_config_tells_them(tmp_path: Path) -> None:
    arguments = ["check-config"]
    for one in files(tmp_path, consumer=SERVERS):
        arguments += ["--set", one]
    command = [sys.executable, "-m", "mdserver.cli.main", *arguments]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "set exactly one of topics and topics.regex" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("Journal=on", "leave Journal off"),
        ("ClusterMembers=127.0.0.1:1", "leave ClusterMembers out"),
        ("ClusterPassword=short", "at least 16 characters"),
    ],
)
def test_what_makes_no_sense_beside_kafka(tmp_path: Path, more: str, sentence: str) -> None:
    overrides = [one for one in files(tmp_path) if one.partition("=")[0] not in more]
    with pytest.raises(ConfigError, match=sentence):
        load(overrides=[*overrides, more])


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    overrides = files(tmp_path)
    (tmp_path / "consumer.properties").unlink()
    config = load(overrides=overrides).config
    with pytest.raises(ConfigError, match=r"Kafka.ConsumerProperties = .*: No such file"):
        open_kafka(config)
