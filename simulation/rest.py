"""Whether all members hold the same once everything came to rest: logs, tables, caches.

A client may go to any member next, and any seed may be elected: what members hold apart from each
other is a loss, a repeat or a fork that nobody has seen yet.
"""

from collections.abc import Mapping
from typing import Any

from mdserver.cluster.node import Node
from mdserver.core.images import SubjectImage
from mdserver.core.message import NO_FLOOR

BY_CLOCK = ("the snapshots", "the cache")
"""What a member forgets by its own clock, if messages and snapshots expire."""


def difference(nodes: Mapping[str, Node], *, evicts: bool, expires: bool = False) -> str | None:
    """Return how two members differ in a group, or None.

    With `evicts` caches are so small that they forget, and a member that came later holds less:
    then only what both hold has to be the same. With `expires` they forget by the clock of each.
    """
    first, *others = nodes
    for index in range(len(nodes[first].groups)):
        held = _held(nodes[first], index, evicts=evicts)
        for other in others:
            found = _held(nodes[other], index, evicts=evicts)
            for what, value in held.items():
                if expires and what in BY_CLOCK:
                    continue
                if found[what] != value:
                    return (
                        f"group {index}: {what} of {first} {_short(value, found[what])}, "
                        f"of {other} {_short(found[what], value)}"
                    )
    return None


def _held(node: Node, index: int, *, evicts: bool) -> dict[str, Any]:
    """Return what a member holds of a group, by what it is called."""
    group = node.groups[index]
    tables = group.log.tables()
    image = node.broker.export_group(index)
    # One that is only reserved for a first publication is known to its coordinator alone.
    subjects = {subject.subject: subject for subject in image.subjects if subject.seq}
    return {
        "the history id": group.history,
        "the committed length": group.log.committed,
        "the numbering": dict(sorted(tables.numbering.items())),
        # The release before knows no floor, and forgets nothing.
        "the floor": getattr(tables, "floor", NO_FLOOR),
        "the publishers' numbers": {
            name: (numbers.last, [(at.epoch, at.seq) for at in numbers.positions])
            for name, numbers in sorted(tables.publishers.items())
        },
        "the newest positions": {
            name: (subject.epoch, subject.seq) for name, subject in sorted(subjects.items())
        },
        "the snapshots": {
            name: _content(subject.snapshot) for name, subject in sorted(subjects.items())
        },
        "the cache": {
            name: _messages(subject, evicts=evicts) for name, subject in sorted(subjects.items())
        },
    }


def _content(entry: Any) -> Any:
    """Return an entry as plain values, without its place and time, which only its member needs."""
    if entry is None:
        return None
    publication = entry.publication
    return (entry.epoch, entry.seq, publication.subject, publication.content, publication.fields)


def _messages(subject: SubjectImage, *, evicts: bool) -> list[Any]:
    entries = subject.entries[-1:] if evicts else subject.entries
    return [_content(entry) for entry in entries]


def _short(value: Any, other: Any) -> str:
    """Return the part of a value that differs from the other one."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {key: item for key, item in value.items() if other.get(key) != item}
    return str(value)[:200]
