"""The transactions in which `mdserver ship` writes lines of journals to topics of Kafka."""

from collections.abc import Mapping, Sequence

import attrs
import msgspec
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from mdserver.bridge.complaints import BrokerComplaints
from mdserver.bridge.ledger import BridgeError, Ledger, admin_client, bridge_errors
from mdserver.cluster.kafka_records import ProducedRecord
from mdserver.limits import KAFKA_CALL_TIMEOUT_S
from mdserver.pipeline.ship.topics import LINE, LineRecord, SentLines

ROW = "reached"
BY_KEY = -1
"""The partition is that of the key."""
SIZE_MAX = "message.max.bytes"
OPTION = "--kafka-properties"


@attrs.frozen
class JournalLedger:
    """Transactions of one stream of a journal, whose lines go to one topic."""

    topic: str
    _ledger: Ledger

    @classmethod
    def of(
        cls, properties: Mapping[str, str], state_topic: str, topic: str, identifier: str
    ) -> "JournalLedger":
        """Return the ledger of the stream with this identifier. Raises BridgeError."""
        # A batch of the producer is refused as a whole if it is larger than the topic takes.
        settings = {**properties, SIZE_MAX: _size_max(properties, topic)}
        name = f"mdserver-ship-{identifier}"
        what = "process for the stream"
        ledger = Ledger(settings, name, state_topic, SentLines, what=what, option=OPTION)
        return cls(topic, ledger)

    def load(self) -> SentLines | None:
        """Shut out earlier processes that sent the stream, and return how far they came."""
        rows = self._ledger.load()
        return msgspec.convert(rows[ROW], SentLines) if ROW in rows else None

    def commit(self, records: Sequence[LineRecord], reached: SentLines) -> None:
        """Write records, and how far the stream was sent with them, in one transaction.

        Raises BridgeError, also if Kafka refuses one of the records for good; then nothing is
        written.
        """
        produced = [
            ProducedRecord(0, self.topic, BY_KEY, each.key, each.value, [*each.headers], 0)
            for each in records
        ]
        row = msgspec.to_builtins(reached)
        refused = self._ledger.commit(produced, {ROW: row}, whole=True)
        if refused:
            at = min(refused)
            line = dict(records[at].headers)[LINE].decode()
            raise BridgeError(
                f"{refused[at]}: line {line} of segment {reached.segment} has"
                f" {len(records[at].value)} bytes; neither it nor what follows was sent (how much a"
                " topic takes is its max.message.bytes, unless the properties have less)"
            )


def _size_max(properties: Mapping[str, str], topic: str) -> str:
    """Return the bytes that a topic takes at a time, or those of the properties if they are fewer.

    Raises BridgeError if the topic is not there.
    """
    resource = ConfigResource("topic", topic)
    complaints = BrokerComplaints()
    admin = complaints.client = admin_client(properties, OPTION, complaints)
    with bridge_errors(topic, complaints):
        asked = admin.describe_configs([resource], request_timeout=KAFKA_CALL_TIMEOUT_S)
        most = int(asked[resource].result(KAFKA_CALL_TIMEOUT_S)["max.message.bytes"].value)
    given = properties.get(SIZE_MAX, "")
    return str(min(most, int(given)) if given.isdecimal() else most)
