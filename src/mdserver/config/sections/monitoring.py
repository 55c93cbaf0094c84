"""Section: what operators see."""

import enum

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.config.values import Address
from mdserver.limits import NS_PER_S


class MonitorKind(enum.Enum):
    """An interface through which operators watch the server."""

    HTTP = "HTTP"
    PROMETHEUS = "PROMETHEUS"
    PUSH = "PUSH"
    JMX = "JMX"
    OTEL = "OTEL"


@attrs.frozen(kw_only=True, slots=False)
class Monitoring:
    """Monitoring"""

    monitor: tuple[MonitorKind, ...] = parameter(
        "Monitor",
        values.listed(values.choice(MonitorKind), 8, "a comma list"),
        (MonitorKind.HTTP, MonitorKind.PROMETHEUS, MonitorKind.PUSH),
        """By which ways operators watch the server, at a listener of its own if
        `MonitorHTTP.Listen` says where: `HTTP` has pages for people and programs, `PROMETHEUS` the
        path `/metrics`. `/health` is there in any case. `PUSH` publishes statistics to
        `/__mdserver__/...`, for clients with the right to read there and for the other members.
        `JMX` has Jolokia's protocol at `/jolokia`. `OTEL` sends traces of publications and metrics
        to a collector of OpenTelemetry. Empty: not at all.""",
    )
    monitor_push_interval: int = parameter(
        "MonitorPush.Interval",
        values.duration(NS_PER_S, 3600 * NS_PER_S),
        limits.PUSH_INTERVAL_S * NS_PER_S,
        """How often `PUSH` publishes the statistics of this member.""",
    )
    monitor_http_listen: Address | None = parameter(
        "MonitorHTTP.Listen",
        values.optional(values.address(4000), "none"),
        None,
        """Where operators ask this server, `mdserver cluster` among them: an address that clients
        cannot reach.""",
    )
    monitor_http_encryption: bool = parameter(
        "MonitorHTTP.Encryption",
        values.BOOLEAN,
        False,
        """Whether that listener speaks TLS, with the certificate of `KeyStore`.""",
    )
    monitor_http_authentication: bool = parameter(
        "MonitorHTTP.Authentication",
        values.BOOLEAN,
        True,
        """Whether that listener asks for `MonitorUsername` and `MonitorPassword`; its `/health`
        pages never do.""",
    )
    monitor_prometheus_listen: Address | None = parameter(
        "MonitorPrometheus.Listen",
        values.optional(values.address(4001), "none"),
        None,
        """A listener of its own for `/metrics` and `/health`, so that Prometheus need not reach the
        pages of `HTTP`. Without it `/metrics` is at `MonitorHTTP.Listen`.""",
    )
    monitor_prometheus_encryption: bool = parameter(
        "MonitorPrometheus.Encryption",
        values.BOOLEAN,
        False,
        """Whether that listener speaks TLS, with the certificate of `KeyStore`.""",
    )
    monitor_prometheus_authentication: bool = parameter(
        "MonitorPrometheus.Authentication",
        values.BOOLEAN,
        True,
        """Whether that listener asks for `MonitorUsername` and `MonitorPassword`; its `/health`
        pages never do.""",
    )
    monitor_jmx_listen: Address | None = parameter(
        "MonitorJMX.Listen",
        values.optional(values.address(4002), "none"),
        None,
        """Where jconsole and other JMX clients connect, if `Monitor` has `JMX`: RMI, spoken by a
        program in Java that the server starts, which needs Java 17 or later on the PATH.""",
    )
    monitor_jmx_encryption: bool = parameter(
        "MonitorJMX.Encryption",
        values.BOOLEAN,
        False,
        """Whether RMI goes over TLS, with the certificate of `KeyStore`.""",
    )
    monitor_jmx_authentication: bool = parameter(
        "MonitorJMX.Authentication",
        values.BOOLEAN,
        True,
        """Whether JMX clients are asked for `MonitorUsername` and `MonitorPassword`.""",
    )
    monitor_otel_endpoint: str = parameter(
        "MonitorOTel.Endpoint",
        values.text(1024),
        "http://127.0.0.1:4318",
        """Where `OTEL` sends: the URL of a collector that takes OTLP over HTTP, without `/v1/...`.
        Headers and certificates come from the variables of OpenTelemetry's SDK, such as
        `OTEL_EXPORTER_OTLP_HEADERS`. It needs the extra `mdserver[otel]`.""",
    )
    monitor_otel_sampling: float = parameter(
        "MonitorOTel.Sampling",
        values.fraction(),
        0.0,
        """Which part of the publications is traced, of those without a field `traceparent`. Of the
        others those are traced whose `traceparent` says so. The same at all members.""",
    )
    monitor_otel_interval: int = parameter(
        "MonitorOTel.Interval",
        values.duration(NS_PER_S, 3600 * NS_PER_S),
        limits.OTEL_INTERVAL_S * NS_PER_S,
        """How often `OTEL` sends the metrics.""",
    )
    monitor_username: str = parameter(
        "MonitorUsername",
        values.text(128),
        "admin",
        """Who may ask at the listeners of the monitor, with `MonitorPassword`.""",
    )
    monitor_password: str = parameter(
        "MonitorPassword",
        values.text(1024),
        "",
        """The password that goes with `MonitorUsername`. Empty: none is asked for, which is allowed
        on loopback addresses only.""",
        secret=True,
    )
