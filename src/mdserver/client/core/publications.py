"""Publications without a result: their numbers, and which of them are sent again.

The rules are those of docs/protocol.md, "Numbered publications". The publications of one subject
group form a line that is numbered from 1 without gaps, so that the server can tell a repeat from a
new publication and take each one exactly once.

The states of a line:

- Open: each publication gets the next number and is sent at once, many in flight.
- Held: a number was not taken, so the server refuses everything after it that is in flight because
  of the gap. Nothing more is sent until each publication in flight has its answer.
- Ready: all answers are here. The line is renumbered, sent again in order, and open.
- Resting: as ready, but the line waits for the retry timer first, because an earlier round of
  repeats brought no progress or the outcome is uncertain.

The number of an uncertain publication (its answer was lost, or said that the outcome is uncertain)
never changes, because the server recognises a repeat by its number. All others may be renumbered:
they certainly left no trace. The numbers that were given increase along the queue.

No number ever stands for two publications. A server that forgot the publisher, or that holds an
older log (docs/cluster.md, "Standard mode"), expects a number that may have been taken before, and
what is given that number again is taken for a repeat wherever the earlier one is known. So the line
begins a new *series* then: its numbers go on after the next multiple of `PUBLISHER_SERIES_NUMBERS`,
and the server counts each series from 1. A server of an earlier release knows no series. There the
line goes on from the number that the server expects, and what may have been taken before ends as
uncertain, because no repeat of it would be recognised. So it is in a new series, if one before it
ended while it was uncertain: an attempt of that one may still be taken, and fill the gap.

Publications that are not numbered (no publisher, or STANDARD quality) form one line of their own,
`UNNUMBERED`. It is never held: a refusal is final. After a lost connection the GUARANTEED ones are
sent again, at least once; the STANDARD ones fail.
"""

from collections.abc import Iterator

import attrs
import msgspec

from mdserver.client.core.values import Numbering, PublishResult
from mdserver.core.commands import Publish
from mdserver.core.events import Connected, Status, StatusName
from mdserver.core.message import Qos
from mdserver.core.subjects import group_of
from mdserver.errors import LocalProtocolError
from mdserver.limits import PUBLISHER_SERIES_NUMBERS

UNNUMBERED = -1


@attrs.define(eq=False)
class Line:
    """The publications of one subject group that have no result yet, in order.

    `queue` maps ids to publications in the order in which they were published.
    """

    group: int
    queue: dict[int, "UnresolvedPublication"] = attrs.Factory(dict)
    last: int = 0  # the last number given out
    accepted: int = 0  # numbering goes on after this one
    in_flight: int = 0
    rounds: int = 0  # of repeats, since a publication of this line was last taken
    held: bool = False
    patient: bool = False  # held, and the next round waits for the retry timer
    series: int = 0  # the newest that was begun
    unresolved: int = 0  # the greatest number of those that ended while they were uncertain
    ends_doubted: bool = False  # no repeat would be recognised: what is doubted has to end

    def refused(self, outgoing: "UnresolvedPublication", expected: int) -> None:
        """Take the number that the server expected in place of a publication's."""
        number, queue = outgoing.number, self.queue.values()
        given = expected <= self.accepted or any(each.uncertain for each in queue)
        # Behind others an earlier attempt may still be under way, and be taken after theirs.
        if outgoing is not next(iter(queue)) or expected == number or not given:
            self.accepted = max(self.accepted, expected - 1)
            return
        # All before it have ended. If none of them may still be taken, nobody fills the gap, and no
        # attempt of the line can be taken where this one was refused. Elsewhere one may have been.
        for each in queue:
            each.uncertain = False
            each.number = 0
        self.accepted = expected - 1
        # A server that refuses the first number of a series is of an earlier release.
        is_earlier = number == self.series * PUBLISHER_SERIES_NUMBERS + 1
        self.ends_doubted = is_earlier or expected <= self.unresolved
        if not is_earlier:
            self.series = max(self.series, self.last // PUBLISHER_SERIES_NUMBERS) + 1
            self.accepted = self.series * PUBLISHER_SERIES_NUMBERS

    def renumber(self) -> None:
        """Number the queue in order after the last number that was taken.

        Uncertain publications keep their numbers, unless a series was begun since: the server would
        see no gap behind them, and take others before them.
        """
        number = self.accepted
        for outgoing in self.queue.values():
            if outgoing.uncertain and outgoing.number:
                number = max(number, outgoing.number)
            else:
                number += 1
                outgoing.number = number
        self.last = number


@attrs.define(eq=False)
class UnresolvedPublication:
    """A publication without a result yet.

    `number` is 0 until it is sent, also in a new series. `uncertain`: an earlier attempt may have
    been taken under this number. `doubted`: one may have been taken, under whatever number.
    """

    id: int
    request: Publish
    line: Line | None = None
    number: int = 0
    in_flight: bool = False
    uncertain: bool = False
    doubted: bool = False

    def doubt(self) -> None:
        """Note that nobody knows whether the last attempt was taken."""
        self.uncertain = self.doubted = True

    def leave_line(self) -> None:
        """Begin anew: no attempt was taken that counts."""
        self.line = None
        self.uncertain = self.doubted = False


class PublicationLines:
    """All lines of a client, with at most `publications_max` publications in them.

    `numbered`: whether a publisher is named, so that lines are numbered. `resumed`: the numbering
    of an earlier run, from which this one goes on.
    """

    def __init__(
        self, *, numbered: bool, publications_max: int, resumed: Numbering | None = None
    ) -> None:
        self._numbered = numbered
        self._resumed = resumed or Numbering()
        self._publisher: str | None = self._resumed.publisher
        self._publisher_key: str | None = self._resumed.publisher_key
        self._history = ""
        self._max = publications_max
        self._groups = 0
        self._flowing = False  # whether there is a session
        self._message_bytes_max = 0
        self._next_id = 1
        self._outstanding: dict[int, UnresolvedPublication] = {}
        self._lines: dict[int, Line] = {}
        self._ready: dict[int, Line] = {}
        self._resting: dict[int, Line] = {}

    def __len__(self) -> int:
        return len(self._outstanding)

    @property
    def resting(self) -> bool:
        """Whether a line waits for the retry timer."""
        return bool(self._resting)

    @property
    def numbering(self) -> Numbering:
        """The last number taken in each line, including lines of the run that was resumed."""
        taken = dict(self._resumed.taken) if self._resumed.groups == self._groups else {}
        taken |= {line.group: line.accepted for line in self._lines.values()}
        taken.pop(UNNUMBERED, None)
        if not self._groups:
            return self._resumed
        return Numbering(self._groups, taken, self._publisher, self._publisher_key)

    def add(self, request: Publish) -> tuple[int, Publish | PublishResult | None]:
        """Take a publication; return its id, and the command if it is to be sent at once.

        Instead of the command its result is returned if it is too large for the server. None: it is
        sent later, by `ready`. Raises LocalProtocolError if too many publications have no result
        yet.
        """
        if len(self._outstanding) >= self._max:
            raise LocalProtocolError(f"{self._max} publications have no result yet; wait for one")
        publication = self._next_id
        self._next_id += 1
        outgoing = UnresolvedPublication(publication, request)
        if self._flowing and content_bytes(request) > self._message_bytes_max:
            return publication, self._oversized(outgoing)
        self._outstanding[publication] = outgoing
        if not self._flowing:
            return publication, None
        line = self._join_line(outgoing)
        if line.held:
            return publication, None
        line.last += 1
        outgoing.number = line.last
        return publication, self._send(line, outgoing)

    def connected(self, server: Connected) -> list[PublishResult]:
        """Start a session: everything without a result is to be sent again, in order.

        Returns the results of publications that are too large for this server, which would close
        the connection for some of them on every attempt, and of those that cannot be repeated.
        """
        self._flowing = True
        groups, self._message_bytes_max = server.groups, server.message_bytes_max
        results = self._identified(server)
        message_bytes_max = server.message_bytes_max
        oversized = [
            outgoing
            for outgoing in self._outstanding.values()
            if content_bytes(outgoing.request) > message_bytes_max
        ]
        for outgoing in oversized:
            self._drop(outgoing)
        if groups != self._groups:
            # The number of groups is fixed for the life of a cluster, so this is another cluster:
            # it has seen none of our numbers.
            self._groups = groups
            self._lines = {}
            for outgoing in self._outstanding.values():
                outgoing.leave_line()
        for outgoing in self._outstanding.values():
            if outgoing.line is None:
                self._join_line(outgoing)
        self._ready = {group: line for group, line in self._lines.items() if line.queue}
        return results + [self._oversized(outgoing) for outgoing in oversized]

    def _identified(self, server: Connected) -> list[PublishResult]:
        """Take the identity under which the server counts; a new identity begins at 1.

        Under a new identity the server does not recognise a repeat. If the history id is new as
        well, nothing of what was sent exists any more, and everything can be sent again. If it is
        the same, uncertain publications may exist, so they fail; their results are returned.
        """
        known, self._publisher = self._publisher, server.publisher
        self._publisher_key = server.publisher_key
        history, self._history = self._history, server.history
        if known is None or known == server.publisher:
            return []
        self._resumed = Numbering()
        unsure = []
        if history == server.history:
            unsure = [
                outgoing
                for outgoing in self._outstanding.values()
                if outgoing.doubted and outgoing.line and outgoing.line.group != UNNUMBERED
            ]
        for outgoing in unsure:
            self._drop(outgoing)
        self._lines = {}
        for outgoing in self._outstanding.values():
            outgoing.leave_line()
        reason = "the server knows this publisher no more, so it would not recognise a repeat"
        return [_failed(outgoing, reason, certain=False) for outgoing in unsure]

    def lost(self) -> list[PublishResult]:
        """End a session; return the results of publications that cannot be repeated.

        What was in flight is now uncertain. STANDARD publications are not numbered, so a repeat
        could deliver them twice.
        """
        self._flowing = False
        self._ready = {}
        self._resting = {}
        ended = []
        for line in self._lines.values():
            line.in_flight = 0
            line.rounds = 0
            line.held = line.patient = False
            ended += self._end_doubted(line)
        for outgoing in list(self._outstanding.values()):
            if not outgoing.in_flight:
                continue
            outgoing.in_flight = False
            outgoing.doubt()
            if outgoing.request.qos is Qos.STANDARD:
                self._drop(outgoing)
                reason = "the connection was lost before the result came"
                ended.append(_failed(outgoing, reason, certain=False))
        return ended

    def stopped(self, reason: str) -> list[PublishResult]:
        """Fail all that is left; call after `lost`, when the client will not reconnect."""
        ended = [
            _failed(outgoing, reason, certain=not outgoing.doubted)
            for outgoing in self._outstanding.values()
        ]
        for outgoing in list(self._outstanding.values()):
            self._drop(outgoing)
        return ended

    def ready(self) -> Iterator[Publish]:
        """Yield the commands of lines that are to be sent again."""
        while self._ready:
            line = self._ready.pop(next(iter(self._ready)))
            line.held = line.patient = False
            if line.group != UNNUMBERED:
                line.renumber()
            for outgoing in line.queue.values():
                if not outgoing.in_flight:
                    yield self._send(line, outgoing)

    def retry(self) -> None:
        """Make resting lines ready: the retry timer is due."""
        self._ready.update(self._resting)
        self._resting = {}

    def answered(self, status: Status) -> list[PublishResult]:
        """Handle the answer to a publication; return the results of those that end with it.

        There is none if the publication is sent again, or if the status concerns none in flight.
        """
        publication = status.id
        outgoing = self._outstanding.get(publication) if isinstance(publication, int) else None
        if outgoing is None or outgoing.line is None or not outgoing.in_flight:
            return []
        line = outgoing.line
        outgoing.in_flight = False
        line.in_flight -= 1
        if status.status is StatusName.PUBLISH_OK:
            line.accepted = max(line.accepted, outgoing.number)
            line.rounds = 0
            outgoing.uncertain = False
            self._drop(outgoing)
            result = PublishResult(
                outgoing.id,
                StatusName.PUBLISH_OK,
                epoch=status.epoch or 0,
                seq=status.seq or 0,
                duplicate=status.duplicate,
            )
            return [result, *self._settle(line)]
        if line.group != UNNUMBERED:
            line.held = True
            if _repeats(line, outgoing, status):
                return self._settle(line)
        self._drop(outgoing)
        result = PublishResult(
            outgoing.id,
            status.status,
            reason=status.reason or status.info or status.status.value,
            certain=status.certain is not False and not outgoing.doubted,
        )
        return [result, *self._settle(line)]

    def _settle(self, line: Line) -> list[PublishResult]:
        """Make a held line ready or resting once nothing of it is in flight.

        Waiting for the last answer makes renumbering safe: a publication in flight may still be
        taken under its old number. Returns the results of those that end instead.
        """
        if not line.held or line.in_flight:
            return []
        ended = self._end_doubted(line)
        if line.queue:
            line.rounds += 1  # a publication that is taken sets it back to 0
            waiting = self._resting if line.patient else self._ready
            waiting[line.group] = line
        else:
            line.held = line.patient = False
            line.renumber()
        return ended

    def _end_doubted(self, line: Line) -> list[PublishResult]:
        """End what may have been taken, if no repeat of it would be recognised."""
        doubted = [each for each in line.queue.values() if line.ends_doubted and each.doubted]
        line.ends_doubted = False
        for outgoing in doubted:
            self._drop(outgoing)
        reason = "the server would not recognise a repeat"
        return [_failed(outgoing, reason, certain=False) for outgoing in doubted]

    def _send(self, line: Line, outgoing: UnresolvedPublication) -> Publish:
        """Return the command of a publication, which is in flight from now on."""
        outgoing.in_flight = True
        line.in_flight += 1
        number = None if line.group == UNNUMBERED else outgoing.number
        return msgspec.structs.replace(outgoing.request, id=outgoing.id, number=number)

    def _oversized(self, outgoing: UnresolvedPublication) -> PublishResult:
        size = content_bytes(outgoing.request)
        return PublishResult(
            outgoing.id,
            StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED,
            reason=f"the message has {size} bytes, the server takes {self._message_bytes_max}",
            certain=not outgoing.doubted,
        )

    def _drop(self, outgoing: UnresolvedPublication) -> None:
        """Remove a publication that has its result."""
        del self._outstanding[outgoing.id]
        line = outgoing.line
        if line is not None:
            del line.queue[outgoing.id]
            if outgoing.uncertain:
                # Its number may be taken, so the next publication must not get it. If it was not
                # taken, the next one is refused for the gap, with the number that is expected.
                line.accepted = max(line.accepted, outgoing.number)
                line.unresolved = max(line.unresolved, outgoing.number)

    def _join_line(self, outgoing: UnresolvedPublication) -> Line:
        """Append a publication to the line of its subject group; return the line."""
        request = outgoing.request
        if not self._numbered or request.qos is Qos.STANDARD:
            group = UNNUMBERED
        else:
            group = group_of(request.subject, self._groups)
        line = self._lines.get(group)
        if line is None:
            taken = 0
            if self._resumed.groups == self._groups:
                taken = self._resumed.taken.get(group, 0)
            line = self._lines[group] = Line(group, last=taken, accepted=taken)
        line.queue[outgoing.id] = outgoing
        outgoing.line = line
        return line


def content_bytes(request: Publish) -> int:
    """Return what counts against MaxMessageSize, in UTF-8 bytes.

    Content, field names and field values count.
    """
    if request.content is not None:
        size = len(request.content)
        if not request.content.isascii():
            size = len(request.content.encode())
    else:
        size = len(request.content_base64 or b"")
    if request.fields:
        size += sum(len(k.encode()) + len(v.encode()) for k, v in request.fields.items())
    return size


def _repeats(line: Line, outgoing: UnresolvedPublication, status: Status) -> bool:
    """Return whether a failed publication of a numbered line is sent again.

    What the failure says is noted in the line and the publication.
    """
    if status.status is not StatusName.PUBLISH_FAILED:
        return False
    if status.expected is not None:
        # The first gap is repeated at once. After a second one with nothing taken in between the
        # line waits for the retry timer, to give the server time.
        line.patient = line.patient or line.rounds > 0
        line.refused(outgoing, status.expected)
        return True
    if status.certain is False or outgoing.uncertain:
        # The certain failure of a repeat says nothing about the attempts before it.
        line.patient = True
        outgoing.doubt()
        return True
    return False


def _failed(outgoing: UnresolvedPublication, reason: str, *, certain: bool) -> PublishResult:
    return PublishResult(outgoing.id, StatusName.PUBLISH_FAILED, reason=reason, certain=certain)
