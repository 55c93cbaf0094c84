"""A bound for memory that many connections share: what each of them holds is counted against it."""


class Budget:
    """A number of bytes for all connections together, of which strangers may take half.

    Strangers are clients that have not been admitted. However many there are, the others have room.
    """

    __slots__ = ("bytes_max", "strangers", "taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self.strangers = 0

    def take(self, size: int, *, stranger: bool) -> bool:
        """Take `size` bytes and return True, or return False if there is no room."""
        if self.taken + size > self.bytes_max:
            return False
        if stranger:
            if self.strangers + size > self.bytes_max // 2:
                return False
            self.strangers += size
        self.taken += size
        return True

    def give_back(self, size: int, *, stranger: bool) -> None:
        """Give `size` bytes back that were taken."""
        self.taken -= size
        if stranger:
            self.strangers -= size


class Share:
    """The part of a budget that one connection holds.

    `size` is the number of bytes that it holds. The first `free` bytes are not counted, so that new
    clients can present themselves even while others take the whole budget.
    """

    __slots__ = ("_budget", "_free", "_held", "_stranger", "size")

    def __init__(self, budget: Budget, free: int, *, stranger: bool) -> None:
        self.size = 0
        self._budget = budget
        self._free = free
        self._held = 0
        self._stranger = stranger

    def hold(self, size: int) -> bool:
        """Change what is held to `size` bytes; return False, and change nothing, without room."""
        counted = max(0, size - self._free)
        if counted > self._held:
            if not self._budget.take(counted - self._held, stranger=self._stranger):
                return False
        elif counted < self._held:
            self._budget.give_back(self._held - counted, stranger=self._stranger)
        self._held = counted
        self.size = size
        return True

    def admit(self) -> None:
        """Count what is held as that of an admitted client.

        A stranger holds little, so there is room for it.
        """
        size = self.size
        self.hold(0)
        self._stranger = False
        self.hold(size)
