"""One member's copy of what the logs of the subject groups say, and its delivery to clients.

A replica applies the committed entries of each group to the cache, in the order of the group's log,
and delivers each entry to its subscribers. The invariant is that a client's view of a subject is a
contiguous run of committed entries under one history id, and never goes back (I7), or that the
client is told otherwise. Three events break the plain order:

- An entry comes a second time, for instance in an image after it came alone. It is skipped, because
  its sequence number is known already (`committed_in`).
- A group starts over under another history id (`reset`), or what is cached of it goes on under
  another one (`rename`). Subscribers receive a reset, and in the second case the snapshots.
- A member that was away takes over the image of a group in place of the entries that it missed
  (`import_group`). Subscribers receive the entries that the image still has, otherwise the range of
  the missing ones and the snapshot.
"""

from collections.abc import Iterable, Mapping, Sequence

from mdserver.core.audit import dropped_log
from mdserver.core.backfill import Backfill
from mdserver.core.cache import Cache, SubjectState
from mdserver.core.catch_up import CatchUp
from mdserver.core.conflation import Conflation
from mdserver.core.events import Delivery
from mdserver.core.histories import Histories
from mdserver.core.images import GroupImage, placed
from mdserver.core.interest import Audience, Interest
from mdserver.core.marks import Marks
from mdserver.core.message import Entry, GroupFloor, MessageType, Position
from mdserver.core.outputs import Deliver, Output, SetTimer
from mdserver.core.recovery import Lost
from mdserver.core.session import Session, SessionState
from mdserver.core.settings import BrokerSettings
from mdserver.limits import EXPIRE_PAUSE_MS, NS_PER_MS, NS_PER_S

ANY_SUBJECT = "/**"

_UPDATE = MessageType.UPDATE
NOTHING_BEFORE = Position(0, 0)
EXPIRE_TIMER = ("broker", "expire")
EXPIRE_STEP = NS_PER_S
"""The cache is looked through for old messages at most this often, in ns."""


class Replica:
    """One member's copy of the groups' logs; `sessions` are all sessions, by number."""

    def __init__(
        self,
        settings: BrokerSettings,
        sessions: Mapping[int, Session],
        cache: Cache,
        interest: Interest,
        conflation: Conflation,
        histories: Histories,
        backfill: Backfill,
        catch_up: CatchUp,
        marks: Marks,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._cache = cache
        self._interest = interest
        self._conflation = conflation
        self._histories = histories
        self._backfill = backfill
        self._catch_up = catch_up
        self._marks = marks
        self._expiring = False
        """Whether the timer is set after which messages that are too old are dropped."""
        self._emptied: dict[int, int] = {}
        """Groups that were reset (ns), of which no image was taken over since."""
        self._shortest_age = min(
            settings.cache_expire, settings.snapshot_expire or settings.cache_expire
        )

    def committed(
        self,
        group: int,
        entries: Sequence[Entry],
        now: int,
        out: list[Output],
        *,
        ordered: bool = True,
    ) -> None:
        """Apply entries of one group in log order and deliver them; see `committed_in`."""
        self.committed_in(((group, entries),), now, out, ordered=ordered)

    def committed_in(
        self,
        groups: Sequence[tuple[int, Sequence[Entry]]],
        now: int,
        out: list[Output],
        *,
        ordered: bool = True,
    ) -> None:
        """Apply entries of groups, those of each group in log order, and deliver them.

        STANDARD entries have seq 0; they are delivered and not cached. Entries that are known
        already are skipped, so an entry may safely come twice. `ordered` says that with the last
        entry of a group this member has all entries of the log up to its place; otherwise the place
        that was reached does not change.
        """
        cache, catch_up, audience_of = self._cache, self._catch_up, self._interest.audience
        for group, entries in groups:
            place = 0
            for entry in entries:
                seq, subject = entry.seq, entry.publication.subject
                if not seq:
                    self._deliver(entry, None, audience_of(subject), now, out)
                    continue
                state = cache.state(subject, now)
                known = state.seq
                if seq <= known:
                    continue
                # If the numbering has a gap here, the delivery names the position before it, so
                # that clients do not take the gap for a loss.
                prev = None if seq == known + 1 else self._before(group, state)
                cache.apply(state, entry, now)
                audience = audience_of(subject)
                if audience.conflated:
                    self._deliver(entry, prev, audience, now, out)
                else:  # inlined, because this is the path of nearly every entry
                    for match, sessions in audience.direct:
                        out.append(Deliver(Delivery(entry, _UPDATE, match, prev), sessions))
                if catch_up.awaited:
                    self._release(group, state, entry, now, out, ordered=ordered)
                place = entry.place
            if place and ordered:
                catch_up.reach(group, place, now, out)
        if not self._expiring and any(entries for _, entries in groups):
            self._expiring = True
            out.append(SetTimer(EXPIRE_TIMER, now + max(self._shortest_age, EXPIRE_STEP)))

    def _before(self, group: int, state: SubjectState) -> Position | None:
        """Return the position before the next message of a subject; None if it is not known.

        A subject that this member does not know begins above the floor of its group. It may have
        been forgotten, so nobody knows its last number, but nothing of it lies in between.
        """
        if state.seq:
            return Position(state.epoch, state.seq)
        return NOTHING_BEFORE if self._cache.floors[group].seq else None

    def _release(
        self,
        group: int,
        state: SubjectState,
        entry: Entry,
        now: int,
        out: list[Output],
        *,
        ordered: bool,
    ) -> None:
        """Resume the sessions that waited until this member has the latest entry of a subject."""
        released = self._catch_up.applied(state, now, out)
        if ordered:
            # A mark that is sent now must name the place of this entry and no later one: the rest
            # of the entries has not been delivered yet.
            self._catch_up.reach(group, entry.place, now, out)
            self._marks.settle(released, out)

    def _deliver(
        self, entry: Entry, prev: Position | None, to: Audience, now: int, out: list[Output]
    ) -> None:
        """Deliver an entry at once, or through conflation, to each session of its audience.

        All sessions that match by the same text share one `Delivery`, so that it is encoded once.
        """
        shared: dict[str | None, Delivery] = {}
        for match, sessions in to.direct:
            delivery = Delivery(entry, _UPDATE, match, prev)
            out.append(Deliver(delivery, sessions))
            if to.conflated:
                shared[match] = delivery
        for subscription in to.conflated:
            match = subscription.match
            if match not in shared:
                shared[match] = Delivery(entry, _UPDATE, match, prev)
            self._conflation.add(subscription, shared[match], now, out)

    def reset(
        self,
        history: str,
        groups: Sequence[int] | None,
        now: int,
        out: list[Output],
    ) -> None:
        """Start these groups over under another history id: drop their cache, reset subscribers.

        With `groups` None all groups start over.
        """
        affected = range(self._settings.groups) if groups is None else groups
        for group in affected:
            self._cache.drop_group(group)
            self._catch_up.reached[group] = 0
            self._emptied[group] = now
        self._begin_history(history, affected, now, out)
        self._marks.settle(None, out)

    def rename(self, history: str, groups: Sequence[int], now: int, out: list[Output]) -> None:
        """Give these groups a new history id, which begins with what is cached here.

        Clients drop the positions that they know in these groups, and receive the snapshots.
        """
        self._begin_history(history, groups, now, out)
        affected = dict.fromkeys(groups)
        matching: dict[str, list[str]] = {}
        self._interest.changed()
        for session in self._sessions.values():
            if session.state is not SessionState.CONNECTED:
                continue
            held = session.subscriptions.values()
            for subscription in sorted(held, key=lambda one: one.exactness, reverse=True):
                subject = subscription.subject
                if subject not in matching:
                    pattern = subscription.pattern
                    found = (
                        [subject]
                        if pattern is None
                        else [one for one in self._cache.search(pattern) if one is not None]
                    )
                    matching[subject] = [s for s in found if self._histories.group(s) in affected]
                if matching[subject]:
                    self._catch_up.restart(subscription, matching[subject], now, out)
        self._marks.settle(None, out)

    def _begin_history(
        self, history: str, groups: Iterable[int], now: int, out: list[Output]
    ) -> None:
        """Give these groups a history id, and send resets.

        A reset names the subscriptions that start over. A session without subscriptions is told
        as well when the id changes that new sessions are given: the positions of its publications
        are under that id from now on. `ANY_SUBJECT` then stands for the subjects of which its
        client may know positions from before.
        """
        # The messages that conflation holds have positions of the old history, so they have to be
        # sent before the resets.
        self._conflation.flush(out)
        affected = dict.fromkeys(groups)
        before = self._histories.current
        self._histories.begin(history, tuple(affected))
        renamed = self._histories.current != before
        for session in self._sessions.values():
            if session.state is SessionState.CONNECTED:
                subjects = [
                    subject
                    for subject, subscription in session.subscriptions.items()
                    if subscription.pattern is not None
                    or self._histories.group(subject) in affected
                ]
                if renamed and not session.subscriptions:
                    subjects.append(ANY_SUBJECT)
                self._catch_up.reset(session, subjects, affected, out)
        self._marks.began_anew()
        self._catch_up.compare_again(now, out)

    def export_group(self, group: int) -> GroupImage:
        """Return everything that this member holds of a group, for a member that joins."""
        floor = self._cache.floors[group]
        return GroupImage(self._histories.of_group(group), self._cache.image(group), floor)

    def reached(self, group: int, place: int, now: int, out: list[Output]) -> None:
        """Note that this member has every entry of a group's log up to this place."""
        self._catch_up.reach(group, place, now, out)

    def import_group(
        self, group: int, state: GroupImage, length: int, now: int, out: list[Output]
    ) -> None:
        """Take over what another member holds of a group, after `length` entries of its log.

        Subscribers that are connected already receive the entries that this member missed. If the
        image no longer has all of them, they receive the missing range and the snapshot. After a
        reset those receive the snapshot alone to whom the reset has announced the loss.
        """
        # The image is ordered by subject and not by place, so places mean nothing until the end.
        self._marks.unsettle(out)
        renamed = state.history != self._histories.of_group(group)
        if renamed:
            self.reset(state.history, (group,), now, out)
        # Once an entry was applied after the reset, subscribers have positions of the new history
        # again, so a loss has to be announced as a range.
        anew = group in self._emptied and not self._catch_up.reached[group]
        emptied = self._emptied.pop(group, 0)
        floor, self._cache.floors[group] = self._cache.floors[group], state.floor
        if state.floor != floor:
            # After an earlier reset, sessions may have come that were not told by it.
            self._forget_absent(group, state, floor, out, announced=renamed)
        for subject in state.subjects:
            image = placed(subject, length)
            known = self._cache.find(image.subject)
            # What is not known here has had no message beyond the floor that was known here.
            after = floor.position
            if known is not None and known.seq:
                after = Position(known.epoch, known.seq)
            if after.seq >= image.seq:
                continue
            if after.seq >= image.floor and not anew:
                self.committed(group, image.entries, now, out, ordered=False)
                continue
            state_now = self._cache.restore(image, now)
            if anew:
                self._begin_anew(state_now, after, emptied, now, out)
            else:
                first = Position(after.epoch or image.epoch, after.seq + 1)
                lost = Lost(first, Position(image.epoch, image.seq))
                self._backfill.taken_over(state_now, lost, now, out)
            self._catch_up.applied(state_now, now, out)
        self._catch_up.floor_rose(group, now, out)
        self.reached(group, length, now, out)
        self._marks.settle(None, out)

    def _begin_anew(
        self, state: SubjectState, after: Position, emptied: int, now: int, out: list[Output]
    ) -> None:
        """Send the subscribers of a subject what was taken over after a reset.

        The reset told those that were there by then. The others, which came since, were confirmed
        for a subject that stood at `after` here, and miss nothing of what the image still has.
        """
        for session, match in self._interest.audience(state.subject).all():
            subscription = self._sessions[session].subscriptions[match or state.subject]
            if subscription.start > emptied:
                self._backfill.send_after(subscription, state.subject, after, now, out)
            else:
                self._backfill.send_latest(subscription, state.subject, 0, now, out)

    def _forget_absent(
        self,
        group: int,
        image: GroupImage,
        before: GroupFloor,
        out: list[Output],
        *,
        announced: bool,
    ) -> None:
        """Forget the subjects that an image does not have: they were forgotten before it was made.

        If they may have had messages that this member missed, their subscribers are told: what
        that was is gone, and so is how much. `before` is the floor that was known here; with
        `announced` a reset in this step has told them.
        """
        # Members of earlier versions send subjects that are only reserved, with seq 0.
        there = {subject.subject for subject in image.subjects if subject.seq}
        last = image.floor.position
        missed = not announced and image.floor.place > self._catch_up.reached[group]
        known: dict[str, Position] = {}
        for state in self._cache.group(group):
            if 0 < state.seq <= last.seq and state.subject not in there:
                known[state.subject] = Position(state.epoch, state.seq)
                self._cache.forget(state.subject)
        if missed:
            held = [
                subscription
                for session in self._sessions.values()
                if session.state is SessionState.CONNECTED
                for subscription in session.subscriptions.values()
                if subscription.pattern is not None
                or (
                    subscription.subject not in there
                    and self._histories.group(subscription.subject) == group
                )
            ]
            self._backfill.lost_unknown(held, known, before.position, last, out)

    def forget_subjects(
        self, group: int, subjects: Sequence[str], floor: GroupFloor, now: int, out: list[Output]
    ) -> None:
        """Forget subjects of a group, whose floor is this from now on.

        Their subscribers have everything, so they hear nothing of it.
        """
        self._cache.floors[group] = floor
        for subject in subjects:
            self._cache.forget(subject)
            self._interest.forget(subject)
        self._marks.settle(self._catch_up.floor_rose(group, now, out), out)

    def forgot(self, group: int) -> bool:
        """Return whether subjects of a group were forgotten, by a committed entry of its log."""
        return self._cache.floors[group].seq > 0

    def unused(self, subject: str, seq: int, place: int, now: int) -> bool:
        """Return whether nothing of a subject is cached; see `Cache.unused`."""
        return self._cache.unused(subject, seq, place, now)

    # Logs that drop messages by themselves, before all members have read them

    def subjects(self) -> list[str]:
        """Return all subjects of which something is known."""
        return self._cache.names()

    def note_absent(self, subject: str, at: Position, floor: int, now: int) -> None:
        """Note that the log has nothing of an unknown subject from `floor` to a position.

        So a client that comes with this position does not wait for this member to reach it. What is
        known of a subject stays as it is: a client's word must not change it. The caller bounds how
        many subjects are known by such words alone, and has the others forgotten (`forget_absent`).
        """
        known = self._cache.find(subject)
        if known is None or known.seq == 0:
            self._cache.advance(subject, at, floor, now)
        elif known.seq == at.seq and not known.entries and known.snapshot is None:
            known.epoch = at.epoch  # the log says no more of it, so one word is as good as another

    def missed(self, subject: str, at: Position, now: int, out: list[Output]) -> None:
        """Tell the subscribers of a subject that they may have missed messages up to a position."""
        known = self._cache.find(subject)
        if known is None or known.seq == 0 or known.seq >= at.seq:
            return
        lost = Lost(Position(known.epoch, known.seq + 1), at)
        state = self._cache.advance(subject, at, at.seq, now)
        assert state is not None
        self._backfill.taken_over(state, lost, now, out)
        self._catch_up.applied(state, now, out)

    def forget_absent(self, subject: str) -> None:
        """Forget a subject of which no message or snapshot is cached."""
        self._cache.forget_absent(subject)

    def forget_subject(self, subject: str) -> None:
        """Forget everything about a subject that will not be published any more."""
        self._cache.forget(subject)

    def forget_idle(self, look_at: int) -> list[tuple[str, Position]]:
        """Forget subjects without messages and snapshot; return them with their positions."""
        return self._cache.forget_idle(look_at)

    def forget_oldest(self, most: int) -> list[tuple[str, Position]]:
        """Forget the subjects beyond `most`, and return their positions."""
        return self._cache.forget_oldest(most)

    def forget_snapshot(self, subject: str) -> None:
        """Drop the snapshot of a subject: its publisher deleted it."""
        self._cache.forget_snapshot(subject)

    def expire(self, now: int, out: list[Output]) -> None:
        """Drop messages and snapshots that are too old, and set the timer for the next ones."""
        reserved, following = self._cache.drop_reserved(now), self._cache.expire(now)
        if self._settings.audit_cache:
            self._log_dropped(now, out)
        if reserved is not None:
            following = reserved if following is None else min(reserved, following)
        self._expiring = following is not None
        if following is not None:
            # Messages and snapshots may be kept for different times, so a message that comes later
            # may expire before everything that is cached now.
            following = min(following, now + self._shortest_age)
            pause = EXPIRE_STEP if following > now else EXPIRE_PAUSE_MS * NS_PER_MS
            out.append(SetTimer(EXPIRE_TIMER, max(following, now + pause)))

    def _log_dropped(self, now: int, out: list[Output]) -> None:
        for name, dropped in (("expire", self._cache.expired), ("evict", self._cache.evicted)):
            messages, size = dropped.taken()
            if messages:
                out.append(dropped_log(name, messages, size, now))
