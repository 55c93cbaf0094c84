"""The parameter table: every `Name = value` that `mdserver run` understands.

A section is an attrs class, a parameter one of its fields; `Config` is all of them together. The
documentation and the commented configuration file are made from this table
(`python -m mdserver.config`), so each meaning is one paragraph for an operator.
"""

import enum
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.values import Address, Kind
from mdserver.limits import GB, KB, MB, NS_PER_MS, NS_PER_S

T = TypeVar("T")


@attrs.frozen
class Parameter:
    """One parameter. `attribute` is its field in `Config`; a `secret` is never shown.

    With `per` it is a family, `PREFIX.member`, with a value for each member that is set: `per` says
    how a member is written, and the field holds pairs of member and value.
    """

    name: str
    kind: Kind[Any]
    default: Any
    meaning: str
    reloadable: bool
    secret: bool
    per: Kind[Any] | None
    attribute: str = ""

    @property
    def prefix(self) -> str:
        """Of a family, what the names of its members begin with."""
        return self.name.partition(".")[0] + "."

    def shown(self, value: Any) -> dict[str, str]:
        """Name and text of what is set; a family has any number of them."""
        if self.per is None:
            return {self.name: self.show(value)}
        return {
            self.prefix + self.per.show(member): self.show(of_member) for member, of_member in value
        }

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return "MDSERVER_" + self.name.upper().replace(".", "_")

    def show(self, value: object) -> str:
        """The value as it would be written, or that it is hidden."""
        return "(hidden)" if self.secret and value else self.kind.show(value)


def parameter(
    name: str,
    kind: Kind[T],
    default: T,
    meaning: str,
    *,
    reloadable: bool = False,
    secret: bool = False,
    per: Kind[Any] | None = None,
) -> T:
    """A field of a section that is set by the parameter `name`."""
    row = Parameter(name, kind, default, " ".join(meaning.split()), reloadable, secret, per)
    field: T = attrs.field(default=default, metadata={"parameter": row})
    return field


class Entitlement(enum.Enum):
    """Who decides what a client may do."""

    NONE = "None"
    BASIC = "Basic"
    JWT = "JWT"
    CUSTOM = "Custom"


class SlowConsumerPolicy(enum.Enum):
    """What happens when more waits for a client than `BufferLimit.Send`."""

    DISCONNECT = "Disconnect"
    DROP_STANDARD = "DropStandard"
    CONFLATE = "Conflate"


class LogLevel(enum.Enum):
    """How much the server log says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen(kw_only=True, slots=False)
class Listening:
    """Listening"""

    listen: tuple[Address, ...] = parameter(
        "Listen",
        values.listed(values.address(80), 64, "a comma list of `host:port`"),
        (Address("127.0.0.1", 8800),),
        """Where clients connect without TLS: WebSocket and HTTP share each port. `*` stands for
        every address of the host, IPv4 and IPv6; an IPv6 address stands in brackets; a missing
        port means 80, port 0 lets the system choose one.""",
    )
    node_name: str = parameter(
        "NodeName",
        values.text(128),
        "mdserver",
        """How this server calls itself: clients see it as `member` in `connected`, and it stands
        in logs.""",
    )
    run_as_user: str | None = parameter(
        "RunAsUser",
        values.optional(values.text(64), ""),
        None,
        """As which user the server runs once it listens, before its first client, if it is started
        as root. `LogFolder` has to belong to that user, who also has to be able to read the files
        that SIGHUP reads again. Empty leaves the user as it is.""",
    )
    allowed_origins: tuple[str, ...] = parameter(
        "AllowedOrigins",
        values.listed(values.text(512), 256, "a comma list of origins, or `*`"),
        ("*",),
        """Web pages of which origins (`https://www.example.com`) may connect from a browser; `*`
        allows all. Other origins are refused with 403. Programs that send no Origin header are not
        concerned.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Encryption:
    """Encryption"""

    listen_encrypted: tuple[Address, ...] = parameter(
        "ListenEncrypted",
        values.listed(values.address(443), 64, "a comma list of `host:port`"),
        (),
        """Where clients connect with TLS 1.2 or newer, as in `Listen`; a missing port means
        443.""",
    )
    key_store: tuple[Path, ...] = parameter(
        "KeyStore",
        values.listed(values.PATH, 2, "one path, or two with a comma between them"),
        (),
        """The certificate for `ListenEncrypted`, in PEM: one file with the chain and the private
        key, or `chain.pem, key.pem`. SIGHUP reads the files again, for new connections.""",
    )
    key_stores: tuple[tuple[Address, tuple[Path, ...]], ...] = cast(
        "tuple[tuple[Address, tuple[Path, ...]], ...]",
        parameter(
            "KeyStore.host:port",
            values.listed(values.PATH, 2, "one path, or two with a comma between them"),
            (),
            """The same for one address of `ListenEncrypted`, written as it is there. It cannot be
            set in the environment.""",
            per=values.address(443),
        ),
    )
    cipher_list: str = parameter(
        "CipherList",
        values.text(2000),
        limits.TLS_CIPHERS,
        """Which ciphers of TLS 1.2 are allowed, in the form of OpenSSL; those of TLS 1.3 always
        are.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Messages:
    """Subjects, messages and cache"""

    subject_min_segments: int = parameter(
        "SubjectMinSegments",
        values.whole(1, 2),
        2,
        """How many segments a subject has at least: 2 refuses subjects such as `/stocks`.""",
    )
    max_message_size: int = parameter(
        "MaxMessageSize",
        values.size(1, 64 * MB),
        limits.MESSAGE_BYTES_MAX,
        """The largest publication: content, field names and field values together, in UTF-8 bytes.
        A larger one is answered with `MESSAGE_SIZE_LIMIT_EXCEEDED`; the session goes on.""",
    )
    max_subjects: int = parameter(
        "MaxSubjects",
        values.whole(1, 100_000_000),
        limits.SUBJECTS_MAX,
        """How many subjects the cache may hold. A publication to one more fails, and says so.""",
    )
    max_cached_messages_per_subject: int = parameter(
        "MaxCachedMessagesPerSubject",
        values.whole(0, 1_000_000),
        limits.CACHED_MESSAGES_PER_SUBJECT,
        """How many of the newest messages of a subject are kept for history and recovery.""",
    )
    cache_expire_time: int = parameter(
        "CacheExpireTime",
        values.duration(NS_PER_S, 365 * 86400 * NS_PER_S),
        limits.CACHE_EXPIRE_S * NS_PER_S,
        """How long a message is kept for history and recovery. It goes earlier when newer ones
        exceed `MaxCachedMessagesPerSubject` or `MaxCacheBytes`. The snapshot stays, see
        `SnapshotExpireTime`.""",
    )
    max_cache_bytes: int = parameter(
        "MaxCacheBytes",
        values.size(MB, 1024 * GB),
        limits.CACHE_BYTES_MAX,
        """How many bytes all cached messages and snapshots together may take, counted with the
        overhead of each; docs/operations.md says how to choose it.""",
    )
    publish_snapshot_message: bool = parameter(
        "PublishSnapshotMessage",
        values.BOOLEAN,
        True,
        """Whether a new subscriber first gets the snapshot of the subject, if there is one.""",
    )
    snapshot_expire_time: int | None = parameter(
        "SnapshotExpireTime",
        values.optional(values.duration(NS_PER_S, 3650 * 86400 * NS_PER_S), "unlimited"),
        None,
        """How long the snapshot of a subject is kept after its last message.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Clients:
    """Connections and their limits"""

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
        """The same for one IP address.""",
    )
    max_subscriptions_per_session: int = parameter(
        "MaxSubscriptionsPerSession",
        values.whole(1, 10_000_000),
        limits.SUBSCRIPTIONS_PER_SESSION_MAX,
        """How many subjects and patterns a client may be subscribed to at the same time.""",
    )
    buffer_limit_send: int = parameter(
        "BufferLimit.Send",
        values.size(64 * KB, GB),
        limits.OUTBOX_BYTES_MAX,
        """How many bytes may wait for a client that reads more slowly than it is sent; what happens
        then is said by `SlowConsumerPolicy`.""",
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
    buffer_limit_receive: int = parameter(
        "BufferLimit.Receive",
        values.size(16 * KB, GB),
        limits.RECEIVE_BYTES_MAX,
        """How many received bytes of a client may wait to be handled; the body of an HTTP request
        is not larger either.""",
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
        """How long a client may take for the head of an HTTP request, its body, or the WebSocket
        hand-shake.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Rights:
    """Entitlement"""

    entitlement: Entitlement = parameter(
        "Entitlement",
        values.choice(Entitlement),
        Entitlement.BASIC,
        """Who may do what. `None`: everybody may subscribe and publish. `Basic`: everybody may
        subscribe, only clients with the token `EntitlementAllowToken` may publish. `JWT`: the
        claim `permissions` of a client's token says what it may do. `Custom`: the class
        `EntitlementCustom.Class` decides.""",
    )
    entitlement_allow_token: str = parameter(
        "EntitlementAllowToken",
        values.text(limits.TOKEN_BYTES_MAX),
        "",
        """The token with which a client may publish under `Entitlement = Basic`. While it is empty
        nobody may publish. A client that connected with another token has to renew it.""",
        reloadable=True,
        secret=True,
    )
    publish_allow_from_address_list: tuple[values.Network, ...] | None = parameter(
        "PublishAllowFromAddressList",
        values.optional(
            values.listed(values.NETWORK, 1000, "a comma list of IP addresses and networks"), "*"
        ),
        None,
        """From which addresses clients may publish, whatever else allows it: addresses and
        networks such as `192.0.2.7, 10.0.0.0/8, fd00::/8`. `*` stands for every address; an empty
        list for none.""",
        reloadable=True,
    )


@attrs.frozen(kw_only=True, slots=False)
class Tokens:
    """Entitlement = JWT"""

    jwt_hmac_secret_file: Path | None = parameter(
        "EntitlementJWT.HmacSecretFile",
        values.optional(values.PATH, ""),
        None,
        """The file with the secret of HS256, HS384 and HS512: at least 32 bytes; a line end at the
        end of the file does not count. SIGHUP reads it again, as it does the other two files. At
        least one of the three is needed.""",
        reloadable=True,
    )
    jwt_public_key_file: Path | None = parameter(
        "EntitlementJWT.PublicKeyFile",
        values.optional(values.PATH, ""),
        None,
        """The file with the public key (PEM) of RS256, RS384 and RS512, or of ES256.""",
        reloadable=True,
    )
    jwt_jwks_file: Path | None = parameter(
        "EntitlementJWT.JwksFile",
        values.optional(values.PATH, ""),
        None,
        """A JWK set (RFC 7517): several keys at the same time, for instance an old and a new one. A
        token that names a key (`kid`) is checked with that key only.""",
        reloadable=True,
    )
    jwt_audience: str = parameter(
        "EntitlementJWT.Audience",
        values.text(512),
        "",
        """Which audience (`aud`) a token has to be for; empty does not ask.""",
        reloadable=True,
    )
    jwt_issuer: str = parameter(
        "EntitlementJWT.Issuer",
        values.text(512),
        "",
        """Which issuer (`iss`) a token has to come from; empty does not ask.""",
        reloadable=True,
    )
    jwt_renew_token_before: int = parameter(
        "EntitlementJWT.RenewTokenBeforeSeconds",
        values.duration(0, 86400 * NS_PER_S),
        limits.TOKEN_RENEW_BEFORE_S * NS_PER_S,
        """How long before its token expires a client is told so (`TOKEN_TO_EXPIRE`), to renew it
        without a gap.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Custom:
    """Entitlement = Custom"""

    custom_class: str = parameter(
        "EntitlementCustom.Class",
        values.text(512),
        "",
        """The Python class that decides, `package.module:Class`, found as Python finds modules
        (installed, or in `PYTHONPATH`). docs/security.md says what it has to offer.""",
    )
    custom_deadline: int = parameter(
        "EntitlementCustom.Deadline",
        values.duration(10 * NS_PER_MS, 600 * NS_PER_S),
        limits.VERDICT_DEADLINE_S * NS_PER_S,
        """How long the class may take for an answer; a later one is a denial.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Logs:
    """Logs"""

    log_folder: Path | None = parameter(
        "LogFolder",
        values.optional(values.PATH, "stderr"),
        None,
        """The folder of the server log `mdserver.log` and of the audit logs, all of them JSON
        lines. `stderr` writes the server log to the standard error stream.""",
    )
    log_rotate_limit: int = parameter(
        "LogRotateLimit",
        values.size(64 * KB, GB),
        limits.LOG_FILE_BYTES_MAX,
        """At which size a log file is closed, renamed to `NAME.1`, and a new one begun.""",
    )
    log_rotate_file_count: int = parameter(
        "LogRotateFileCount",
        values.whole(1, 1000),
        limits.LOG_FILES_MAX,
        """How many files of each log are kept, with the one that is being written.""",
    )
    log_level: LogLevel = parameter(
        "LogLevel",
        values.choice(LogLevel),
        LogLevel.INFO,
        """How much the server log says.""",
        reloadable=True,
    )


@attrs.frozen(kw_only=True, slots=False)
class Audit:
    """Audit"""

    audit_access: bool = parameter(
        "Extension.Audit.Access",
        values.BOOLEAN,
        False,
        """Whether `audit-access.log` in `LogFolder` says who connected, subscribed, unsubscribed
        and disconnected, and why.""",
    )
    audit_message: bool = parameter(
        "Extension.Audit.Message",
        values.BOOLEAN,
        False,
        """Whether `audit-message.log` in `LogFolder` has a line for each publication that a client
        of this server made: where it stands, or why it was refused. The content is not logged.""",
    )
    audit_cache: bool = parameter(
        "Extension.Audit.Cache",
        values.BOOLEAN,
        False,
        """Whether `audit-cache.log` in `LogFolder` counts the messages that left the cache because
        of their age or for want of memory.""",
    )
    presence: bool = parameter(
        "Extension.Presence",
        values.BOOLEAN,
        False,
        """Whether `audit-presence.log` in `LogFolder` says which session joined and left which
        subject or pattern.""",
    )


@attrs.frozen(kw_only=True, slots=False)
class Members:
    """Cluster"""

    cluster_members: tuple[Address, ...] = parameter(
        "ClusterMembers",
        values.listed(
            values.address(8900), limits.CLUSTER_MEMBERS_MAX, "a comma list of `host:port`"
        ),
        (),
        """The addresses by which the members of the cluster speak to each other, the same list in
        the same order everywhere. The first ones are the seeds, see `ClusterSeedMemberCount`;
        further members that are not in the list may join. Empty: a single server.""",
    )
    cluster_member_listen: Address | None = parameter(
        "ClusterMemberListen",
        values.optional(values.address(8900), "none"),
        None,
        """This member's own address among `ClusterMembers`: where it listens for the others.""",
    )
    cluster_password: str = parameter(
        "ClusterPassword",
        values.text(1024),
        "",
        """What members prove to each other that they know. It is never sent. Give it by the
        environment rather than in a file that others may read.""",
        secret=True,
    )
    cluster_seed_member_count: int = parameter(
        "ClusterSeedMemberCount",
        values.whole(0, 7),
        0,
        """How many of `ClusterMembers` are seeds, whose majority decides: 3 survives the loss of
        one, 5 of two. 0: three, or five where the list has five members or more.""",
    )
    cluster_subject_groups: int = parameter(
        "ClusterSubjectGroups",
        values.whole(1, 4096),
        limits.SUBJECT_GROUPS,
        """Into how many groups the subjects are divided, the same on every member. Each group has
        a coordinator of its own. It cannot be changed while a cluster has vote files.""",
    )
    cluster_member_coordination_folder: Path = parameter(
        "ClusterMemberCoordinationFolder",
        values.PATH,
        Path("cluster"),
        """The folder of the vote file, which a seed must not lose: docs/cluster.md says what to do
        if it does.""",
    )
    client_address: str = parameter(
        "ClientAddress",
        values.text(256),
        "",
        """What clients are told to connect to when another member sends them here. Empty: the
        first address of `Listen`.""",
    )
    monitor_http_listen: Address | None = parameter(
        "MonitorHTTP.Listen",
        values.optional(values.address(4000), "none"),
        None,
        """Where operators ask this server, `mdserver cluster` among them: an address that clients
        cannot reach.""",
    )
    monitor_username: str = parameter(
        "MonitorUsername",
        values.text(128),
        "admin",
        """Who may ask at `MonitorHTTP.Listen`, with `MonitorPassword`.""",
    )
    monitor_password: str = parameter(
        "MonitorPassword",
        values.text(1024),
        "",
        """The password that goes with `MonitorUsername`. Empty: none is asked for, which is allowed
        on loopback addresses only.""",
        secret=True,
    )


SECTIONS: tuple[type[Any], ...] = (
    Listening,
    Encryption,
    Messages,
    Clients,
    Rights,
    Tokens,
    Custom,
    Logs,
    Audit,
    Members,
)


@attrs.frozen(kw_only=True, slots=False)
class Config(
    Listening, Encryption, Messages, Clients, Rights, Tokens, Custom, Logs, Audit, Members
):
    """All parameters with their values. Times in nanoseconds, sizes in bytes."""


def section_parameters(section: type[Any]) -> list[Parameter]:
    """The parameters of a section, in the order of the table."""
    return [
        attrs.evolve(field.metadata["parameter"], attribute=field.name)
        for field in attrs.fields(section)
    ]


PARAMETERS: dict[str, Parameter] = {
    row.name: row for section in SECTIONS for row in section_parameters(section)
}
