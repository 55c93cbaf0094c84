"""Makes the settings of the broker, the journal and the server from the configuration."""

import os
from importlib.util import find_spec
from urllib.parse import urlsplit

import attrs
from attrs import field, frozen

from mdserver import limits
from mdserver.config import (
    Address,
    ClusterEngine,
    Config,
    Entitlement,
    FanoutEngine,
    MonitorKind,
    SlowConsumerPolicy,
)
from mdserver.config.sections.listening import ProxyProtocol
from mdserver.config.values import Network, loopback
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.core.text import safe_text
from mdserver.errors import ConfigError
from mdserver.journal.writer import WriterSettings
from mdserver.limits import NS_PER_S, WEBSOCKET_SLACK_BYTES
from mdserver.server.tls import CIPHERS, KeyStore


@frozen
class RateLimits:
    """Limits of commands and bytes per second; 0 is no limit."""

    commands: int = 0
    bytes: int = 0
    commands_per_address: int = 0
    bytes_per_address: int = 0

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return bool(
            self.commands or self.bytes or self.commands_per_address or self.bytes_per_address
        )


@frozen(kw_only=True)
class ServerSettings:
    """Listeners, limits and time-outs. Durations in nanoseconds, sizes in bytes.

    `websocket_bytes_max` bounds one WebSocket message. `batching` is how long messages are gathered
    before they are sent; an outbox with `batching_bytes` ends that early, unless this is 0.
    `key_stores` are those of single addresses of `listen_encrypted`, `key_store` that of the
    others.

    `allowed_origins` are the web pages that may connect, None for all. `allowed_hosts` are the
    names under which clients may call this server, None for any; if it is empty, a loopback address
    takes its own name only and other addresses take any.
    `transport_security` is how long browsers must use TLS only (RFC 6797).
    `proxies` are trusted to name their clients; with `proxy_protocol` each of their connections has
    to begin with a PROXY header.
    `connects_per_s` is how many new connections are let in; 0 is no limit.
    With `tokens_decide` a session has to be connected within `handshake_timeout`.
    """

    node_name: str = "mdserver"
    listen: tuple[Address, ...] = (Address("127.0.0.1", 8800),)
    listen_encrypted: tuple[Address, ...] = ()
    monitor_listen: tuple[Address, ...] = ()
    monitor_encrypted: bool = False
    metrics_listen: tuple[Address, ...] = ()
    metrics_encrypted: bool = False
    key_store: KeyStore | None = None
    key_stores: tuple[tuple[Address, KeyStore], ...] = ()
    ciphers: str = CIPHERS
    run_as_user: str | None = None
    allowed_origins: frozenset[str] | None = None
    allowed_hosts: frozenset[str] | None = frozenset()
    proxies: tuple[Network, ...] = ()
    proxy_protocol: bool = False
    transport_security: int = limits.STRICT_TRANSPORT_SECURITY_S * NS_PER_S
    connections_max: int = limits.CONNECTIONS_MAX
    connections_per_address_max: int = limits.CONNECTIONS_PER_ADDRESS_MAX
    connects_per_s: int = 0
    outbox_bytes_max: int = limits.OUTBOX_BYTES_MAX
    slow_consumers: SlowConsumerPolicy = SlowConsumerPolicy.DISCONNECT
    batching: int = 0
    batching_bytes: int = 0
    fanout_engine: FanoutEngine = FanoutEngine.AUTO
    tokens_decide: bool = False
    unfinished_bytes_max: int = limits.UNFINISHED_BYTES_MAX
    answers_bytes_max: int = limits.ANSWERS_BYTES_MAX
    rates: RateLimits = field(factory=RateLimits)
    receive_bytes_max: int = limits.RECEIVE_BYTES_MAX
    websocket_bytes_max: int = field(
        default=4 * limits.MESSAGE_BYTES_MAX + limits.WEBSOCKET_SLACK_BYTES
    )
    http_body_bytes_max: int = limits.HTTP_BODY_BYTES_MAX
    handshake_timeout: int = limits.HANDSHAKE_TIMEOUT_S * NS_PER_S
    keepalive: int = limits.KEEPALIVE_INTERVAL_S * NS_PER_S
    close_timeout: int = limits.CLOSE_TIMEOUT_S * NS_PER_S
    write_timeout: int = limits.WRITE_TIMEOUT_S * NS_PER_S
    drain_timeout: int = limits.DRAIN_TIMEOUT_S * NS_PER_S


@frozen
class BridgeSettings:
    """The settings of JMX over RMI: its address, its user and password, and its key store.

    Without a password every client is let in; without a key store there is no TLS.
    """

    listen: Address
    user: str = ""
    password: str = field(default="", repr=False)
    key_store: KeyStore | None = None


_POLICIES = {
    Entitlement.NONE: Policy.NONE,
    Entitlement.BASIC: Policy.BASIC,
    Entitlement.JWT: Policy.ASK,
    Entitlement.CUSTOM: Policy.ASK,
}


def broker_settings(config: Config) -> BrokerSettings:
    """Return the settings of the broker."""
    return BrokerSettings(
        member=config.node_name,
        # `/topic` is the subject of records without a key.
        subject_segments_min=1
        if config.cluster_engine is ClusterEngine.KAFKA
        else config.subject_min_segments,
        subject_segments_max=config.subject_max_segments,
        groups=config.cluster_subject_groups,
        message_bytes_max=config.max_message_size,
        subjects_max=config.max_subjects,
        subject_idle=config.subject_expire_time,
        subscriptions_per_session_max=config.max_subscriptions_per_session,
        patterns_per_session_max=config.max_patterns_per_session,
        cached_messages_per_subject=config.max_cached_messages_per_subject,
        cache_expire=config.cache_expire_time,
        cache_bytes_max=config.max_cache_bytes,
        snapshot_expire=config.snapshot_expire_time,
        publish_snapshot=config.publish_snapshot_message,
        keepalive=config.keep_alive_interval,
        policy=_POLICIES[config.entitlement],
        allow_token=config.entitlement_allow_token,
        ask_each=config.entitlement is Entitlement.CUSTOM,
        renew_token_before=config.jwt_renew_token_before,
        publish_networks=config.publish_allow_from_address_list,
        audit_access=config.audit_access or config.journal,
        audit_message=config.audit_message or config.journal,
        audit_cache=config.audit_cache or config.journal,
        receipts=config.journal,
        presence=config.presence,
    )


def worker_count(config: Config) -> int:
    """Return how many worker processes serve the clients; 0 if the server does that itself.

    `auto` is one for each processor that this process may use, and 0 if there is only one.
    """
    if config.workers is not None:
        return config.workers
    processors = len(os.sched_getaffinity(0))
    return min(processors, limits.WORKERS_MAX) if processors > 1 else 0


def writer_settings(config: Config) -> WriterSettings:
    """Return the settings of the journal's writer."""
    return WriterSettings(
        fsync=config.journal_fsync,
        disk_full=config.journal_disk_full,
        segment_time=config.journal_segment_time,
        bytes_max=config.journal_size_limit,
        age_max=config.journal_age_limit,
    )


def monitor_listen(config: Config) -> tuple[Address, ...]:
    """Return the addresses of the monitor's listeners.

    Raises ConfigError if one of them is open to strangers: not a loopback address, and without a
    password.
    """
    address = config.monitor_http_listen
    if not config.monitor or address is None:
        return ()
    _check_guarded(config, "MonitorHTTP", address, asked=config.monitor_http_authentication)
    return (address,)


def metrics_listen(config: Config) -> tuple[Address, ...]:
    """Return the addresses that serve metrics alone. Raises ConfigError as `monitor_listen`."""
    address = config.monitor_prometheus_listen
    if MonitorKind.PROMETHEUS not in config.monitor or address is None:
        return ()
    asked = config.monitor_prometheus_authentication
    _check_guarded(config, "MonitorPrometheus", address, asked=asked)
    return (address,)


@frozen(kw_only=True)
class OtelSettings:
    """The settings of OpenTelemetry; `interval` (ns) is that of the metrics.

    `sampling` is the part of publications that is traced unless their clients decide, `node` the
    name of this server.
    """

    endpoint: str
    sampling: float
    interval: int
    node: str


def jmx_settings(config: Config) -> BridgeSettings | None:
    """Return the settings of JMX over RMI, None without it. Raises ConfigError."""
    address = config.monitor_jmx_listen
    if MonitorKind.JMX not in config.monitor or address is None:
        return None
    asked = config.monitor_jmx_authentication
    _check_guarded(config, "MonitorJMX", address, asked=asked)
    store = None
    if config.monitor_jmx_encryption:
        if not config.key_store:
            raise ConfigError("MonitorJMX.Encryption needs a certificate: set KeyStore")
        store = KeyStore(*config.key_store)
    password = config.monitor_password if asked else ""
    return BridgeSettings(address, config.monitor_username, password, store)


def otel_settings(config: Config) -> OtelSettings | None:
    """Return the settings of OpenTelemetry, None without it. Raises ConfigError."""
    if MonitorKind.OTEL not in config.monitor:
        return None
    endpoint = config.monitor_otel_endpoint
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = None
    if not usable or parts.query or parts.fragment or not endpoint.isprintable():
        raise ConfigError(
            f"MonitorOTel.Endpoint = {safe_text(endpoint, 256)} is no URL of a collector, such as "
            "http://127.0.0.1:4318"
        )
    if not _installed("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
        raise ConfigError(
            "Monitor has OTEL, which needs OpenTelemetry's SDK: pip install 'mdserver[otel]'"
        )
    return OtelSettings(
        endpoint=endpoint.rstrip("/"),
        sampling=config.monitor_otel_sampling,
        interval=config.monitor_otel_interval,
        node=config.node_name,
    )


def _installed(*names: str) -> bool:
    """Return whether packages are there, without importing them."""
    try:
        return all(find_spec(name) is not None for name in names)
    except ModuleNotFoundError:  # of what they are in
        return False


def _check_guarded(config: Config, which: str, address: Address, *, asked: bool) -> None:
    """Raise ConfigError if an address beyond this machine would be served without a password.

    `which` is the prefix of the listener's parameters; `asked`: it asks for user and password.
    """
    if loopback(address.host):
        return
    if not asked:
        raise ConfigError(
            f"{which}.Listen = {address} is open to strangers: it needs "
            f"{which}.Authentication = true and a MonitorPassword"
        )
    if not config.monitor_password:
        raise ConfigError(f"{which}.Listen = {address} needs a MonitorPassword")


def server_settings(config: Config) -> ServerSettings:
    """Return the settings of the server. Raises ConfigError for parameters that conflict."""
    if config.proxy_protocol is ProxyProtocol.V2 and not config.proxy_address_list:
        raise ConfigError("ProxyProtocol = v2 needs a ProxyAddressList that names the proxies")
    origins, hosts = config.allowed_origins, config.allowed_hosts
    if worker_count(config):  # which listen themselves
        config = attrs.evolve(config, listen=(), listen_encrypted=())
    return ServerSettings(
        node_name=config.node_name,
        listen=config.listen,
        listen_encrypted=config.listen_encrypted,
        key_store=KeyStore(*config.key_store) if config.key_store else None,
        key_stores=tuple((address, KeyStore(*files)) for address, files in config.key_stores),
        ciphers=config.cipher_list,
        run_as_user=config.run_as_user,
        allowed_origins=None if "*" in origins else frozenset(map(str.lower, origins)),
        allowed_hosts=None if "*" in hosts else frozenset(map(str.lower, hosts)),
        proxies=config.proxy_address_list,
        proxy_protocol=config.proxy_protocol is ProxyProtocol.V2,
        transport_security=config.strict_transport_security,
        connections_max=config.max_connections,
        connections_per_address_max=config.max_connections_per_address,
        connects_per_s=config.max_connect_rate,
        monitor_listen=monitor_listen(config),
        monitor_encrypted=config.monitor_http_encryption,
        metrics_listen=metrics_listen(config),
        metrics_encrypted=config.monitor_prometheus_encryption,
        outbox_bytes_max=config.buffer_limit_send,
        slow_consumers=config.slow_consumer_policy,
        fanout_engine=config.fanout_engine,
        batching=config.max_batching_time,
        batching_bytes=config.max_batching_space,
        receive_bytes_max=config.buffer_limit_receive,
        websocket_bytes_max=4 * config.max_message_size + WEBSOCKET_SLACK_BYTES,
        http_body_bytes_max=config.buffer_limit_receive,
        tokens_decide=_POLICIES[config.entitlement] is Policy.ASK,
        rates=RateLimits(
            config.max_command_rate,
            config.max_bytes_rate,
            config.max_command_rate_per_address,
            config.max_bytes_rate_per_address,
        ),
        handshake_timeout=config.handshake_timeout,
        keepalive=config.keep_alive_interval,
    )
