"""Writes publications as records, and gives the node what became of them.

`produce` only puts records into the queue of librdkafka, whose threads send them; the thread here
waits for the results.
"""

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError, KafkaException

from mdserver.cluster.kafka_messages import Produce, ProductionReport, ProductionReports
from mdserver.limits import KAFKA_CLOSE_TIMEOUT_S, KAFKA_LOOK_TIMEOUT_S, KAFKA_POLL_S
from mdserver.server.kafka import clients
from mdserver.server.kafka.thread import EngineThread

if TYPE_CHECKING:
    from mdserver.server.engine import Engine
    from mdserver.server.kafka.properties import KafkaSettings

log = structlog.get_logger()

CERTAIN = (
    KafkaError._QUEUE_FULL,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
)
"""Errors after which a record is surely not in its topic."""


class Writer(EngineThread):
    """The thread that waits for results; `produce` is called from the thread of the server."""

    def __init__(self, settings: "KafkaSettings", engine: "Engine") -> None:
        super().__init__(engine)
        self.refused = 0
        """What was refused at once; `errors` counts the other failures, in the other thread."""
        self._settings = settings
        self._producer = clients.producer(settings, self._failed)
        self._fatal: str | None = None
        self._reports: list[ProductionReport] = []
        self._outdated = threading.Event()

    def look_again(self) -> None:
        """Have the producer learn how many partitions topics have now.

        It refuses records for partitions that it does not know.
        """
        self._outdated.set()

    def produce(self, output: Produce) -> None:
        """Queue records; those that are refused at once are reported by the next input."""
        refused: list[ProductionReport] = []
        write, told = self._producer.produce, self._told
        for record in output.records:
            try:
                write(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=partial(told, record.ticket),
                    timestamp=record.time_ms,
                    headers=[*record.headers] or None,
                )
            except BufferError:
                reason = "too many publications wait for Kafka here"
                refused.append(ProductionReport(record.ticket, reason=reason, certain=True))
            except KafkaException as error:
                reason = f"Kafka refused it: {clients.described(error)}"
                refused.append(ProductionReport(record.ticket, reason=reason, certain=True))
        if refused:
            self.refused += len(refused)
            self._engine.dispatch(ProductionReports(refused))

    def work(self) -> None:
        """Wait for results until the server ends; then for those that are still to come."""
        try:
            while not self._stopping.is_set():
                self._producer.poll(KAFKA_POLL_S)
                if self._reports:
                    reports, self._reports = self._reports, []
                    self.give(ProductionReports(reports))
                if self._fatal is not None:
                    self._replace()
                if self._outdated.is_set():
                    self._look()
        finally:
            self._producer.flush(KAFKA_CLOSE_TIMEOUT_S)

    def _look(self) -> None:
        """Ask for all topics, which the producer notes; it asks by itself if this fails."""
        self._outdated.clear()
        try:
            self._producer.list_topics(timeout=KAFKA_LOOK_TIMEOUT_S)
        except KafkaException as error:
            self.errors += 1
            log.warning("kafka topics unknown", reason=clients.described(error))

    def _told(self, ticket: int, error: KafkaError | None, message: Any) -> None:
        """Note the result of one record; called in `poll`."""
        if error is None:
            report = ProductionReport(ticket, message.partition(), message.offset())
        else:
            self.errors += 1
            reason = f"Kafka did not take it: {error.str()}"
            certain = error.code() in CERTAIN
            report = ProductionReport(ticket, reason=reason, certain=certain)
        self._reports.append(report)

    def _failed(self, error: KafkaError) -> None:
        """Note an error after which this producer writes no more; called in `poll`."""
        if error.fatal():
            self._fatal = error.str()

    def _replace(self) -> None:
        """Go on with another producer: one that lost the order of its records writes no more."""
        log.error("kafka producer replaced", reason=self._fatal)
        self._fatal = None
        former = self._producer
        self._producer = clients.producer(self._settings, self._failed)
        former.purge()
        former.flush(KAFKA_CLOSE_TIMEOUT_S)
