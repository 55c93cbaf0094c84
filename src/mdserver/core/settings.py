"""The settings of the broker, which `mdserver.config` makes from the parameters."""

from attrs import frozen

from mdserver import limits
from mdserver.core.entitlement import Network, Policy


@frozen
class BrokerSettings:
    """Limits and switches of one member's broker. Durations in nanoseconds, sizes in bytes."""

    member: str = "mdserver"
    subject_segments_min: int = 2
    subject_segments_max: int = limits.SUBJECT_SEGMENTS
    groups: int = limits.SUBJECT_GROUPS
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    subjects_max: int = limits.SUBJECTS_MAX
    subject_idle: int | None = None  # after which subjects without messages are forgotten
    subscriptions_per_session_max: int = limits.SUBSCRIPTIONS_PER_SESSION_MAX
    patterns_per_session_max: int = limits.PATTERNS_PER_SESSION_MAX
    cached_messages_per_subject: int = limits.CACHED_MESSAGES_PER_SUBJECT
    cache_expire: int = limits.CACHE_EXPIRE_S * limits.NS_PER_S
    cache_bytes_max: int = limits.CACHE_BYTES_MAX
    snapshot_expire: int | None = None
    snapshot_fields_max: int = limits.SNAPSHOT_FIELDS_MAX
    publish_snapshot: bool = True
    expired_at_once: int = limits.EXPIRED_AT_ONCE
    work_at_once: int = limits.WORK_AT_ONCE
    subjects_at_once: int = limits.SUBJECTS_AT_ONCE
    conflated_at_once: int = limits.CONFLATED_AT_ONCE
    brought_at_once: int = limits.BROUGHT_AT_ONCE
    keepalive: int = limits.KEEPALIVE_INTERVAL_S * limits.NS_PER_S
    numbers_are_places: bool = False  # of a topic: those of a subject have gaps from the beginning
    policy: Policy = Policy.NONE
    allow_token: str = ""  # Policy.BASIC: who may publish; nobody while it is empty
    publish_networks: tuple[Network, ...] | None = None  # None: from every address
    ask_each: bool = False  # Policy.ASK: a verdict for each subscription and publication, too
    renew_token_before: int = limits.TOKEN_RENEW_BEFORE_S * limits.NS_PER_S
    audit_access: bool = False  # Log outputs of the stream "access"
    audit_message: bool = False  # Log outputs of the stream "message"
    audit_cache: bool = False  # Log outputs of the stream "cache"
    publisher_secret: bytes = b""  # of the keys of publishers; empty: a random one
    receipts: bool = False  # Log outputs of the stream "receipts"
    presence: bool = False  # Log outputs of the stream "presence"
