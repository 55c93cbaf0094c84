"""What Kafka's client for Java fails with is one line that names the setting, and no password."""

from pathlib import Path
from typing import Any

import pytest

from mdserver.pipeline.common.kafka_errors import JavaThrown, explained
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.sources import KafkaSource

from .conftest import needs_jars

pytestmark = pytest.mark.pipeline

PASSWORD = "a password with a blank"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ERRORS = "org.apache.kafka.common.errors"
SECURE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{MODULE} required username="member" password="{PASSWORD}";',
    # No test waits for a broker that is not there.
    "default.api.timeout.ms": "300",
    "request.timeout.ms": "200",
}


@pytest.mark.parametrize(
    ("causes", "told"),
    [
        (
            [
                JavaThrown("ExecutionException", f"{ERRORS}.SaslAuthenticationException: refused"),
                JavaThrown("SaslAuthenticationException", "Invalid username or password"),
            ],
            "Invalid username or password: look at user and password in sasl.jaas.config",
        ),
        (
            [
                JavaThrown("ExecutionException", f"{ERRORS}.SslAuthenticationException: SSL"),
                JavaThrown("SslAuthenticationException", "SSL handshake failed"),
                JavaThrown("ValidatorException", "PKIX path building failed: sun.x.Y: unable"),
                JavaThrown(
                    "SunCertPathBuilderException", "unable to find valid certification path"
                ),
            ],
            "SSL handshake failed (unable to find valid certification path): ssl.truststore.",
        ),
        (
            [
                JavaThrown("SslAuthenticationException", "SSL handshake failed"),
                JavaThrown("CertificateException", "No name matching broker found"),
            ],
            "SSL handshake failed (No name matching broker found): the certificate of the broker",
        ),
        (
            [
                JavaThrown("ExecutionException", f"{ERRORS}.UnknownTopicOrPartitionException: no"),
                JavaThrown("UnknownTopicOrPartitionException", "This server does not host this."),
            ],
            "This server does not host this: look at --topics",
        ),
        ([JavaThrown("SomeException", "")], "SomeException"),
    ],
)
def test_what_is_wrong_and_what_to_look_at(causes: list[JavaThrown], told: str) -> None:
    assert explained(causes).startswith(told)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sasl.jaas.config": f'{MODULE} required password="{PASSWORD}"'}, "has another form"),
        ({"sasl.jaas.config": f"{MODULE} required password={PASSWORD};"}, "has another form"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config is missing, or has another form"),
        ({"security.protocol": "TLS"}, "Invalid value TLS for configuration security.protocol"),
        ({"ssl.truststore.location": "FILE"}, "look at ssl.truststore.location"),
        ({"bootstrap.servers": "127.0.0.1"}, "give --kafka as HOST:PORT"),
    ],
)
def test_settings_with_which_there_is_no_client_are_one_line(
    spark: Any, connector: list[Path], tmp_path: Path, wrong: dict[str, str], told: str
) -> None:
    needs_jars(connector)
    file = tmp_path / "authority.jks"
    file.write_text("no store", encoding="utf-8")
    given = SECURE | {name: value.replace("FILE", str(file)) for name, value in wrong.items()}
    source = KafkaSource(given.get("bootstrap.servers", "127.0.0.1:1"), ["a.messages"], given)
    with pytest.raises(PipelineError, match=rf"^Kafka at 127.*a\.messages: [^\n]*{told}") as raised:
        source.identity(spark, "messages")
    assert "password with" not in str(raised.value)
    assert "\n" not in str(raised.value)
