"""What members hold once nothing goes on any more, set beside each other."""

from collections.abc import Iterator, Mapping

from attrs import frozen

from simulation.chaos.promises import Cached


@frozen
class Held:
    """What one member has of a subject: its cached messages, and the snapshot (none: empty)."""

    messages: Cached
    snapshot: Cached


def differences(subject: str, held: Mapping[str, Held]) -> Iterator[str]:
    """Yield how members differ in what they have of a subject.

    A cache may begin later than that of another member, since each counts from its own start how
    long it keeps a message. From there on it has all that any other one has.
    """
    known: dict[int, tuple[int, str]] = {}
    for name, one in held.items():
        for seq, message in one.messages.items():
            if known.setdefault(seq, message) != message:
                yield (f"{name} has {message} at {seq} of {subject}, another member {known[seq]}")
    ends = {name: max(one.messages, default=0) for name, one in held.items()}
    if len(set(ends.values())) > 1:
        yield f"the last of {subject} is {ends}"
    for name, one in held.items():
        lacking = [
            seq
            for seq in known
            if one.messages and min(one.messages) < seq < ends[name] and seq not in one.messages
        ]
        if lacking:
            yield f"{name} lacks {sorted(lacking)} of {subject}, which another member has"
    snapshots = {name: dict(one.snapshot) for name, one in held.items()}
    if any(snapshot != next(iter(snapshots.values())) for snapshot in snapshots.values()):
        yield f"the snapshot of {subject} is {snapshots}"
