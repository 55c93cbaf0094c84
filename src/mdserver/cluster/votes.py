"""The vote record: what a member must still know after a crash (docs/cluster.md, "Vote file").

Paxos asks of an acceptor that it never forgets a promise, so promises are on the disk before they
are given (`mdserver.cluster.stable_storage`). The record is small and is written whole; it changes
when a newer epoch is promised, another start of a seed becomes known, or the member starts.
Nothing is written for a publication.

Besides promises it has *incarnations*: how often each seed has started. They are how a seed that
lost its memory is found out (`mdserver.cluster.guaranteed`), and how acks of an earlier incarnation
are distinguished from those of the present one (spec: `GroupLog`, the rules "promises are
durable" and "acks are fenced").
"""

import msgspec

from mdserver.errors import MdserverError

FORMAT = 1


RESTARTS_MAX = 2**20
"""More than a seed ever starts between two losses of its record."""


class DamagedError(MdserverError):
    """A vote record that cannot be read; the message says why."""


class Vote(msgspec.Struct, frozen=True, array_like=True):
    """The newest epoch that was promised in a group, and to whom."""

    epoch: int = 0
    candidate: str = ""


class VoteRecord(msgspec.Struct):
    """One member's record.

    `incarnation` rises at each start. `admitted`: this seed promised in full attendance, or was
    taken in by a quorum, so that others know it; a record without it may replace a lost one.
    `known` are the incarnations below which nothing of a seed counts any more, `starts` the random
    numbers of the starts that had these: an older copy of a record gives an incarnation again.
    `recorded`: this incarnation acks nothing that it does not write down
    (`mdserver.cluster.wal`). `seeds` are the cluster's, in their order; earlier versions left
    them out. `log` is the identifier of the stream that its logs are written down in, empty if that
    is not known, and `logged` the newest incarnation that is known to have begun there.

    Of the lists of seeds (`mdserver.cluster.seeds`): `number` is that of the present one, `listed`
    its seeds if it is not the first one, `next` the list that this seed has named to follow it, and
    `may_name` says that it named no other one in a record that was lost. `founding` is what `seeds`
    stands for, if that has something else (`encode`).
    """

    member: str
    cluster: str
    incarnation: int = 0
    admitted: bool = False
    promised: list[Vote] = []
    known: dict[str, int] = {}
    format: int = FORMAT
    recorded: bool = False
    seeds: list[str] = []
    log: str = ""
    logged: int = 0
    starts: dict[str, int] = {}
    number: int = 1
    listed: list[str] = []
    next: list[str] = []
    may_name: bool = False
    founding: list[str] = []

    @property
    def changed(self) -> bool:
        """Return whether there was a change of seeds, or one has begun."""
        return self.number > 1 or bool(self.next)

    def present(self, first: tuple[str, ...]) -> tuple[str, ...]:
        """Return the present list of seeds; `first` is the list with which the cluster began."""
        return tuple(self.listed) if self.number > 1 else first

    def encode(self) -> bytes:
        """Return the content of the vote file.

        A version that knows no changes of seeds would count majorities by the first list. Once
        there was a change, the record has in the place of that list one that is no configuration's:
        such a version then ends its start, and says how the two differ.
        """
        if not self.changed:
            return msgspec.json.encode(self)
        shown = [f"list {self.number} of this cluster:", *self.present(tuple(self.seeds))]
        return msgspec.json.encode(
            msgspec.structs.replace(self, seeds=shown, founding=list(self.seeds))
        )


def after_loss(known: int) -> int:
    """Return the incarnation that follows a loss: above all that may have promised.

    `known` is the newest that anybody told of. Starts after it may have gone unnoticed by them.
    """
    return (known // RESTARTS_MAX + 1) * RESTARTS_MAX


def follows_on_record(incarnation: int) -> bool:
    """Return whether a start from an older copy of a record could have this incarnation.

    The first one and the first after a loss follow on none: a seed that lost its record, and was
    taken back while others were away, has them again, and is no older copy.
    """
    return incarnation > 1 and incarnation % RESTARTS_MAX != 0


def read(content: bytes) -> VoteRecord:
    """Return what was stored. Raises DamagedError."""
    try:
        record = msgspec.json.decode(content, type=VoteRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedError(str(error)) from None
    if record.format != FORMAT:
        raise DamagedError(f"its format is {record.format}, and only {FORMAT} is known here")
    if record.changed:
        record.seeds, record.founding = record.founding, []
    return record


def started(content: bytes | None, member: str, cluster: str, groups: int) -> VoteRecord:
    """Return the record to start with: what was stored, of one incarnation more.

    It has to be on the disk before the member speaks to others. Raises DamagedError.
    """
    if content is None:
        return VoteRecord(member, cluster, 1, False, [Vote()] * groups, {})
    record = read(content)
    record.incarnation += 1
    return record
