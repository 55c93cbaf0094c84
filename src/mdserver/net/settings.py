"""What the network side is told at its start; `mdserver.config` makes it from the parameters."""

from attrs import field, frozen

from mdserver import limits
from mdserver.config import SlowConsumerPolicy
from mdserver.config.values import Address, Network
from mdserver.limits import NS_PER_S
from mdserver.net.rates import RateLimits
from mdserver.net.tls import CIPHERS, KeyStore


@frozen(kw_only=True)
class ServerSettings:
    """Listeners, limits and time-outs. Durations in nanoseconds, sizes in bytes.

    `websocket_bytes_max` bounds one WebSocket message, or what one HTTP request may bring as
    commands; `batching` is how long messages are gathered, `batching_bytes` (0: any) how many of
    them end that early. `key_stores` are those of single addresses of `listen_encrypted`,
    `key_store` that of the others.

    `allowed_origins` None allows every web page to connect. `allowed_hosts` are the names of this
    server, None for any; if it is empty loopback addresses have their own, others any.
    `transport_security` is for how long browsers are to use TLS alone.
    `proxies` are believed who their clients are; with `proxy_protocol` they have to say it first.
    With `tokens_decide` a session has to be connected within `handshake_timeout`.
    """

    node_name: str = "mdserver"
    listen: tuple[Address, ...] = (Address("127.0.0.1", 8800),)
    listen_encrypted: tuple[Address, ...] = ()
    monitor_listen: tuple[Address, ...] = ()
    monitor_encrypted: bool = False
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
    outbox_bytes_max: int = limits.OUTBOX_BYTES_MAX
    slow_consumers: SlowConsumerPolicy = SlowConsumerPolicy.DISCONNECT
    batching: int = 0
    batching_bytes: int = 0
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
