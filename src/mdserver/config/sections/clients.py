"""Section: connections of clients and their limits."""

import enum

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.limits import GB, KB, NS_PER_S


class SlowConsumerPolicy(enum.Enum):
    """What the server does when more than `BufferLimit.Send` waits for a client."""

    DISCONNECT = "Disconnect"
    DROP_STANDARD = "DropStandard"
    CONFLATE = "Conflate"


class FanoutEngine(enum.Enum):
    """How messages are sent to many clients."""

    AUTO = "auto"
    IO_URING = "io_uring"
    SEND = "send"
    PYTHON = "python"


@attrs.frozen(kw_only=True, slots=False)
class Clients:
    """Connections and their limits"""

    workers: int | None = parameter(
        "Workers",
        values.optional(values.whole(0, limits.WORKERS_MAX), "auto"),
        0,
        """How many worker processes serve the clients of this server, so that it uses several
        processors. 0: none, the server serves them itself. `auto`: one for each processor that the
        server may use, none if that is only one. Each worker holds a copy of the cache, and limits
        of connections hold for all of them together. docs/operations.md says how many to
        choose.""",
    )
    max_connections: int = parameter(
        "MaxConnections",
        values.whole(1, 10_000_000),
        limits.CONNECTIONS_MAX,
        """How many connections of clients are open at the same time. Others are answered with 503
        and a `Retry-After` header. The limit of open files of the process bounds it as well.""",
    )
    max_connections_per_address: int = parameter(
        "MaxConnectionsPerAddress",
        values.whole(1, 10_000_000),
        limits.CONNECTIONS_PER_ADDRESS_MAX,
        """The same for one IP address. Behind a proxy all clients have one address unless
        `ProxyAddressList` names the proxy.""",
    )
    max_connect_rate: int = parameter(
        "MaxConnectRate",
        values.whole(0, 1_000_000),
        0,
        """How many new connections a second are let in; 0 for any number. Others wait in the queue
        of the operating system, so that those who are connected do not notice when very many
        connect at once. Probes of `/health` at the same address wait as well. Workers share the
        rate evenly. It is one rate for all addresses: an address that connects again and again, up
        to `MaxConnectionsPerAddress` at a time, delays others. Connections that are refused do not
        count.""",
    )
    max_subscriptions_per_session: int = parameter(
        "MaxSubscriptionsPerSession",
        values.whole(1, 10_000_000),
        limits.SUBSCRIPTIONS_PER_SESSION_MAX,
        """How many subjects and patterns a client may be subscribed to at the same time.""",
    )
    max_patterns_per_session: int = parameter(
        "MaxPatternsPerSession",
        values.whole(1, 1_000_000),
        limits.PATTERNS_PER_SESSION_MAX,
        """How many of these may be patterns, which cost more than subjects.""",
    )
    max_command_rate: int = parameter(
        "MaxCommandRate",
        values.whole(0, 10_000_000),
        0,
        """How many commands a second a session may send, and HTTP requests a connection; 0 for any
        number. Of a client that sends more the server reads more slowly; bursts of a second's worth
        pass.""",
    )
    max_bytes_rate: int = parameter(
        "MaxBytesRate",
        values.size(0, GB),
        0,
        """The same for bytes a second. Over TLS the bytes of records count.""",
    )
    max_command_rate_per_address: int = parameter(
        "MaxCommandRatePerAddress",
        values.whole(0, 10_000_000),
        0,
        """As `MaxCommandRate`, for all connections of one IP address together.""",
    )
    max_bytes_rate_per_address: int = parameter(
        "MaxBytesRatePerAddress",
        values.size(0, GB),
        0,
        """As `MaxBytesRate`, for all connections of one IP address together.""",
    )
    buffer_limit_send: int = parameter(
        "BufferLimit.Send",
        values.size(64 * KB, GB),
        limits.OUTBOX_BYTES_MAX,
        """How much memory what waits for a client may take that reads more slowly than it is sent:
        messages count with what keeping them costs, some 700 bytes beside content and frame. What
        happens then is said by `SlowConsumerPolicy`.""",
    )
    slow_consumer_policy: SlowConsumerPolicy = parameter(
        "SlowConsumerPolicy",
        values.choice(SlowConsumerPolicy),
        SlowConsumerPolicy.DISCONNECT,
        """What happens at `BufferLimit.Send`. `Disconnect`: the client is disconnected with code
        4001, upon which it reconnects and recovers what it missed. `DropStandard`: the oldest
        messages of quality STANDARD are left out. `Conflate`: messages about the same subject
        become one. Where that does not help, the client is disconnected.""",
    )
    max_batching_time: int = parameter(
        "MaxBatchingTime",
        values.duration(0, 60 * NS_PER_S, "ms"),
        0,
        """For how long messages are gathered before they are sent to a client in one operation: a
        longer time means fewer, larger operations. 0 sends as soon as the server has handled what
        it read. A bare number is in milliseconds.""",
    )
    max_batching_space: int = parameter(
        "MaxBatchingSpace",
        values.size(0, GB),
        0,
        """How many bytes waiting for a client end the time of `MaxBatchingTime` early; 0 for any
        number.""",
    )
    fanout_engine: FanoutEngine = parameter(
        "FanoutEngine",
        values.choice(FanoutEngine),
        FanoutEngine.AUTO,
        """How messages are sent to many clients at once. `io_uring` and `send` are native code, one
        call for up to 512 clients; `python` is a call for each, as are connections with TLS. `auto`
        is the fastest one that can be used here. One that cannot be used is replaced by the next
        slower one; `check-config` and the event `ready` of the server log name what is in
        force.""",
    )
    buffer_limit_receive: int = parameter(
        "BufferLimit.Receive",
        values.size(16 * KB, GB),
        limits.RECEIVE_BYTES_MAX,
        """How many received bytes of a client may wait for the entitlement's answer: then the
        server reads no further. The body of an HTTP request is not larger either.""",
    )
    keep_alive_interval: int = parameter(
        "KeepAliveInterval",
        values.duration(NS_PER_S, 86400 * NS_PER_S),
        limits.KEEPALIVE_INTERVAL_S * NS_PER_S,
        """After this long without a word from a client the server pings it; a client that is
        silent for twice as long is disconnected with code 4004.""",
    )
    handshake_timeout: int = parameter(
        "HandshakeTimeout",
        values.duration(NS_PER_S, 3600 * NS_PER_S),
        limits.HANDSHAKE_TIMEOUT_S * NS_PER_S,
        """How long a client may take for the head of an HTTP request, its body, the WebSocket
        hand-shake, or, where tokens decide, until it is connected.""",
    )
