"""Whether clients are served: how long publications and subscribers may wait while faults last."""

from collections.abc import Iterable

from simulation.checker import Checker
from simulation.recording import Recorder


def overdue(
    publishers: Iterable[Recorder],
    subscribers: Iterable[Recorder],
    checker: Checker,
    before: int,
) -> str | None:
    """What still waits although it was published or acknowledged `before` a time (ns).

    None where nothing does: then every publication had its result, and every message that was
    acknowledged came to every subscriber.
    """
    for recorder in publishers:
        for event in recorder.pending.values():
            if event.at < before:
                return f"{recorder.name} has no result of {event.publication}"
    newest: dict[str, int] = {}
    for acked in checker.acked.values():
        if acked.at < before:
            newest[acked.subject] = max(acked.seq, newest.get(acked.subject, 0))
    for recorder in subscribers:
        for subject, seq in newest.items():
            reached = recorder.positions.get(subject, ("", 0, 0))[2]
            if reached < seq:
                return f"{recorder.name} is at {reached} of {subject}, {seq} was acknowledged"
    return None
