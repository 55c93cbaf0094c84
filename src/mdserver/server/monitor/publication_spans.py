"""Spans of publications, made from what goes into a node and comes out of it (OpenTelemetry).

A publication that is traced has these spans, each made by the member on which it happened:

    publish                 the contact: from the publication's time to its commit there
    |-- forward             the contact, if another member coordinates the subject group
    |   '-- commit          the coordinator: from its append to its commit
    |-- commit              instead, if the contact coordinates the group
    '-- fan-out             each member with subscribers: from its commit to the end of the flush

A member is the contact of what clients publish at its workers, which therefore make spans of
`fan-out` only, and of what no log holds.

The members exchange nothing for this. The ids of a trace and of its spans follow from the
publication and its position, so each member finds the id of a parent that another one made, and all
of them decide alike whether a publication is traced. The parent of `publish` is what the field
`traceparent` names (W3C Trace Context), which subscribers get as the publisher gave it.

`SpanNode` stands between the engine and the node. Without OpenTelemetry the engine has the node
itself, so a publication costs nothing more.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any
from zlib import crc32

from attrs import field, frozen

from mdserver.cluster.kafka_messages import RecordsRead
from mdserver.cluster.messages import Accept, Forward, PeerReceived, SendPeer
from mdserver.cluster.node import Node
from mdserver.core.inputs import TimerDue
from mdserver.core.message import Entry, MessageType, Publication, Qos
from mdserver.core.outputs import Committed, Deliver, Output
from mdserver.core.subjects import is_servers_own
from mdserver.limits import (
    NS_PER_S,
    TRACED_AGE_S,
    TRACED_OPEN_MAX,
    TRACED_PUBLICATIONS_PER_SECOND,
)

FIELD = "traceparent"
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1
_STANDARD = Qos.STANDARD


@frozen
class Parent:
    """A span of a client, as a `traceparent` names it."""

    trace: int
    span: int
    sampled: bool


@frozen(kw_only=True)
class TraceSpan:
    """A span that has ended; times are in ns since the Unix epoch.

    `parent` is the id of its parent, 0 if there is none; `remote`: that is a span of a client.
    """

    name: str
    trace: int
    id: int
    parent: int
    start: int
    end: int
    remote: bool = False
    attributes: dict[str, str | int] = field(factory=dict)


def read_traceparent(text: str) -> Parent | None:
    """Return what a `traceparent` says, None if it is none that the recommendation allows."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace, span = int(found[2], 16), int(found[3], 16)
    if not trace or not span:
        return None
    return Parent(trace, span, bool(int(found[4], 16) & _SAMPLED))


def derived_id(size: int, *parts: object) -> int:
    """Return an id of so many bytes that follows from these parts, never 0."""
    digest = blake2b("|".join(map(str, parts)).encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1


class Sampler:
    """Decides which publications are traced, alike on all members with the same `ratio`.

    Of those without `traceparent` it is a part, of the others those whose client samples them.
    """

    def __init__(self, ratio: float) -> None:
        self._bound = round(ratio * 2**64)

    def parent_of(self, publication: Publication) -> Parent | None:
        """Return the trace and the parent (0: none) of a publication; None if it is not traced."""
        fields = publication.fields
        text = None if fields is None else fields.get(FIELD)
        if text is not None:
            parent = read_traceparent(text)
            if parent is not None:
                return parent if parent.sampled else None
        if not self._bound:
            return None
        sum_of_content = crc32(publication.content)
        one = publication
        trace = derived_id(16, one.subject, one.time, one.publisher, one.number, sum_of_content)
        # As the samplers of the SDK do: by the last 64 bits.
        return Parent(trace, 0, True) if trace & (2**64 - 1) < self._bound else None


@frozen
class Traced:
    """A publication that is traced, with its trace."""

    publication: Publication
    parent: Parent
    epoch: int = 0
    seq: int = 0

    def id_of(self, name: str, member: str = "") -> int:
        """Return the id of a span of this publication; `member` if there is one on each of them."""
        one = self.publication
        own = (one.subject, self.epoch, self.seq, one.time)
        return derived_id(8, name, member, self.parent.trace, *own)

    def span(
        self, name: str, start: int, end: int, parent: str, member: str = "", sessions: int = 0
    ) -> TraceSpan:
        """Return a span; `parent` is the name of the one above it, "" if that is the client's."""
        attributes: dict[str, str | int] = {
            "messaging.system": "mdserver",
            "messaging.operation.name": name,
            "messaging.destination.name": self.publication.subject,
            "messaging.message.body.size": len(self.publication.content),
        }
        if self.seq:
            attributes |= {"mdserver.epoch": self.epoch, "mdserver.seq": self.seq}
        if sessions:
            attributes["mdserver.sessions"] = sessions
        return TraceSpan(
            name=name,
            trace=self.parent.trace,
            id=self.id_of(name, member),
            parent=self.id_of(parent) if parent else self.parent.span,
            remote=not parent and bool(self.parent.span),
            start=min(start, end),
            end=end,
            attributes=attributes,
        )


Key = tuple[str, int, str, int, str, int]


def key_of(publication: Publication) -> Key:
    """Return what a publication is found by when it comes back with its position."""
    one = publication  # those of one read have the same time
    parent = (one.fields or {}).get(FIELD, "")
    return one.subject, one.time, one.publisher, one.number, parent, crc32(one.content)


class NotedTimes:
    """When something happened to publications that have no position yet; the oldest give way."""

    def __init__(self) -> None:
        self._at: OrderedDict[Key, int] = OrderedDict()

    def note(self, publication: Publication, now: int) -> None:
        """Note the first time (ns) for a publication."""
        self._at.setdefault(key_of(publication), now)
        if len(self._at) > TRACED_OPEN_MAX:
            self._at.popitem(last=False)

    def take(self, publication: Publication) -> int | None:
        """Return the time (ns) of a publication and forget it; None if there is none."""
        return self._at.pop(key_of(publication), None)


class SpanNode:
    """A node, for the engine, that gives a span to `emit` for each part of what it does.

    `emit` must not block. At most so many publications a second are traced, whatever clients ask.
    """

    def __init__(self, node: Node, sampler: Sampler, emit: Callable[[TraceSpan], None]) -> None:
        self._node = node
        self._sampler = sampler
        self._emit = emit
        self._me = node.settings.me
        self._is_worker = node.settings.learner
        self._forwarded, self._appended, self._own = NotedTimes(), NotedTimes(), NotedTimes()
        self._fanned_out: list[tuple[Traced, int, int]] = []
        self._second, self._traced = 0, 0

    def step(self, input: Any, now: int) -> list[Output]:  # noqa: A002 - the design's word
        """Have the node take a step, and return its outputs as they are."""
        outputs = self._node.step(input, now)
        committed: list[Traced] = []
        standard: dict[int, list[Deliver]] = {}
        for output in outputs:
            if isinstance(output, Committed):
                committed += self._traced_of(output.entries, now)
            elif isinstance(output, SendPeer):
                # What goes to workers is committed already.
                if not self._is_worker and output.peers[0] not in self._node.outgoing.workers:
                    self._note_sent(output.message, now)
            elif isinstance(output, Deliver):
                entry = output.delivery.entry
                # What a timer hands out was conflated, and published in an earlier step.
                if entry.publication.qos is _STANDARD and not isinstance(input, TimerDue):
                    standard.setdefault(id(entry), []).append(output)
        if committed:
            self._note_committed(committed, outputs, now)
        for delivered in standard.values():
            self._standard(delivered, isinstance(input, PeerReceived | RecordsRead), now)
        return outputs

    def flushed(self, now: int) -> None:
        """End the spans of what was given to the sockets until `now` (ns)."""
        fanned_out, self._fanned_out = self._fanned_out, []
        for traced, start, sessions in fanned_out:
            span = traced.span("fan-out", start, now, "publish", self._me, sessions)
            self._emit(span)

    def _traced_of(self, entries: Iterable[Entry], now: int) -> list[Traced]:
        """Return the entries that are traced; old ones, which a log or a copy brings, are not."""
        found: list[Traced] = []
        oldest = now - TRACED_AGE_S * NS_PER_S
        for entry in entries:
            if entry.publication.time < oldest:
                continue
            parent = self._sampler.parent_of(entry.publication)
            if parent is not None and self._allowed(now):
                found.append(Traced(entry.publication, parent, entry.epoch, entry.seq))
        return found

    def _allowed(self, now: int) -> bool:
        second = now // NS_PER_S
        if second != self._second:
            self._second, self._traced = second, 0
        self._traced += 1
        return self._traced <= TRACED_PUBLICATIONS_PER_SECOND

    def _note_sent(self, message: object, now: int) -> None:
        if type(message) is Forward:
            for forward in message.items:
                for publication in forward.publications:
                    if self._sampler.parent_of(publication) is not None:
                        self._forwarded.note(publication, now)
        elif type(message) is Accept:
            for item in message.items:
                for at, entry in enumerate(item.entries, item.start):
                    if self._sampler.parent_of(entry.publication) is None:
                        continue
                    self._appended.note(entry.publication, now)
                    for run in item.runs:
                        mine = run.contact.partition("#")[0] == self._me
                        if mine and run.start <= at < run.start + run.count:
                            self._own.note(entry.publication, now)

    def _note_committed(
        self, committed: Sequence[Traced], outputs: Sequence[Output], now: int
    ) -> None:
        alone = not self._node.outgoing.linked
        for traced in () if self._is_worker else committed:
            one = traced.publication
            appended, forwarded = self._appended.take(one), self._forwarded.take(one)
            own = self._own.take(one) is not None or alone
            if own or forwarded is not None:
                self._emit(traced.span("publish", one.time, now, ""))
            if forwarded is not None:
                self._emit(traced.span("forward", forwarded, now, "publish"))
            if appended is not None or alone:
                start = one.time if appended is None else appended
                self._emit(traced.span("commit", start, now, "publish" if own else "forward"))
        # Sessions that subscribed by different patterns get deliveries of their own.
        sessions: dict[tuple[str, int, int], int] = {}
        for output in outputs:
            if isinstance(output, Deliver) and output.delivery.type is MessageType.UPDATE:
                entry = output.delivery.entry
                place = entry.publication.subject, entry.epoch, entry.seq
                sessions[place] = sessions.get(place, 0) + len(output.sessions)
        for traced in committed:
            count = sessions.get((traced.publication.subject, traced.epoch, traced.seq), 0)
            if count:
                self._fan_out(traced, count, now)

    def _standard(self, delivered: Sequence[Deliver], forwarded: bool, now: int) -> None:
        """Take a STANDARD publication, which no log holds: it is published and handed out."""
        publication = delivered[0].delivery.entry.publication
        if is_servers_own(publication.subject):
            return
        parent = self._sampler.parent_of(publication)
        if parent is None or not self._allowed(now):
            return
        traced = Traced(publication, parent)
        if not forwarded:
            self._emit(traced.span("publish", publication.time, now, ""))
        self._fan_out(traced, sum(len(output.sessions) for output in delivered), now)

    def _fan_out(self, traced: Traced, sessions: int, now: int) -> None:
        if len(self._fanned_out) >= TRACED_OPEN_MAX:
            self.flushed(now)
        self._fanned_out.append((traced, now, sessions))
