"""What must hold after every event, seen from outside of the members (docs/cluster.md, I1-I9).

The committed entries that members report are compared with each other as they come; the steps that
they trace show who coordinates which epoch. Nothing here looks into a member.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

from mdserver.core.message import Entry


@frozen
class Finding:
    """A broken invariant and its particulars."""

    kind: str
    what: str
    at: int


@define
class Watch:
    """Remembers what was committed anywhere; `findings` grows."""

    now: int = 0
    forgets: bool = False  # subjects, which then begin anew with a greater number
    standard: bool = False  # two sides of a cut may commit at one position, under two history ids
    findings: list[Finding] = field(factory=list)
    entries: dict[tuple[str, str, int], Entry] = field(factory=dict)
    newest: dict[tuple[str, str], int] = field(factory=dict)
    places: dict[tuple[str, int, str, int], tuple[str, int]] = field(factory=dict)
    numbers: dict[tuple[str, int, str], int] = field(factory=dict)
    last: dict[tuple[str, str, str], tuple[int, int]] = field(factory=dict)
    owners: dict[tuple[str, int, int], str] = field(factory=dict)
    committed_at: dict[tuple[str, int, int], dict[str, None]] = field(factory=dict)
    """Subject, epoch, seq -> what was committed there last, or, if `standard`, ever."""
    promised: dict[tuple[int, int, str, str], tuple[int, int]] = field(factory=dict)
    """Group, epoch, candidate, seed -> accepted epoch and length of the log that was promised."""
    committed: int = 0
    first_history: str = ""

    def violate(self, kind: str, what: str) -> None:
        """Note a broken invariant."""
        self.findings.append(Finding(kind, what, self.now))

    def saw_commit(
        self,
        member: str,
        history: str,
        group: int,
        entries: Sequence[Entry],
        *,
        may_begin_anew: bool = False,
    ) -> None:
        """A member (with its incarnation in its name) applied these.

        `may_begin_anew`: disks of a majority were put back, or lost their memory. Then a member may
        take the log of a cold start that comes to nothing, and after that the log of the history
        before from its beginning. Its clients are told of both, and their views are judged.
        """
        self.first_history = self.first_history or history
        if may_begin_anew and entries and entries[0].place == 1:
            for known in [key for key in self.last if key[:2] == (member, history)]:
                del self.last[known]
        for entry in entries:
            self.committed += 1
            subject = entry.publication.subject
            self._agree(member, history, group, subject, entry)
            before = self.last.get((member, history, subject))
            if before is not None:
                epoch, seq = before
                # Forward jumps are a cache taken from another member: the clients' side is checked.
                if entry.seq <= seq:
                    self.violate("I7", f"{member} applied {subject} {entry.seq} after {seq}")
                if entry.epoch < epoch:
                    self.violate("I4", f"{subject} {entry.seq}: epoch {entry.epoch} after {epoch}")
            self.last[member, history, subject] = (entry.epoch, entry.seq)

    def _agree(self, member: str, history: str, group: int, subject: str, entry: Entry) -> None:
        place = (history, subject, entry.seq)
        known = self.entries.get(place)
        if known is not None:
            if known != entry:
                self.violate("I2", f"{member}: {place} is {shown(entry)}, it was {shown(known)}")
            return
        self.entries[place] = entry
        text = entry.publication.content.decode(errors="replace")
        position = (subject, entry.epoch, entry.seq)
        others = self.committed_at.get(position, {}) if self.standard else {}
        self.committed_at[position] = {**others, text: None}
        newest = self.newest.get((history, subject), 0)
        if newest and (entry.seq <= newest if self.forgets else entry.seq != newest + 1):
            self.violate("I4", f"{place} was first seen after seq {newest}")
        self.newest[history, subject] = max(newest, entry.seq)
        publication = entry.publication
        if publication.number:
            identity = (history, group, publication.publisher, publication.number)
            new = identity not in self.places
            first = self.places.setdefault(identity, (subject, entry.seq))
            if first != (subject, entry.seq):
                self.violate("I6", f"{identity[2:]} stands at {first} and {subject} {entry.seq}")
            # After a reset of everything a publisher goes on with its numbers.
            begun = 0 if history == self.first_history else publication.number - 1
            last = self.numbers.get(identity[:3], begun)
            if publication.number > last + 1 or (new and publication.number < last):
                self.violate("I9", f"{identity[2:]} is committed after number {last}")
            self.numbers[identity[:3]] = max(last, publication.number)

    def saw_step(self, member: str, history: str, name: str, values: dict[str, Any]) -> None:
        """A member took a step of the protocol."""
        if name == "Promise":
            ballot = (values["group"], values["epoch"], values["candidate"], values["node"])
            self.promised[ballot] = (values["accepted"], values["length"])
        elif name == "Elect":
            self._holds_the_best(values)
        if name in {"Activate", "Publish", "Commit"}:
            key = (history, values["group"], values["epoch"])
            owner = self.owners.setdefault(key, member)
            if owner != member:
                self.violate("I5", f"epoch {key[2]} of group {key[1]}: {owner} and {member}")

    def _holds_the_best(self, values: dict[str, Any]) -> None:
        """Compare an elected coordinator's log with the best that seeds promised it (I1)."""
        group, epoch, elected = values["group"], values["epoch"], values["node"]
        seeds = values["promises"].split(",") if values["promises"] else []
        unmade = [seed for seed in seeds if (group, epoch, elected, seed) not in self.promised]
        if unmade:
            given = f"promises of {', '.join(unmade)} that were not made"
            self.violate("I1", f"{elected} is elected in epoch {epoch} of group {group} by {given}")
            return
        logs = [self.promised[group, epoch, elected, seed] for seed in seeds]
        best = max(logs, default=(0, 0))[1]
        if values["length"] < best:
            self.violate(
                "I1",
                f"{elected} is elected in epoch {epoch} of group {group} with "
                f"{values['length']} entries, and a seed promised a log of {best}",
            )


def shown(entry: Entry) -> str:
    """An entry in a few words."""
    return f"{entry.epoch}/{entry.seq} {entry.publication.content.decode(errors='replace')}"
