"""The seeds of the cluster, as one member knows them: who votes, and how many are a majority.

Everything that asks for a seed or for a majority asks here. `ClusterSettings.seeds` is only what a
member starts with.
"""


class Seeds:
    """The present list of seeds; `me` is this member, which need not be one of them.

    In Standard mode nobody votes, and the list is empty.
    """

    __slots__ = ("me", "names")

    def __init__(self, me: str, names: tuple[str, ...]) -> None:
        self.me = me
        self.names = names

    @property
    def include_me(self) -> bool:
        """Return whether this member votes."""
        return self.me in self.names

    @property
    def others(self) -> list[str]:
        """Return the other seeds."""
        return [seed for seed in self.names if seed != self.me]

    @property
    def majority(self) -> int:
        """Return how many seeds are a majority of them."""
        return len(self.names) // 2 + 1
