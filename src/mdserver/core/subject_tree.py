"""The tree of all subjects by their segments, in which the subjects of a pattern are found.

A search visits only branches that its pattern leads to, so `/a/*` costs what `/a` holds. It is a
generator over a tree that may change between two of its items: subjects that are added meanwhile
may be left out, one that is removed is found no more, and every other one is found.

A branch is a dict of segments, and nearly every subject ends where nothing else goes on. So a
subject stands in place of a branch that has no other, which saves a dict for it. Once subjects come
below it, it moves to the key "" of the branch, which no segment can be.
"""

from collections.abc import Iterator, Sequence

from mdserver.core.subjects import ONE, RESERVED, Pattern, segments_of

_Branch = dict[str, "_Branch | str"]


class SubjectTree:
    """A set of subjects."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Branch = {}

    @property
    def branches(self) -> int:
        """Return the number of different first segments."""
        return len(self._root)

    def add(self, subject: str) -> None:
        """Add a subject that is not in the tree."""
        *branches, last = segments_of(subject)
        at = self._root
        for segment in branches:
            below = at.get(segment)
            if type(below) is not dict:
                below = at[segment] = {} if below is None else {"": below}
            at = below
        below = at.get(last)
        if type(below) is dict:
            below[""] = subject
        else:
            at[last] = subject

    def remove(self, subject: str) -> None:
        """Remove a subject that is in the tree, with the branches that held nothing else."""
        _remove(self._root, segments_of(subject))

    def search(self, pattern: Pattern) -> Iterator[str | None]:
        """Yield the subjects of a pattern, and None for each other branch that is looked at.

        `at` is how many segments lead to `node`; those beyond the pattern's own are what `**`
        stands for. Each level iterates over a copy of its keys, because the dict itself must not
        change during an iteration.
        """
        segments, rest = pattern.segments, pattern.rest
        fixed = len(segments)
        hidden = None if pattern.is_reserved() else RESERVED
        levels: list[tuple[Iterator[str], _Branch, int]] = []
        node: _Branch | str | None = self._root
        at = 0
        while True:
            if type(node) is not dict:
                whole = at > fixed if rest else at == fixed
                yield node if isinstance(node, str) and whole else None
            elif at == fixed and not rest:
                here = node.get("")
                yield here if isinstance(here, str) else None
            else:
                one = at < fixed and segments[at] != ONE
                levels.append((iter((segments[at],) if one else list(node)), node, at + 1))
                yield None
            node = None
            while levels and node is None:
                keys, branch, at = levels[-1]
                key = next(keys, None)
                if key is None:
                    levels.pop()
                elif (key or at > fixed + 1) and not (at == 1 and key == hidden):
                    node = branch.get(key)
            if node is None:
                return


def _remove(branch: _Branch, segments: Sequence[str]) -> None:
    """Remove the subject of these segments from a branch."""
    first, below = segments[0], branch[segments[0]]
    if type(below) is dict:
        if len(segments) > 1:
            _remove(below, segments[1:])
        else:
            del below[""]
        if below:
            return
    del branch[first]
