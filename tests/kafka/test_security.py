"""Brokers that ask for TLS, a certificate and a password, as the properties of Java clients say."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen
from click.testing import CliRunner
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from mdserver.bridge import lines
from mdserver.cli.main import mdserver
from mdserver.journal.segments import StreamWriter
from tests.kafka.conftest import Members, needed
from tests.kafka.talking import PATIENCE_S, client, contents, new_topic, take
from tests.live import LiveServer
from tests.live_kafka import LiveKafka, live_kafka
from tests.server.certificates import Authority

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
PASSWORD = "a password with a blank"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKER = f"""
listener.security.protocol.map=BROKER:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.broker.plain.sasl.jaas.config={PLAIN} required \\
  username="broker" password="{PASSWORD}" user_broker="{PASSWORD}" user_member="{PASSWORD}";
listener.name.broker.scram-sha-512.sasl.jaas.config={SCRAM} required;
ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location=@FOLDER@/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=@FOLDER@/authority.pem
"""


@frozen
class Guarded:
    """A broker that proves who it is, and wants to know who asks."""

    kafka: LiveKafka
    folder: Path

    def properties(self, mechanism: str, module: str, password: str = PASSWORD) -> str:
        """Return the lines that a Java client needs."""
        return (
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="member" password="{password}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.folder}/authority.pem\n"
            "ssl.keystore.type=PEM\n"
            f"ssl.keystore.location={self.folder}/member.pem\n"
        )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder / "authority.pem")
    authority.issue(folder / "broker.pem", address="127.0.0.1")
    authority.issue(folder / "member.pem")
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "member",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(folder / "authority.pem"),
        "ssl.certificate.location": str(folder / "member.pem"),
        "ssl.key.location": str(folder / "member.pem"),
    }
    more = BROKER.replace("@FOLDER@", str(folder))
    with needed(), live_kafka(folder, more, settings) as kafka:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion("member", scram, PASSWORD.encode())
        kafka.admin.alter_user_scram_credentials([made])["member"].result(60)
        yield Guarded(kafka, folder)


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-512", SCRAM)])
async def test_a_member_talks_to_a_broker_that_asks_for_all_of_it(
    guarded: Guarded, members: Members, mechanism: str, module: str
) -> None:
    topic = new_topic(guarded.kafka, 1)
    shared = guarded.properties(mechanism, module)
    with members.start(guarded.kafka, f"topics={topic}", shared=shared) as here:
        async with client(here) as it, it.subscribe(f"/{topic}/k") as subscription:
            await it.connected()
            await it.publish(f"/{topic}/k", "under TLS")
            assert contents(await take(subscription, 1)) == ["under TLS"]


@pytest.mark.soak
def test_a_wrong_password_is_named(guarded: Guarded, members: Members) -> None:
    topic = new_topic(guarded.kafka, 1)
    shared = guarded.properties("PLAIN", PLAIN, "another")
    with members.start(guarded.kafka, f"topics={topic}", shared=shared) as here:
        expected = "Authentication failed: Invalid username or password"
        deadline = time.monotonic() + PATIENCE_S
        while expected not in (said := readiness(here)):
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        assert "Kafka cannot be reached: " in said


def test_a_job_with_a_wrong_password_is_told_so(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a line that does not have the password."""
    monkeypatch.setattr(lines, "KAFKA_CALL_TIMEOUT_S", 6)
    file = tmp_path / "ship.properties"
    file.write_text(guarded.properties("PLAIN", PLAIN, "another"))
    words = ["--kafka", guarded.kafka.servers, "--topics", "a.messages", "--once"]
    (tmp_path / "messages").mkdir()
    with StreamWriter(tmp_path / "messages", segment_bytes_max=100) as writer:
        writer.append([b"{}"])
    words += ["--kafka-properties", str(file), "--journal", str(tmp_path)]
    told = str(CliRunner().invoke(mdserver, ["ship", *words]).exception)
    assert told.startswith("a.messages: Kafka does not answer (sasl_ssl://")
    assert "Invalid username or password" in told
    assert told.endswith("look at user, password and sasl.mechanism")
    assert "another" not in told


def readiness(server: LiveServer) -> str:
    """Return what a server says of why it is not ready."""
    try:
        with urllib.request.urlopen(f"{server.url}/health/ready", timeout=PATIENCE_S) as answer:  # noqa: S310
            return str(answer.read())
    except urllib.error.HTTPError as error:
        return str(error.read())
