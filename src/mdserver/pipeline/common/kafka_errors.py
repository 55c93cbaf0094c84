"""What Kafka's Java client fails with, in one sentence that says where to look.

The client wraps what is wrong in exceptions that say nothing. An administrator needs two things of
it: what the brokers or Java said, and which setting that is about. No sentence here repeats the
value of a setting that holds a password.
"""

import re
from collections.abc import Sequence

from attrs import frozen
from py4j.protocol import Py4JJavaError

NO_ANSWER = (
    "no broker answered: look at the address, and whether the brokers want TLS or a password, and"
    " of which mechanism (security.protocol, sasl.mechanism and others, by --kafka-properties)"
)
"""A broker that is spoken to in another protocol than its own does not say so."""
JAAS_FORM = (
    "sasl.jaas.config is missing, or has another form than"
    ' MODULE required username="..." password="...";'
)
"""Java's own words quote the parts of a value in a wrong form, one of which may be the password."""
OF_JAAS = re.compile(r"JAAS config|login module control flag|Login module not specified")
WRAPS = re.compile(r"Failed to create new |Failed to construct |(\w+\.){2,}\w+: ")
"""The beginning of a message that only repeats or announces what is said below it."""
REMEDIES = (
    ("SaslAuthenticationException", "look at user and password in sasl.jaas.config"),
    ("UnsupportedSaslMechanismException", "look at sasl.mechanism"),
    ("certification path", "ssl.truststore.location needs the authority of the brokers"),
    (
        "No name matching|No subject alternative",
        "the certificate of the broker is not for this address: give one that it names",
    ),
    (
        "SslAuthenticationException",
        "look at ssl.truststore.location, and at ssl.keystore.location if brokers want one",
    ),
    (
        "keystore format|Failed to load",
        "look at ssl.truststore.location and ssl.keystore.location, and at their types",
    ),
    ("LoginException", "look at sasl.jaas.config"),
    ("bootstrap urls|Invalid url", "give --kafka as HOST:PORT, of which the name is known here"),
    ("AuthorizationException", "the user needs the rights to describe and read them"),
    ("UnknownTopicOrPartitionException", "look at --topics"),
)
"""Patterns of classes and messages, and what to do: the first one that is found anywhere counts."""


@frozen
class JavaThrown:
    """An exception of Java: its class without the package, and its message."""

    kind: str
    message: str


def kafka_reason(error: Py4JJavaError) -> str:
    """Return why a call of Kafka's client failed, and what to look at."""
    found = []
    cause = error.java_exception
    while cause is not None:
        found.append(JavaThrown(cause.getClass().getSimpleName(), cause.getMessage() or ""))
        cause = cause.getCause()
    return explained(found)


def explained(causes: Sequence[JavaThrown]) -> str:
    """Return what exceptions say, the outermost of which comes first, and what to look at."""
    said = [each.message.partition("\n")[0] for each in causes]
    whole = "\n".join(f"{each.kind} {each.message}" for each in causes)
    if OF_JAAS.search(whole) is not None:
        return JAAS_FORM
    telling = [text for text in said if text and WRAPS.match(text) is None]
    telling = telling or [each for each in said if each] or [causes[-1].kind]
    first, last = telling[0], telling[-1]
    # The deepest one says why, for example that no authority is known which signed a certificate.
    reason = (first if last in first else f"{first} ({last})").rstrip(".")
    if any(each.kind == "TimeoutException" for each in causes):
        return f"{NO_ANSWER} ({first})"
    for pattern, remedy in REMEDIES:
        if re.search(pattern, whole) is not None:
            return f"{reason}: {remedy}"
    return reason
