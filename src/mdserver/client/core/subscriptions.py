"""The subscriptions a client wants, and the commands that establish them on each connection.

A session starts without subscriptions, so after each reconnect all of them are sent again, each
with the positions from which to recover (docs/protocol.md, "What answers what"). Three rules make
this more than a list of subjects:

- A command is bounded in size (`CLIENT_COMMAND_BYTES_MAX`). If the positions of the subjects under
  a pattern do not fit into one command, these subjects are recovered one by one: each is subscribed
  on its own beside the pattern (`lone`), until its missed messages are here. Then this single
  subscription ends and the pattern brings the subject.
- A subject may be held, for lack of room in the application. It stays wanted, but is not subscribed
  again until it is released.
- A subscription may be replayed: a second subscriber joins, and wants the snapshot or history also
  of subjects that were seen already.
"""

from collections.abc import Iterable, Iterator

from attrs import frozen

from mdserver.client.core.positions import Positions
from mdserver.core.commands import PositionAfter, Subscribe
from mdserver.core.events import MessageEvent
from mdserver.core.subjects import Pattern, parse_interest, segments_of
from mdserver.limits import CLIENT_COMMAND_BYTES_MAX, SUBJECTS_PER_COMMAND_MAX

_POSITION_BYTES = 80  # roughly what a position takes in JSON besides its subject and history id


@frozen
class Options:
    """The options of one subscribed subject or pattern.

    `history`: the number of messages that come first. `conflation_ms`: the conflation window.
    """

    history: int = 0
    conflation_ms: int = 0


class DesiredSubscriptions:
    """Subjects and patterns with their options, in the order of subscription.

    `lone` holds the subjects that are recovered one by one now. `_replay_later` holds those of them
    whose replay waits for that recovery, `_replaying` those whose replay was requested after it.
    """

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._wanted: dict[str, Options] = {}
        self._patterns: dict[str, Pattern] = {}
        self._held: dict[str, None] = {}
        self._replay_later: dict[str, Options] = {}
        self._replaying: dict[str, None] = {}
        self.lone: dict[str, None] = {}

    def __contains__(self, subject: str) -> bool:
        return subject in self._wanted

    def __iter__(self) -> Iterator[str]:
        return iter(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, subjects: Iterable[str], options: Options, *, replay: bool = False) -> None:
        """Subscribe, or change the options.

        `replay`: accept what the subscription brings first also if it was seen already. Raises
        InvalidSubjectError before anything is changed.
        """
        # The minimum number of segments is a setting of the server, which refuses what is shorter.
        parsed = {subject: parse_interest(subject, segments_min=1) for subject in subjects}
        for subject, pattern in parsed.items():
            self._wanted[subject] = options
            self.lone.pop(subject, None)
            if pattern is not None:
                self._patterns[subject] = pattern
            if replay and pattern is not None:
                self._positions.replay_pattern(subject, pattern)
            elif replay or (options.history and self._positions.get(subject) is not None):
                self._positions.replay(subject)

    def remove(self, subjects: Iterable[str]) -> list[str]:
        """End subscriptions and forget their positions; return those that existed.

        A position is kept while another subscription still covers its subject.
        """
        removed = [subject for subject in subjects if self._wanted.pop(subject, None)]
        for gone in removed:
            self._held.pop(gone, None)
            seen = [gone]
            pattern = self._patterns.pop(gone, None)
            if pattern is not None:
                self._positions.forget(gone)
                seen = [s for s in self._positions if pattern.matches(segments_of(s))]
            for subject in seen:
                if not self.covers(subject):
                    self._positions.forget(subject)
        return removed

    def ending(self, subjects: Iterable[str]) -> list[str]:
        """Return what to unsubscribe for these subjects.

        With a pattern, the subjects that are recovered one by one under it end as well.
        """
        ending = list(subjects)
        for subject in ending if self.lone else ():
            pattern = parse_interest(subject, segments_min=1)
            if pattern is not None:
                lone = [s for s in self.lone if pattern.matches(segments_of(s))]
                for one in lone:
                    del self.lone[one]
                ending = [*ending, *lone]
        return ending

    def covers(self, subject: str) -> bool:
        """Return whether messages of this subject are wanted."""
        return any(True for _ in self.covering(subject))

    def covering(self, name: str) -> Iterator[str]:
        """Yield the subscriptions that cover a subject; of a pattern only its own."""
        if name in self._wanted:
            yield name
        if self._patterns and name not in self._patterns:
            segments = segments_of(name)
            for text, pattern in self._patterns.items():
                if pattern.matches(segments):
                    yield text

    def is_taken(self, name: str) -> bool:
        """Return whether this is subscribed, and not held."""
        return name in self._wanted and name not in self._held

    def hold(self, subjects: Iterable[str]) -> list[str]:
        """Hold these subscriptions; return those that were not held before."""
        held = [s for s in subjects if s in self._wanted and s not in self._held]
        self._held.update(dict.fromkeys(held))
        return held

    def release(self, subjects: Iterable[str]) -> list[str]:
        """Release held subscriptions; return those that were held."""
        return [s for s in subjects if self._held.pop(s, s) is None]

    def takes(self, event: MessageEvent) -> bool:
        """Return whether a message is wanted now.

        Messages still arrive for a moment after an unsubscription. A message that is not taken
        leaves no position, so that it is recovered later.
        """
        subject, match = event.subject, event.match or event.subject
        if self._held and (subject in self._held or match in self._held):
            return False
        return match in self._wanted or self.covers(subject)

    def connected(self) -> None:
        """Start a session, which has no subscriptions yet."""
        self.lone = {}
        self._replay_later = {}
        self._replaying = {}

    def replays(self, subject: str) -> list[Subscribe]:
        """Return the commands that replay a subject whose single recovery has just ended.

        A subscription that joined meanwhile wants the snapshot or history. It had to wait, because
        an answer to the first command would have been mistaken for the answer to the second.
        """
        options = self._replay_later.pop(subject, None)
        if options is None or subject not in self.lone:
            self._replaying.pop(subject, None)
            return []
        self._replaying[subject] = None
        return list(self.first_commands([subject], options, replay=True))

    def replay_awaited(self, subject: str) -> bool:
        """Return whether the status that begins a replay of this subject has yet to come."""
        return subject in self._replay_later or subject in self._replaying

    def recovered(self, subject: str) -> bool:
        """End the single recovery of a subject; return whether there was one.

        All that was missed comes together with the first event about the subject, so nothing is
        lost when the single subscription ends after that event.
        """
        return self.lone.pop(subject, subject) is None

    def commands(self, subjects: Iterable[str], *, replay: bool = False) -> Iterator[Subscribe]:
        """Yield the commands that subscribe to these again, with the positions to recover from.

        `replay`: subscribe also to what is held, and ask for the snapshot or history besides what
        was missed.

        The positions are needed even if nothing seems to be missed: until the server has worked off
        the command, it keeps live messages back as a part of what the command brings.
        """
        held = {} if replay else self._held
        exact: dict[Options, list[str]] = {}
        patterns: list[str] = []
        for subject in subjects:
            if subject in self._patterns:
                patterns.append(subject)
            else:
                exact.setdefault(self._wanted[subject], []).append(subject)
        for options, chunk in exact.items():
            taken = [subject for subject in chunk if subject not in held]
            yield from self.first_commands(taken, options, replay=replay)
        owners = self._owners(patterns)
        for pattern in patterns:
            if pattern not in held:
                yield from self._pattern_commands(pattern, owners[pattern], replay=replay)

    def first_commands(
        self,
        subjects: Iterable[str],
        options: Options,
        *,
        anew: bool = False,
        replay: bool = False,
    ) -> Iterator[Subscribe]:
        """Yield subscribe commands of a bounded size, with the positions that are known.

        `anew`: leave out the positions of subjects that are replayed, so that all they have comes
        again.
        """
        chunk: list[str] = []
        positions: dict[str, PositionAfter] = {}
        size = 0
        for subject in subjects:
            seen = self._positions.get(subject)
            if anew and subject in self._positions.replayed:
                seen = None
            # A subject of one segment gets a command of its own: some servers refuse it, and the
            # error names only the command.
            if subject.count("/") == 1:
                known = {subject: seen} if seen is not None else {}
                yield _subscribe([subject], options, known, replay=replay)
                continue
            cost = _cost(subject, seen)
            if chunk and (
                size + cost > CLIENT_COMMAND_BYTES_MAX or len(chunk) >= SUBJECTS_PER_COMMAND_MAX
            ):
                yield _subscribe(chunk, options, positions, replay=replay)
                chunk, positions, size = [], {}, 0
            chunk.append(subject)
            size += cost
            if seen is not None:
                positions[subject] = seen
        if chunk:
            yield _subscribe(chunk, options, positions, replay=replay)

    def _owners(self, patterns: list[str]) -> dict[str, list[str]]:
        """Return, for each pattern, the seen subjects that it has to recover.

        A subject that is subscribed itself is recovered by its own command.
        """
        owners: dict[str, list[str]] = {pattern: [] for pattern in patterns}
        if not owners:
            return owners
        for subject in self._positions:
            if subject not in self._wanted:
                segments = segments_of(subject)
                for pattern in patterns:
                    if self._patterns[pattern].matches(segments):
                        owners[pattern].append(subject)
        return owners

    def _pattern_commands(
        self, pattern: str, seen: list[str], *, replay: bool
    ) -> Iterator[Subscribe]:
        """Yield the commands for a pattern, with positions of the subjects that it matched so far.

        A position under the pattern itself counts for all others. If these are too many for one
        command, the subjects are recovered one by one (`lone`). The pattern comes last, because it
        would bring all subjects that are not subscribed by then. A subject whose single recovery is
        under way is left alone, because an answer on its way would be mistaken for the answer to a
        second command; its replay is requested after that answer (`replays`).
        """
        options = self._wanted[pattern]
        if replay and self.lone:
            again = [subject for subject in seen if subject in self.lone]
            self._replay_later.update(dict.fromkeys(again, options))
        seen = [subject for subject in seen if subject not in self.lone]
        own = self._positions.get(pattern)
        under = {} if own is None else {pattern: own}
        positions = {subject: p for subject in seen if (p := self._positions.get(subject))} | under
        size = sum(_cost(subject, position) for subject, position in positions.items())
        if size <= CLIENT_COMMAND_BYTES_MAX:
            yield _subscribe([pattern], options, positions, replay=replay)
            return
        self.lone.update(dict.fromkeys(seen))
        alone = options if replay else Options(conflation_ms=options.conflation_ms)
        yield from self.first_commands(seen, alone, replay=replay)
        yield _subscribe([pattern], options, under, replay=replay)


def _cost(subject: str, position: PositionAfter | None) -> int:
    """Return about how many bytes a subject takes in a command."""
    size = len(subject.encode()) + 4
    if position is not None:
        size += size + len(position.history) + _POSITION_BYTES
    return size


def _subscribe(
    subjects: list[str],
    options: Options,
    positions: dict[str, PositionAfter],
    *,
    replay: bool = False,
) -> Subscribe:
    return Subscribe(
        subjects=subjects,
        history=options.history,
        conflation_ms=options.conflation_ms,
        positions=positions or None,
        replay=replay and bool(positions),
    )
