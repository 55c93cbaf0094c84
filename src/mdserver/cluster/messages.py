"""The messages between members, and what a driver exchanges with a node about them.

A message carries the share of many groups, each as an item that is named after it (`AckItem`), so
what a failure or a busy link costs does not grow with the number of groups. Messages and items are
arrays on the wire, and messages are numbered (`tag`): names are of no matter there, the order of
fields is. New fields go last, with a default, so that members of an earlier version are understood.
Those pass over fields that they do not know and do not keep them: entries that such a member hands
on lack them.

The protocol relies on links that deliver in order, and that deliver nothing of an older connection
after a new `PeerUp`. A link may lose the end of what was sent, which is why coordinators and
members compare lengths in heartbeats. docs/cluster.md, "Messages", says when each is sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from attrs import frozen

from mdserver.cluster.log import LogSlice, Run, Tables
from mdserver.core.message import Entry, Publication
from mdserver.core.outputs import ClusterOutput
from mdserver.limits import SYNC_BYTES_PER_MESSAGE, SYNC_ITEMS_PER_MESSAGE


class Item(msgspec.Struct, frozen=True, array_like=True):
    """One group's share of a message."""


class PeerMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages."""


class Hello(PeerMessage, frozen=True, tag=1):
    """First on each link: who the sender is, and which incarnations of seeds it knows.

    `linked`: the members that it can speak to, among which may be some that no list names. `start`
    is a random number of this start of the sender, `name` what people call it. `forgets`: it knows
    entries that forget subjects, `relists`: it knows that lists of seeds change; members of earlier
    versions leave these out.
    """

    incarnation: int
    admitted: bool
    client: str
    known: dict[str, int]
    linked: Sequence[str] = ()
    start: int = 0
    name: str = ""
    forgets: bool = False
    relists: bool = False


class LedGroup(Item, frozen=True):
    """A group that the sender coordinates; its epoch was elected by the list of that number."""

    group: int
    epoch: int
    length: int
    committed: int
    list_number: int = 1


class Heartbeat(PeerMessage, frozen=True, tag=2):
    """A member is alive, and describes its state.

    `ready`: it serves clients. `standing_known`: it knows whether others know of it (see
    `Groups.standing_known`). `record_lost`: it lost its vote record, and waits for an operator.
    `weight`: its share of the groups, 0 while it is drained. `promised`: the highest epoch that it
    promised in any group. `not_voting`: the groups in which this seed does not vote.
    `hears`: the members from which something came lately; `sees`: those of them that hear the
    sender as well; `misses`: members that others see and the sender does not. `follows`: it follows
    all groups, and clients may be sent to it. `unverified`: it read a log from its disk, which no
    coordinator has compared yet. `behind`: how many entries it has not applied that coordinators
    have committed, None if it does not know. `list_number` and `seeds` are the list of seeds on its
    disk, without names if it is the first one, `next_seeds` the list that it has named to follow.
    `takes_part`: it takes logs as seeds do, so `not_voting` says something. `unwritten`: it is to
    write the log of a seed down, and has to start again for that. `may_name`: `next_seeds` is all
    that it has named, also in a record that it may have lost. `promises`: what this seed promised,
    group by group, as long as a member that it is linked to does not serve clients; members of
    earlier versions leave it out.
    """

    ready: bool
    admitted: bool
    standing_known: bool
    record_lost: bool
    weight: int
    promised: int
    not_voting: list[int]
    leads: list[LedGroup]
    hears: Sequence[str] = ()
    sees: Sequence[str] = ()
    misses: Sequence[str] = ()
    follows: bool = False
    unverified: bool = False
    behind: int | None = None
    list_number: int = 1
    seeds: Sequence[str] = ()
    next_seeds: Sequence[str] = ()
    takes_part: bool = False
    unwritten: bool = False
    may_name: bool = False
    promises: Sequence[int] | None = None


class Ballot(Item, frozen=True):
    """A candidacy for one group; the candidate holds `committed` entries of that history."""

    group: int
    epoch: int
    committed: int
    history: str


class PreVoteItem(Ballot, frozen=True):
    """A candidacy of which a seed is asked whether it would promise it."""


class PreVote(PeerMessage, frozen=True, tag=3):
    """A candidate asks, before a PREPARE, whether a seed would promise; nothing changes there.

    `list_number`: that of the list of seeds by which votes are counted.
    """

    items: list[PreVoteItem]
    list_number: int = 1


class PreVoteGrantedItem(Ballot, frozen=True):
    """A candidacy that a seed would promise."""


class PreVoteGranted(PeerMessage, frozen=True, tag=4):
    """A seed would promise these; it is not bound by that."""

    items: list[PreVoteGrantedItem]


class PrepareItem(Ballot, frozen=True):
    """A candidacy for which a promise is asked."""


class Prepare(PeerMessage, frozen=True, tag=5):
    """A candidate asks for promises.

    `readmit`: seed -> the incarnation that is taken back. `ordered`: the cold start was ordered by
    an operator, and may be one without all seeds. `list_number`: as in `PreVote`.
    """

    items: list[PrepareItem]
    readmit: dict[str, int]
    cold: bool
    ordered: bool = False
    list_number: int = 1


class State(Item, frozen=True):
    """The substitute for the beginning of a log: tables, and the cache as the broker exports it."""

    tables: Tables
    cache: msgspec.Raw


class PromiseItem(Item, frozen=True):
    """A promise, and the seed's log from `start` on; with `state`, that stands for the rest.

    `unverified`: that log was read from a disk that may be an older copy.
    """

    group: int
    epoch: int
    accepted: int
    length: int
    committed: int
    history: str
    start: int
    entries: list[Entry]
    runs: list[Run]
    state: State | None
    unverified: bool = False


class Promise(PeerMessage, frozen=True, tag=6):
    """The seed will take nothing of a lower epoch any more."""

    incarnation: int
    known: dict[str, int]
    items: list[PromiseItem]


class NackItem(Item, frozen=True):
    """A refusal of `epoch`: the sender knows of `promised`, which is `candidate`'s.

    If `promised` is below `epoch`, the seed refused because it does not vote.
    """

    group: int
    epoch: int
    promised: int
    candidate: str


class Nack(PeerMessage, frozen=True, tag=7):
    """A PREPARE, a log, entries or the groups of a heartbeat were refused."""

    items: list[NackItem]


class SyncItem(LogSlice, frozen=True):
    """The coordinator's log of a group from `start` on, or after `state`.

    `register`: the incarnation of the recovering seed that may count from here on, else 0. `cold`:
    every seed promised this epoch, those that had lost everything too. `list_number`: that of the
    list of seeds that elected the epoch.
    """

    active: bool
    cold: bool
    register: int
    state: State | None
    list_number: int = 1


class CopyItem(SyncItem, frozen=True):
    """The committed part of a group: only `state`, and the length that it stands for."""


L = TypeVar("L", PromiseItem, SyncItem, CopyItem)


def portions(logs: Iterable[L]) -> Iterator[list[L]]:
    """Give logs in portions that fit a message: a few groups, fewer if they hold much."""
    portion: list[L] = []
    size = 0
    for log in logs:
        portion.append(log)
        size += sum(len(entry.publication.content) for entry in log.entries)
        size += 0 if log.state is None else len(bytes(log.state.cache))
        if len(portion) == SYNC_ITEMS_PER_MESSAGE or size > SYNC_BYTES_PER_MESSAGE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


class Sync(PeerMessage, frozen=True, tag=8):
    """A coordinator gives its log: after an election to all, and in answer to `SyncRequest`.

    `known`: after a cold start the incarnations of those who promised, to be noted before an ack.
    """

    items: list[SyncItem]
    known: dict[str, int] = {}


class AcceptItem(Item, frozen=True):
    """New entries of a group, from `start` on."""

    group: int
    epoch: int
    start: int
    committed: int
    entries: list[Entry]
    runs: list[Run]


class Accept(PeerMessage, frozen=True, tag=9):
    """A coordinator replicates entries."""

    items: list[AcceptItem]


class AckItem(Item, frozen=True):
    """The seed holds the coordinator's log up to `length`."""

    group: int
    epoch: int
    length: int


class Ack(PeerMessage, frozen=True, tag=10):
    """Answer of a seed to `Sync` and `Accept`."""

    incarnation: int
    items: list[AckItem]


class CommitItem(Item, frozen=True):
    """The coordinator's log is committed up to `length`."""

    group: int
    epoch: int
    length: int


class Commit(PeerMessage, frozen=True, tag=11):
    """A coordinator says how much of its logs a majority of seeds holds."""

    items: list[CommitItem]


class SyncRequestItem(Item, frozen=True):
    """A member's log of a group does not follow; `recovering`: it is a seed that does not vote.

    The log has `length` entries of which `committed` are agreed, and is of the epoch `accepted`;
    `last` is the checksum of the last of the agreed ones, 0 if that is not held any more.
    """

    group: int
    committed: int
    history: str
    promised: int
    recovering: bool
    accepted: int = 0
    length: int = 0
    last: int = 0


class SyncRequest(PeerMessage, frozen=True, tag=12):
    """A member asks a coordinator for what it lacks.

    `returning`: it lost its vote record, and an operator takes it back. `anew`: it lost its vote
    record too, but is in no list of seeds, so that nobody has to take it back.
    """

    incarnation: int
    admitted: bool
    returning: bool
    items: list[SyncRequestItem]
    anew: bool = False


class ForwardItem(Item, frozen=True):
    """Publications for one group; the contact calls the first one `first`, and so on."""

    group: int
    epoch: int
    first: int
    publications: list[Publication]


class Forward(PeerMessage, frozen=True, tag=13):
    """A contact hands publications to the coordinators."""

    contact: str
    items: list[ForwardItem]


class ForwardReplyItem(Item, frozen=True):
    """The result of a ticket that gets no place in the log: a repeat or a refusal.

    A repeat (`duplicate`) has the position of the first one, `epoch` and `seq`. A refusal has its
    `reason`, and `expected`, the next number of the publisher, if its number is the reason. One
    that is not `certain` may be committed all the same: a member says so to its workers.
    """

    group: int
    ticket: int
    epoch: int
    seq: int
    duplicate: bool
    reason: str | None
    expected: int | None
    certain: bool = True


class ForwardReply(PeerMessage, frozen=True, tag=14):
    """A coordinator answers repeats and refusals; contacts read other results off the log."""

    items: list[ForwardReplyItem]


class HandOver(PeerMessage, frozen=True, tag=15):
    """A coordinator asks the receiver to stand for these groups."""

    groups: list[int]


class StandardBatch(PeerMessage, frozen=True, tag=16):
    """STANDARD publications for every member's subscribers."""

    publications: list[Publication]


class Readmit(PeerMessage, frozen=True, tag=17):
    """An operator takes the receiver back, whose vote record was lost."""


class SetWeight(PeerMessage, frozen=True, tag=18):
    """An operator sets a member's share of the groups; 0 drains it."""

    weight: int


class BeginItem(Item, frozen=True):
    """A leadership that begins; until then the log had the history id `before` and this length.

    A member that holds as much of that history holds all of it.
    """

    group: int
    epoch: int
    history: str
    before: str
    length: int


class Begin(PeerMessage, frozen=True, tag=19):
    """Standard mode: the sender coordinates these groups from now on."""

    items: list[BeginItem]


class Claim(PeerMessage, frozen=True, tag=20):
    """Standard mode: the sender follows the receiver's groups, and should coordinate these."""

    groups: list[int]


class YieldItem(Item, frozen=True):
    """A leadership that ended at this length of the log."""

    group: int
    epoch: int
    length: int


class Yield(PeerMessage, frozen=True, tag=21):
    """Standard mode: a coordinator leaves these groups to the receiver."""

    items: list[YieldItem]


class CopyRequest(PeerMessage, frozen=True, tag=22):
    """A member that is no seed asks another for what it has of these groups."""

    groups: list[int]


class CopyReply(PeerMessage, frozen=True, tag=23):
    """The committed part of groups."""

    items: list[CopyItem]


class ServerState(PeerMessage, frozen=True, tag=24):
    """A member tells its workers what concerns their clients.

    `unready`: why it serves no clients now. `move`: for which reason (`Move.reason`) its clients
    have to go, to one of `targets`; "" while they stay. `elsewhere`: the other members, to which
    clients can go when the member ends. `drained`: why no further clients should come. `refusing`:
    why no publications are taken.
    """

    unready: str | None = None
    move: str = ""
    targets: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    drained: str | None = None
    refusing: str | None = None


class TakePart(PeerMessage, frozen=True, tag=25):
    """A seed asks the receiver to take the logs as a seed does; it is to become one."""


class SeedOrder(PeerMessage, frozen=True, tag=26):
    """An operator wants a member to be a seed (`votes`), or to be one no more.

    The receiver is the seed that begins such changes, one after the other.
    """

    member: str
    votes: bool


AnyPeerMessage = (
    Hello
    | Heartbeat
    | PreVote
    | PreVoteGranted
    | Prepare
    | Promise
    | Nack
    | Sync
    | Accept
    | Ack
    | Commit
    | SyncRequest
    | Forward
    | ForwardReply
    | HandOver
    | StandardBatch
    | Readmit
    | SetWeight
    | Begin
    | Claim
    | Yield
    | CopyRequest
    | CopyReply
    | ServerState
    | TakePart
    | SeedOrder
)


@frozen
class PeerUp:
    """A link to a member is up, in both directions. What an older link carried came before.

    `worker`: it is a link to a worker of this member.
    """

    peer: str
    worker: bool = False


@frozen
class PeerDown:
    """The link to a member is gone."""

    peer: str


@frozen
class PeerReceived:
    """The messages that one read of a link returned, in order."""

    peer: str
    messages: Sequence[AnyPeerMessage]


@frozen
class Persisted:
    """The vote record of this request, and all before it, are on the disk."""

    request: int


@frozen
class MembersListed:
    """The operators' list of members from now on; its seeds are those that it always had.

    `moved`: members that are at another address than the one that is their name -> that address.
    """

    members: tuple[str, ...]
    moved: Mapping[str, str]


@frozen
class AdminCommand:
    """An operator's command: "status", "drain", "undrain", "readmit" or "cold-start"."""

    request: int
    action: str
    member: str = ""
    force: bool = False


@frozen
class AdminReply(ClusterOutput):
    """The answer to `AdminCommand`: plain values for JSON, or why it was refused."""

    request: int
    answer: dict[str, object]
    refused: str | None = None


@frozen
class SendPeer(ClusterOutput):
    """One message to several members; encoded once for all of them."""

    peers: tuple[str, ...]
    message: AnyPeerMessage


@frozen
class Persist(ClusterOutput):
    """Store this vote record, whole; answered by `Persisted`. Only the newest one matters."""

    request: int
    record: bytes


@frozen
class PeerDiscovered(ClusterOutput):
    """Dial a member that is not in `ClusterMembers`, until it is gone for long."""

    peer: str


@frozen
class ClosePeer(ClusterOutput):
    """Close the link to a member; the driver dials again after a while."""

    peer: str
    reason: str
