"""What a client wants to receive, and the commands that say so again after a reconnect."""

from collections.abc import Iterable, Iterator

from attrs import frozen

from mdserver.client.core.positions import Positions
from mdserver.core.commands import PositionAfter, Subscribe
from mdserver.core.events import MessageEvent
from mdserver.core.subjects import Pattern, parse_interest, segments_of
from mdserver.limits import CLIENT_COMMAND_BYTES_MAX, SUBJECTS_PER_COMMAND_MAX

_POSITION_BYTES = 80  # about what a position takes in JSON besides its subject and history id


@frozen
class Options:
    """How a subject or pattern is subscribed."""

    history: int = 0
    conflation_ms: int = 0


class Subscriptions:
    """Subjects and patterns with their options, in the order of subscription."""

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
        """Subscribe, or change the options. Raises InvalidSubjectError before anything changed.

        `replay`: what they bring first is wanted also where it was seen already.
        """
        # Whether one segment is enough is for the server to say.
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
        """End subscriptions and forget what was seen through them; gives those that existed."""
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
        """What to unsubscribe for these: with a pattern, what is recovered one by one under it."""
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
        """Whether messages of this subject are wanted."""
        if subject in self._wanted:
            return True
        segments = segments_of(subject) if self._patterns else ()
        return any(pattern.matches(segments) for pattern in self._patterns.values())

    def hold(self, subjects: Iterable[str]) -> list[str]:
        """Take nothing of these for now; gives those that are held only now."""
        held = [s for s in subjects if s in self._wanted and s not in self._held]
        self._held.update(dict.fromkeys(held))
        return held

    def release(self, subjects: Iterable[str]) -> list[str]:
        """Take messages again; gives those that were held."""
        return [s for s in subjects if self._held.pop(s, s) is None]

    def takes(self, event: MessageEvent) -> bool:
        """Whether a message is wanted; after an unsubscription some still come for a moment.

        What is not taken leaves no position, so that it is recovered later.
        """
        subject, match = event.subject, event.match or event.subject
        if self._held and (subject in self._held or match in self._held):
            return False
        return match in self._wanted or self.covers(subject)

    def connected(self) -> None:
        """The server knows of no subscription."""
        self.lone = {}
        self._replay_later = {}
        self._replaying = {}

    def replays(self, subject: str) -> list[Subscribe]:
        """Return what asks for the snapshot of a subject that was recovered one by one just now.

        A subscription that joined meanwhile wants it; it waited because an answer to the first
        command would have been taken for that to the second.
        """
        options = self._replay_later.pop(subject, None)
        if options is None or subject not in self.lone:
            self._replaying.pop(subject, None)
            return []
        self._replaying[subject] = None
        return list(self.first_commands([subject], options, replay=True))

    def replay_awaited(self, subject: str) -> bool:
        """Return whether the status that begins a replay of this subject is still to come."""
        return subject in self._replay_later or subject in self._replaying

    def recovered(self, subject: str) -> bool:
        """Whether a subject was recovered one by one and is not needed beside its pattern now.

        What was missed comes in one go with the first word about the subject, so that nothing is
        lost when the single subscription ends after that.
        """
        return self.lone.pop(subject, subject) is None

    def commands(self, subjects: Iterable[str], *, replay: bool = False) -> Iterator[Subscribe]:
        """Subscribe to these again, each subject with the position to recover from.

        `replay`: also to what is held, and with the snapshot or history besides what was missed.
        The positions are needed even where nothing seems to be missed: until the server has worked
        off the command, it keeps live messages back as a part of what the command brings.
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
        """Subscribe commands of a bounded size, with positions where there are any.

        `anew`: without them where the application asked for what it has seen.

        A subject of one segment comes alone: not every server takes it, and the error that comes
        back names the command only.
        """
        chunk: list[str] = []
        positions: dict[str, PositionAfter] = {}
        size = 0
        for subject in subjects:
            seen = self._positions.get(subject)
            if anew and subject in self._positions.replayed:
                seen = None
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
        """For each pattern the seen subjects that it is to recover."""
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
        """A pattern, with positions of the subjects it matched so far.

        When these are too many for one command, the subjects are recovered one by one: each is
        subscribed beside the pattern until `recovered`. The pattern comes last, because it would
        bring the snapshots of all that is not subscribed by then. Those that are recovered so
        already are left alone: an answer on its way would be taken for that to a second command.
        What is to be replayed of them is asked for after that answer (`replays`).
        """
        options = self._wanted[pattern]
        if replay and self.lone:
            again = [subject for subject in seen if subject in self.lone]
            self._replay_later.update(dict.fromkeys(again, options))
        seen = [subject for subject in seen if subject not in self.lone]
        positions = {subject: p for subject in seen if (p := self._positions.get(subject))}
        size = sum(_cost(subject, position) for subject, position in positions.items())
        if size <= CLIENT_COMMAND_BYTES_MAX:
            yield _subscribe([pattern], options, positions, replay=replay)
            return
        self.lone.update(dict.fromkeys(seen))
        alone = options if replay else Options(conflation_ms=options.conflation_ms)
        yield from self.first_commands(seen, alone, replay=replay)
        yield _subscribe([pattern], options, {}, replay=replay)


def _cost(subject: str, position: PositionAfter | None) -> int:
    """About how many bytes a subject takes in a command."""
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
