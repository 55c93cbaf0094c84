"""Brokers that do not answer `mdserver ship`: one line says why, and what to look at."""

import socket
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from mdserver.bridge import lines
from mdserver.bridge.complaints import BrokerComplaints
from mdserver.bridge.ledger import BridgeError
from mdserver.bridge.lines import JournalLedger

pytestmark = pytest.mark.pipeline
TOPIC = "fleet.messages"


ENOUGH_S = 5.0
"""Within which a busy computer reports what is wrong; the test takes that long."""
SOON_S = 0.5
"""For what is reported without an answer."""
REFUSED = KafkaError(KafkaError._TRANSPORT, "refused")
PASSWORD = KafkaError(KafkaError._AUTHENTICATION, "Invalid password")
CERTIFICATE = KafkaError(KafkaError._SSL, "unknown authority")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "KAFKA_CALL_TIMEOUT_S", SOON_S)


def said(**settings: str) -> str:
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    with pytest.raises(BridgeError) as raised:
        JournalLedger.of(properties, "state", TOPIC, "identifier")
    return str(raised.value)


def test_an_address_at_which_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "KAFKA_CALL_TIMEOUT_S", ENOUGH_S)
    told = said(bootstrap_servers="127.0.0.1:1")
    assert told.startswith(f"{TOPIC}: Kafka does not answer (127.0.0.1:1/bootstrap: Connect to")
    assert "refused" in told
    assert "look at the address" in told


def test_a_broker_that_waits_for_another_protocol() -> None:
    """It says nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = said(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
    assert told == (
        f"{TOPIC}: Kafka does not answer: look at the address, and whether the brokers want TLS or"
        " a password (security.protocol)"
    )


def test_no_authority_of_that_kind(tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_text("no certificate", encoding="utf-8")
    told = said(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SSL",
        ssl_ca_location=str(tmp_path / "authority.pem"),
    )
    assert told.startswith("--kafka-properties: Failed to create admin client: ssl.ca.location")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([PASSWORD, REFUSED, DOWN], " (Invalid password): look at user, password and"),
        ([REFUSED, PASSWORD], " (Invalid password): look at user, password and"),
        ([CERTIFICATE, REFUSED], " (unknown authority): look at ssl.truststore.location"),
        ([REFUSED, DOWN], " (refused): look at the address, and whether"),
        ([DOWN], ": look at the address, and whether"),
    ],
)
def test_what_one_broker_refuses_counts_more_than_another_that_is_down(
    errors: list[KafkaError], told: str
) -> None:
    complaints = BrokerComplaints()
    for error in errors:
        complaints(error)
    assert complaints.said().startswith(told)
