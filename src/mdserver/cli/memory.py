"""How much memory a configuration allows clients to occupy: bounds in bytes, and their sums.

What is multiplied by connections is shown for one connection, for all of one address, and for all.
The sums are what nobody can exceed, not what is to be expected: nearly all clients read what they
are sent.
"""

from collections.abc import Iterator, Sequence

from attrs import frozen

from mdserver import limits
from mdserver.config import Config, Entitlement
from mdserver.limits import GB, KB, MB

PROCESS_BYTES = 40 * MB
CONNECTION_BYTES = 7 * KB  # idle, with one subscription (`python -m mdserver.bench idle`)
SUBSCRIPTION_BYTES = 500  # with a short name, measured with 50,000 of them
SUBJECT_BYTES = 1400  # of a subject beside its messages (`python -m mdserver.bench cache`)
REFERENCE_BYTES = 8
PUBLISHER_BYTES = 1000 + 60 * limits.PUBLISHER_NUMBERS_KEPT
VERDICT_BYTES = 300
PUBLICATION_BYTES = 1 * KB  # beside its content and fields, while it has no result
AUDITS = 5  # streams of audit logs


@frozen
class Bound:
    """An upper bound in bytes: of `each` connection, or, if that is 0, of the server as a `whole`.

    `what` describes it, `named` lists the parameters that it depends on.
    """

    what: str
    named: str
    each: int = 0
    whole: int = 0


def bounds(config: Config) -> Iterator[Bound]:
    """Yield all bounds of a configuration."""
    yield Bound("a connection", "MaxConnections, MaxConnectionsPerAddress", CONNECTION_BYTES)
    yield Bound(
        "its subscriptions",
        "MaxSubscriptionsPerSession",
        config.max_subscriptions_per_session * (SUBSCRIPTION_BYTES + limits.SUBJECT_BYTES_MAX),
    )
    listed = min(limits.AUDIENCES_MAX, config.max_subjects)
    yield Bound("its places in lists of subscribers", "MaxSubjects", listed * REFERENCE_BYTES)
    yield Bound("unfinished input, not counted", "", limits.UNFINISHED_FREE_BYTES)
    if config.entitlement in (Entitlement.JWT, Entitlement.CUSTOM):
        yield Bound(
            "input that waits for a verdict", "BufferLimit.Receive", config.buffer_limit_receive
        )
    yield Bound("messages waiting to be sent", "BufferLimit.Send", config.buffer_limit_send)
    yield Bound("history and recovery waiting to be sent", "", limits.CATCH_UP_BYTES_MAX)
    yield Bound("the process itself", "", whole=PROCESS_BYTES)
    yield Bound("unfinished input of all", "", whole=limits.UNFINISHED_BYTES_MAX)
    yield Bound("histories being sent over HTTP", "", whole=limits.ANSWERS_BYTES_MAX)
    yield Bound("cached messages", "MaxCacheBytes", whole=config.max_cache_bytes)
    yield Bound("subjects", "MaxSubjects", whole=config.max_subjects * SUBJECT_BYTES)
    yield Bound("publishers and their numbers", "", whole=limits.PUBLISHERS_MAX * PUBLISHER_BYTES)
    yield from _waiting(config)


def _waiting(config: Config) -> Iterator[Bound]:
    """Yield the bounds of queues that do not wait for clients."""
    if config.entitlement is Entitlement.CUSTOM:
        asked = limits.VERDICTS_PENDING_MAX * VERDICT_BYTES
        yield Bound("questions to the entitlement class", "", whole=asked)
    yield Bound("server log and audit logs", "", whole=(1 + AUDITS) * limits.LOG_QUEUE_BYTES_MAX)
    if config.journal:
        queue = limits.JOURNAL_QUEUE_BYTES_MAX + limits.JOURNAL_BEHIND_BYTES
        yield Bound("journal's queue", "Journal", whole=queue)
    members = len(config.cluster_members)
    if members > 1:
        counted = config.cluster_subject_groups * limits.PENDING_PER_GROUP_MAX
        large = max(limits.PENDING_BYTES_MAX, config.max_message_size)
        yield Bound(
            "publications without a result",
            "MaxMessageSize, ClusterSubjectGroups",
            whole=min(counted * config.max_message_size, large) + counted * PUBLICATION_BYTES,
        )
        outboxes = (members - 1) * limits.PEER_OUTBOX_BYTES_MAX
        yield Bound("what waits for other members", "ClusterMembers", whole=outboxes)


def table(config: Config) -> list[str]:
    """Return the bounds as lines of text, with their sums."""
    all_ = config.max_connections
    address = min(config.max_connections_per_address, all_)
    found = list(bounds(config))
    rows: list[Sequence[str]] = [("what", "one connection", "one address", "all", "parameters")]
    for one in found:
        sizes = (one.each, address * one.each) if one.each else (0, 0)
        whole = one.whole or all_ * one.each
        rows.append((one.what, *(map(_size, (*sizes, whole))), one.named))
    each = sum(one.each for one in found)
    whole = sum(one.whole for one in found) + all_ * each
    rows.append(("sum", _size(each), _size(address * each), _size(whole), ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if index in (0, 4) else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _size(size: int) -> str:
    if not size:
        return "-"
    for unit, name in ((GB, "GB"), (MB, "MB"), (KB, "KB")):
        if size >= 10 * unit or (unit is KB and size):
            return f"{size / unit:,.0f} {name}"
    return f"{size} B"
