"""Why brokers do not answer: what a client of librdkafka says of them, and what to look at.

A request that gets no answer fails with its time alone. That a password is wrong, or a certificate
is of an unknown authority, is said only by the client, in a callback that its `poll` calls.
"""

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

SILENCE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
"""Errors of requests that got no answer."""
REMEDIES = {
    KafkaError._AUTHENTICATION: "look at user, password and sasl.mechanism",
    KafkaError._SSL: "look at ssl.truststore.location, and at ssl.keystore.location if the brokers"
    " ask who is there",
    KafkaError._RESOLVE: "look at the name in the address",
}
UNKNOWN = "look at the address, and whether the brokers want TLS or a password (security.protocol)"
"""A broker that is spoken to in another protocol than its own may say nothing at all."""


class BrokerComplaints:
    """What one client says of brokers that it cannot talk to; it is the client's `error_cb`."""

    def __init__(self) -> None:
        self.client: AdminClient | None = None
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        # That no broker is left follows from what was said of each.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def said(self) -> str:
        """Return the last complaint and what to look at, to be put behind a sentence."""
        if self.client is not None:
            self.client.poll(0)
        if self._last is None:
            return f": {UNKNOWN}"
        return f" ({self._last.str()}): {REMEDIES.get(self._last.code(), UNKNOWN)}"
