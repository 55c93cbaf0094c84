"""Section: subjects, messages and the cache."""

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.limits import GB, MB, NS_PER_S


@attrs.frozen(kw_only=True, slots=False)
class Messages:
    """Subjects, messages and cache"""

    subject_min_segments: int = parameter(
        "SubjectMinSegments",
        values.whole(1, 2),
        2,
        """How many segments a subject has at least: 2 refuses subjects such as `/stocks`.""",
    )
    subject_max_segments: int = parameter(
        "SubjectMaxSegments",
        values.whole(2, limits.SUBJECT_SEGMENTS_MAX),
        limits.SUBJECT_SEGMENTS,
        """How many segments a subject or pattern has at most. Looking up who wants a subject costs
        more with each.""",
    )
    max_message_size: int = parameter(
        "MaxMessageSize",
        values.size(1, 64 * MB),
        limits.MESSAGE_BYTES_MAX,
        """The largest publication: content, field names and field values together, in UTF-8 bytes.
        A larger one is answered with `MESSAGE_SIZE_LIMIT_EXCEEDED`; the session goes on. The fields
        of a snapshot take three times as much at most. Give all members the same value.""",
    )
    max_subjects: int = parameter(
        "MaxSubjects",
        values.whole(1, 100_000_000),
        limits.SUBJECTS_MAX,
        """How many subjects the cache may hold. A publication to another subject then fails.""",
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
        """How long a message is kept for history and recovery, from when a member learned of it.
        It goes earlier when newer ones exceed `MaxCachedMessagesPerSubject` or `MaxCacheBytes`.
        The snapshot stays, see `SnapshotExpireTime`.""",
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
        """How long the snapshot of a subject is kept after its last retained message, from when a
        member learned of it. Then its memory is free again.""",
    )
    subject_expire_time: int | None = parameter(
        "SubjectExpireTime",
        values.optional(values.duration(NS_PER_S, 3650 * 86400 * NS_PER_S), "unlimited"),
        None,
        """How long the sequence number of a subject is kept after its last message, once neither a
        message nor a snapshot of it is cached. Then the subject is forgotten, and costs nothing any
        more. Its next message gets a greater number than it ever had. A client that comes back with
        an older position of it is told that messages may be missing (`DATA_RESYNC`), however short
        its absence was; if you choose more than clients are away for, nothing of what was forgotten
        is. Subjects with retained messages need `SnapshotExpireTime` as well. Give all members the
        same value.""",
    )
