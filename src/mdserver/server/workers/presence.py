"""Who is subscribed to what at each worker, so that all of them leave when a worker dies.

A worker writes a line of the presence stream when a session joins or leaves a subject. One that is
killed writes no more, and its clients are gone all the same. So the server remembers who joined by
the lines that it took, and writes the missing ones itself. A join that the worker did not hand over
before it died was never written, and nobody leaves for it.

A worker drops lines when too many wait for its server, which logs how many (`worker's lines lost`).
If one of them says that a session left, the session is taken to be here until its worker ends.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from mdserver.core.audit import PRESENCE
from mdserver.core.outputs import Log

JOIN, LEAVE = "join", "leave"
_OF_LINE = ("time", "subject")


@define(eq=False)
class _Sessions:
    """The sessions of a worker: what their lines have in common, and what they are joined to."""

    common: dict[Any, dict[str, Any]] = field(factory=dict)
    subjects: dict[Any, dict[Any, None]] = field(factory=dict)


class WorkerPresence:
    """The sessions that joined something, of each worker by its number."""

    def __init__(self) -> None:
        self._of: dict[int, _Sessions] = {}

    def take(self, worker: int, line: Log) -> None:
        """Note who joined or left; lines of other streams are passed over."""
        if line.stream != PRESENCE:
            return
        here = self._of.setdefault(worker, _Sessions())
        session, subject = line.values["session"], line.values["subject"]
        if line.name == JOIN:
            if session not in here.common:
                here.common[session] = {
                    name: value for name, value in line.values.items() if name not in _OF_LINE
                }
                here.subjects[session] = {}
            here.subjects[session][subject] = None
        elif session in here.common:
            here.subjects[session].pop(subject, None)
            if not here.subjects[session]:
                del here.common[session], here.subjects[session]

    def ended(self, worker: int, now: int) -> Sequence[Log]:
        """Return the lines of all who left because their worker ended at `now` (ns)."""
        here = self._of.pop(worker, _Sessions())
        return [
            Log(PRESENCE, LEAVE, {"time": now, **common, "subject": subject})
            for session, common in here.common.items()
            for subject in here.subjects[session]
        ]
