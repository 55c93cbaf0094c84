"""The log of a group beside a model that replays every entry, whatever is dropped in between."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mdserver.cluster.dedupe import FORGOTTEN, Numbers, Verdict
from mdserver.cluster.log import FORGET, GroupLog, Tables, forgotten_by
from mdserver.core.message import NO_FLOOR, Entry, Position, Publication
from mdserver.limits import PUBLISHER_NUMBERS_KEPT

LOG_KEPT = 3
PUBLISHERS = ("p", "q")
publishers = st.sampled_from(PUBLISHERS)
parts = st.sampled_from([0, 1, 10, 50, 90, 99, 100])


class Model(RuleBasedStateMachine):
    """`log` is the subject; `entries` are all that it ever stood for."""

    kept: int
    bursts: tuple[int, ...]

    def __init__(self) -> None:
        super().__init__()
        self.log = GroupLog(LOG_KEPT, self.kept)
        self.entries: list[Entry] = []
        self.epoch = 1
        self.remembering = False  # entries that forget were dropped: what they kept goes later

    def replayed(self, length: int) -> Tables:
        """What follows from the first entries."""
        numbering: dict[str, int] = {}
        known: dict[str, Numbers] = {}
        floor = NO_FLOOR
        for entry in self.entries[:length]:
            publication = entry.publication
            numbering[publication.subject] = entry.seq
            forgotten = forgotten_by(entry)
            if forgotten is not None:
                floor = forgotten.floor
                for subject in forgotten.subjects:
                    numbering.pop(subject, None)
            elif publication.subject == FORGET:
                known.pop(publication.publisher, None)
            elif publication.number:
                numbers = known.setdefault(publication.publisher, Numbers())
                numbers.last = publication.number
                numbers.positions.append(Position(entry.epoch, entry.seq))
        return Tables(numbering, known, floor)

    def publish(self, publications: list[Publication]) -> None:
        before = self.log.length
        self.log.number(self.epoch, publications, None)
        self.entries += self.log.since(before)

    @rule(publisher=publishers, data=st.data())
    def publishes(self, publisher: str, data: st.DataObject) -> None:
        count = data.draw(st.sampled_from(self.bursts))
        known = self.replayed(len(self.entries)).publishers.get(publisher, Numbers())
        self.publish(
            [
                Publication(f"/{publisher}/{number % 2}", b"", publisher=publisher, number=number)
                for number in range(known.last + 1, known.last + count + 1)
            ]
        )

    @rule()
    def publishes_without_a_number(self) -> None:
        self.publish([Publication("/p/0", b"")])

    @rule(publisher=publishers)
    def forgets(self, publisher: str) -> None:
        self.publish([Publication(FORGET, b"", publisher=publisher)])

    @rule(data=st.data())
    def forgets_subjects(self, data: st.DataObject) -> None:
        known = sorted(set(self.log.numbering) - {FORGET})
        if known:
            before = self.log.length
            chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
            self.log.forget_subjects(self.epoch, chosen, before, 0)
            self.entries += self.log.since(before)

    @rule(part=parts)
    def commits(self, part: int) -> None:
        tail = self.log.length - self.log.committed
        self.log.commit(self.log.committed + tail * part // 100)

    @rule(part=parts)
    def truncates(self, part: int) -> None:
        self.epoch += 1
        length = self.log.length - (self.log.length - self.log.committed) * part // 100
        self.log.truncate(length)
        dropped = self.entries[length:]
        self.remembering |= any(entry.publication.subject == FORGET for entry in dropped)
        del self.entries[length:]

    @rule()
    def is_taken_over(self) -> None:
        """Another member begins with the tables, as they are written down, and the tail."""
        tables = self.log.tables()
        written = msgspec.msgpack.encode(tables)
        other = GroupLog(LOG_KEPT, self.kept)
        other.install(self.log.committed, tables)
        other.append(self.log.since(self.log.committed), [])
        assert msgspec.msgpack.encode(tables) == written
        self.log = other

    @invariant()
    def tables_are_those_of_what_is_committed(self) -> None:
        wanted, tables = self.replayed(self.log.committed), self.log.tables()
        assert tables.numbering == wanted.numbering
        assert tables.floor == wanted.floor
        assert tables.publishers == {
            name: Numbers(numbers.last, numbers.positions[-self.kept :])
            for name, numbers in wanted.publishers.items()
        }

    @invariant()
    def numbers_are_known_to_the_end(self) -> None:
        self.log.tables()  # leaves the log as it was
        wanted = self.replayed(len(self.entries))
        assert self.log.numbering == wanted.numbering
        assert self.log.floor == wanted.floor
        for name in PUBLISHERS:
            numbers = wanted.publishers.get(name, Numbers())
            last, verdict = numbers.last, self.log.publishers.verdict
            assert verdict(name, last + 1)[0] is Verdict.NEXT
            assert verdict(name, last + 2) == (Verdict.GAP, last + 1, FORGOTTEN)
            for back in {0, 1, self.kept // 2, self.kept - 1, self.kept, last - 1}:
                if 0 <= back < last:
                    position = numbers.positions[-1 - back] if back < self.kept else FORGOTTEN
                    found = verdict(name, last - back)
                    assert found == (Verdict.TAKEN, last + 1, position)

    @invariant()
    def no_number_of_a_subject_is_given_twice(self) -> None:
        last: dict[str, int] = {}
        for entry in self.entries:
            subject = entry.publication.subject
            assert entry.seq > last.get(subject, 0)
            last[subject] = entry.seq

    @invariant()
    def no_more_is_kept_than_promised(self) -> None:
        tail = [entry.publication.publisher for entry in self.log.since(self.log.committed)]
        for name, known in self.log.publishers.table.items():
            assert self.remembering or len(known.positions) <= 2 * self.kept + tail.count(name)


class FewNumbers(Model):
    kept = 4
    bursts = (1, 2, 3, 4, 5, 9, 30)


class RealNumbers(Model):
    kept = PUBLISHER_NUMBERS_KEPT
    bursts = (1, 999, 1000, 1001, 2001, 3500)


TestFewNumbers = FewNumbers.TestCase
TestFewNumbers.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestRealNumbers = RealNumbers.TestCase
TestRealNumbers.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
