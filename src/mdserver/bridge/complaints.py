"""Why brokers do not answer: what a client of librdkafka says of them, and what to look at.

A request that gets no answer fails with its time alone. That a password is wrong, or a certificate
is of an unknown authority, is said only by the client, in a callback that its `poll` calls.
"""

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

SILENCE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
"""Errors of requests that got no answer."""
REMEDIES: dict[int, str] = {
    KafkaError._AUTHENTICATION: "look at user, password and sasl.mechanism",
    KafkaError._SSL: "look at ssl.truststore.location, and at ssl.keystore.location if the brokers"
    " require client certificates",
    KafkaError._RESOLVE: "look at the name in the address",
}
"""By the code of an error: what to look at, the most telling errors first."""
UNKNOWN = "look at the address, and whether the brokers want TLS or a password (security.protocol)"
"""A broker that is spoken to in another protocol than its own may say nothing at all."""


class BrokerComplaints:
    """What one client says of brokers that it cannot talk to; it is the client's `error_cb`."""

    def __init__(self) -> None:
        self.client: AdminClient | None = None
        self._told: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        # That no broker is left follows from what was said of each. A broker that is down as well
        # does not hide that another one refused the password.
        if error.code() == KafkaError._ALL_BROKERS_DOWN or (
            self._told is not None and _rank(error) > _rank(self._told)
        ):
            return
        self._told = error

    def said(self) -> str:
        """Return the most telling complaint and what to look at, to be put behind a sentence."""
        if self.client is not None:
            self.client.poll(0)
        if self._told is None:
            return f": {UNKNOWN}"
        return f" ({self._told.str()}): {REMEDIES.get(self._told.code(), UNKNOWN)}"


def _rank(error: KafkaError) -> int:
    """Return how telling an error is, 0 for the most telling ones."""
    codes = [*REMEDIES]
    return codes.index(error.code()) if error.code() in REMEDIES else len(codes)
