"""The history id of each subject group, under which its positions mean something."""

from collections.abc import Sequence

from mdserver.core.subjects import group_of


class Histories:
    """The history id of each subject group.

    `current` is the newest one, which clients are given. A group that kept its numbering when
    another one began anew has an older id of its own; its positions are the same under both. Ids
    sort by age, so members that know the same ids give clients the same one, in whatever order they
    learned of them.
    """

    def __init__(self, history: str, groups: int) -> None:
        self.current = history
        self._of = [history] * groups

    def of(self, subject: str) -> str:
        """Return the history id under which a subject is numbered."""
        return self._of[self.group(subject)]

    def group(self, subject: str) -> int:
        """Return the subject group of a subject."""
        return group_of(subject, len(self._of))

    def of_group(self, group: int) -> str:
        """Return the history id of a subject group."""
        return self._of[group]

    def known_places(self, history: str, places: Sequence[int]) -> list[int]:
        """Return places of a history id, with -1 for the groups in which they mean nothing."""
        if len(places) != len(self._of):
            return [-1] * len(self._of)
        return [
            place if history in (own, self.current) else -1
            for own, place in zip(self._of, places, strict=True)
        ]

    def know(self, subject: str, history: str) -> bool:
        """Return whether a position under this history id means something for the subject."""
        return history in (self.of(subject), self.current)

    def begin(self, history: str, groups: Sequence[int]) -> None:
        """Take a new history id for these groups, which are numbered anew."""
        for group in groups:
            self._of[group] = history
        # Ids of earlier versions are shorter, and sort before those of today.
        self.current = max(dict.fromkeys(self._of), key=lambda known: (len(known), known))
