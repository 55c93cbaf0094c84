"""Is a history one that a correct cluster can produce? One class of violation a promise.

phantom          delivered or acknowledged, but never published, or surely refused
fork             two publications at one position, or one position's epoch told differently
duplicate        one publication at two positions of a history
order            a client's view of a subject went back
skip             a client's view left positions out without being told, by a snapshot too; or its
                 first message is not the first since its subscription was confirmed
lost             acknowledged, but a settled subscriber never came as far
real time        acknowledged before another was published, but placed after it
publisher order  one publisher's publications to a subject placed against their numbers
disclosed loss   a reset or a gap while a majority of seeds stayed normal, but for gaps of more
                 messages than caches keep

A client that was confirmed for a subject that had nothing to bring misses nothing from then on, in
that session and in those that follow. Members do not promise that of subjects of a pattern, of a
subscription that renews a live one, of an exact one in a session with a conflating pattern, nor
with Kafka as the backplane of a subject without a message; nor do members of the release before.
And a client that pauses drops what it is brought. Of none of them there is a `Confirmed`
(`Recorder.confirmed`). A subscription that conflates is confirmed, but a message of it stands for
those before it.
"""

from collections.abc import Container, Iterable, Mapping

from attrs import define, field, frozen

from simulation.history import (
    Acked,
    Confirmed,
    Delivered,
    Event,
    Gap,
    Published,
    Refused,
    Reset,
    Settled,
    Subscribed,
)

CLASSES = (
    "phantom",
    "fork",
    "duplicate",
    "order",
    "skip",
    "lost",
    "real time",
    "publisher order",
    "disclosed loss",
)

Place = tuple[str, str, int]  # history id, subject, seq


@frozen
class Violation:
    """One broken promise: its class, and a sentence with the particulars."""

    kind: str
    what: str


@define
class View:
    """One client's view of one subject."""

    history: str = ""
    epoch: int = 0
    seq: int = 0
    fresh: bool = True  # the next message may have any position
    missing: int = 0  # up to here messages are gone that were not promised, or told to be missing
    told: bool = False  # by a gap, and nothing has come since
    confirmed: Confirmed | None = None  # and no message has come since, nor word of a loss


@define
class Checker:
    """Reads events one by one; `violations` grows, `finish` says what only the end can tell."""

    majority_kept: bool = True
    cached: int | None = None  # messages kept a subject, if more than that are published
    restless: frozenset[str] = frozenset()  # clients that ask anew while messages are on their way
    expires: bool = False  # snapshots do, so none may follow on a gap
    gaps_exact: bool = False  # what follows a gap begins at its end at the latest
    violations: list[Violation] = field(factory=list)
    published: dict[str, Published] = field(factory=dict)
    refused: dict[str, None] = field(factory=dict)
    at_place: dict[Place, tuple[str, int]] = field(factory=dict)
    place_of: dict[tuple[str, str], Place] = field(factory=dict)  # (history id, publication)
    acked: dict[Place, Acked] = field(factory=dict)
    views: dict[tuple[str, str], View] = field(factory=dict)
    newest: dict[tuple[str, str], int] = field(factory=dict)  # (history id, subject) -> acked seq
    settled: list[Settled] = field(factory=list)
    delivered: int = 0
    steps: dict[tuple[str, str, str, int, int], None] = field(factory=dict)
    """Client, history id, subject, and two positions between which it was told that nothing is."""
    firsts: list[tuple[Confirmed, Delivered, int]] = field(factory=list)
    """Confirmed subscriptions, the first message that came of each, in whichever session, and up to
    where messages are missing of which the client was told before it was confirmed."""

    def _violate(self, kind: str, what: str) -> None:
        assert kind in CLASSES
        self.violations.append(Violation(kind, what))

    def see(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Published():
                self.published[event.publication] = event
            case Acked():
                self._acked(event)
            case Refused():
                if event.certain:
                    self.refused[event.publication] = None
            case Subscribed():
                self.views[event.client, event.subject] = View(missing=event.gone)
            case Confirmed():
                self._confirmed(event)
            case Delivered():
                self._delivered(event)
            case Gap():
                self._told(event, "a gap")
            case Reset():
                self._told(event, "a reset")
            case Settled():
                self.settled.append(event)

    def _place(self, event: Acked | Delivered) -> None:
        """A position and a publication belong together, once and for all."""
        known = self.published.get(event.publication)
        if known is None or known.subject != event.subject:
            self._violate("phantom", f"{event.publication} on {event.subject} was never published")
        if event.publication in self.refused:
            self._violate("phantom", f"{event.publication} was surely refused, and yet taken")
        place = (event.history, event.subject, event.seq)
        mine = (event.publication, event.epoch)
        other = self.at_place.setdefault(place, mine)
        if other != mine:
            self._violate("fork", f"{place} is {other} and {mine}")
        first = self.place_of.setdefault((event.history, event.publication), place)
        if first != place and (known is None or known.once):
            self._violate("duplicate", f"{event.publication} stands at {first} and {place}")

    def _acked(self, event: Acked) -> None:
        if event.epoch == 0:
            return
        self._place(event)
        self.acked.setdefault((event.history, event.subject, event.seq), event)
        numbered = (event.history, event.subject)
        self.newest[numbered] = max(event.seq, self.newest.get(numbered, 0))

    def _confirmed(self, event: Confirmed) -> None:
        """A client without a message of the subject waits for the first one.

        It may be confirmed again in later sessions: what counts is the first time.
        """
        view = self.views.setdefault((event.client, event.subject), View())
        if view.fresh and view.confirmed is None:
            view.confirmed = event

    def _delivered(self, event: Delivered) -> None:
        self.delivered += 1
        if not event.snapshot:
            self._place(event)
        view = self.views.setdefault((event.client, event.subject), View())
        named = f"{event.client} on {event.subject}"
        known = max(view.seq, view.missing)
        if self.gaps_exact and view.told and event.seq > known + 1:
            self._violate("skip", f"{named}: {event.seq}, told of a gap up to {view.missing}")
        if not view.fresh:
            if event.history != view.history:
                self._violate("order", f"{named}: history {event.history} without a reset")
            elif (event.epoch, event.seq) < (view.epoch, view.seq) or event.seq < view.seq:
                self._violate(
                    "order", f"{named}: {event.epoch}/{event.seq} after {view.epoch}/{view.seq}"
                )
            elif event.anew and event.seq > known + 1:
                step = (event.client, event.history, event.subject, known, event.seq)
                self.steps[step] = None
            elif (
                event.seq > known + 1
                and not event.conflated
                # One that asks anew before its first answer came has two, a snapshot each.
                and not (event.snapshot and event.client in self.restless)
            ):
                how = "a snapshot at " if event.snapshot else ""
                self._violate("skip", f"{named}: {how}{event.seq} after {view.seq}")
            elif not event.snapshot and event.seq == view.seq:
                self._violate("duplicate", f"{named}: {event.epoch}/{event.seq} came twice")
        # A message of a conflating subscription stands for those before it, for the first ones too.
        if view.confirmed is not None and not event.conflated:
            self.firsts.append((view.confirmed, event, view.missing))
        view.history, view.epoch, view.seq = event.history, event.epoch, event.seq
        view.fresh = view.told = False
        view.confirmed = None

    def _told(self, event: Gap | Reset, what: str) -> None:
        view = self.views.setdefault((event.client, event.subject), View())
        if self.majority_kept and not self._evicted(view, event):
            self._violate("disclosed loss", f"{event.client} was told of {what} on {event.subject}")
        view.fresh, view.confirmed = True, None
        # The snapshot that follows may be older than the end of what is missing: the member never
        # had that itself, and it stays missing behind the snapshot.
        view.told = isinstance(event, Gap) and event.seq > 0
        view.missing = max(view.missing, event.seq) if isinstance(event, Gap) and event.seq else 0
        if isinstance(event, Gap) and not event.seq:
            view.history = ""  # a reset, under whose history nothing has come yet

    def _evicted(self, view: View, event: Gap | Reset) -> bool:
        """Return whether caches cannot hold what the client has missed any more."""
        if self.cached is None or isinstance(event, Reset):
            return False
        if view.confirmed is not None and view.confirmed.history:
            return event.seq - view.confirmed.seq > self.cached
        if view.fresh or event.client in self.restless:
            return True  # it asked from an earlier position than it has by now
        return event.seq - view.seq > self.cached

    def behind(
        self,
        client: str,
        current: str,
        positions: Mapping[str, tuple[str, int, int]],
        subjects: Iterable[str],
        unknown: Container[str] = (),
    ) -> str | None:
        """What was acknowledged and has not come to a client yet; None if everything has.

        `current` is the history id under which the client is numbered now, `unknown` are the
        subjects that no member has a number of.
        """
        if self.expires:
            # What comes depends on what was forgotten: a run goes on until nothing seems lost.
            acked = self._newest_acked()
            unseen = (self._unseen(client, subject, acked) for subject in subjects)
            return next((lost for lost in unseen if lost is not None), None)
        for subject in subjects:
            history, _, seq = positions.get(subject, ("", 0, 0))
            if history != current and subject in unknown:
                history = ""  # nothing of this id comes; else a snapshot does
            if not history and not self.majority_kept:
                continue  # what was acknowledged may be gone with its history
            newest = max(
                (
                    newest
                    for (numbered, about), newest in self.newest.items()
                    if about == subject and history in ("", numbered)
                ),
                default=0,
            )
            if seq < newest:
                return f"{client} is at {seq} of {newest} of {subject}"
        return None

    def finish(self) -> list[Violation]:
        """The violations, with those that only the whole history shows."""
        self._lost()
        for client, history, subject, before, behind in self.steps:
            for numbered, about, seq in self.at_place:
                if (numbered, about) == (history, subject) and before < seq < behind:
                    self._violate("skip", f"{client} on {subject}: {behind} after {before}")
        for confirmed, first, missing in self.firsts:
            self._passed_over(confirmed, first, missing)
        by_subject: dict[tuple[str, str], list[Acked]] = {}
        for acked in self.acked.values():
            by_subject.setdefault((acked.history, acked.subject), []).append(acked)
        for alike in by_subject.values():
            alike.sort(key=lambda a: a.seq)
            self._real_time(alike)
            self._publisher_order(alike)
        return self.violations

    def _passed_over(self, confirmed: Confirmed, first: Delivered, missing: int) -> None:
        """What is between a confirmation and the first message had to come, or word of its loss.

        That is what was published after the confirmation, and what stands behind the position that
        the client was told with it.
        """
        for (history, subject, seq), (publication, _) in self.at_place.items():
            if (history, subject) != (first.history, first.subject):
                continue
            if not missing < seq < first.seq:
                continue
            known = self.published.get(publication)
            later = known is not None and known.at > confirmed.at
            if later or (history == confirmed.history and seq > confirmed.seq):
                self._violate(
                    "skip",
                    f"{first.client} on {subject}: {first.seq} came first after it was confirmed, "
                    f"and {publication} at {seq} did not come",
                )

    def _lost(self) -> None:
        newest = self._newest_acked()
        for settled in self.settled:
            lost = self._unseen(settled.client, settled.subject, newest)
            if lost is not None:
                self._violate("lost", lost)

    def _newest_acked(self) -> dict[tuple[str, str], Acked]:
        """Return what was acknowledged last, by history and subject."""
        return {
            numbered: self.acked[(*numbered, seq)] for numbered, seq in self.newest.items() if seq
        }

    def _unseen(
        self, client: str, subject: str, newest: Mapping[tuple[str, str], Acked]
    ) -> str | None:
        """Return what a client had to see of a subject and has not seen; None if there is none."""
        view = self.views.get((client, subject), View())
        last = newest.get((view.history, subject))
        if view.fresh and self.majority_kept:
            last = next((a for (_, about), a in newest.items() if about == subject), None)
        covered = 0 if view.fresh else view.seq
        if self.expires:
            covered = max(covered, view.missing)
            if not view.seq and not view.missing:
                return None  # it had no position to come back with
        if last is None or covered >= last.seq:
            return None
        return (
            f"{client} ended at {view.seq} of {subject}, {last.publication} at {last.seq} was acked"
        )

    def _real_time(self, alike: list[Acked]) -> None:
        """Going back from the end: nothing before was published after something behind was acked.

        Equal times are concurrent.
        """
        soonest: Acked | None = None
        for acked in reversed(alike):
            known = self.published.get(acked.publication)
            if known is not None and soonest is not None and soonest.at < known.at:
                self._violate(
                    "real time",
                    f"{soonest.publication} was acked before {acked.publication} was published, "
                    "but stands behind it",
                )
            if soonest is None or acked.at < soonest.at:
                soonest = acked

    def _publisher_order(self, alike: list[Acked]) -> None:
        last: dict[str, int] = {}
        for acked in alike:
            known = self.published.get(acked.publication)
            if known is None or not known.number or not known.once:
                continue
            before = last.get(known.publisher, 0)
            if known.number < before:
                self._violate(
                    "publisher order",
                    f"number {known.number} of {known.publisher} "
                    f"stands behind {before} on {known.subject}",
                )
            last[known.publisher] = known.number


def check(events: Iterable[Event], *, majority_kept: bool = True) -> list[Violation]:
    """The violations of a whole history."""
    checker = Checker(majority_kept)
    for event in events:
        checker.see(event)
    return checker.finish()
