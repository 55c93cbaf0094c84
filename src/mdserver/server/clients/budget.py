"""Memory that many connections share: what each of them holds is counted against one bound."""


class Budget:
    """A number of bytes for all together, of which strangers may take half.

    Strangers are clients that have not been admitted: however many there are, the others have room.
    """

    __slots__ = ("bytes_max", "strangers", "taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self.strangers = 0

    def take(self, size: int, *, stranger: bool) -> bool:
        """Count `size` bytes more; False, and nothing is counted, if there is no room."""
        if self.taken + size > self.bytes_max:
            return False
        if stranger:
            if self.strangers + size > self.bytes_max // 2:
                return False
            self.strangers += size
        self.taken += size
        return True

    def give_back(self, size: int, *, stranger: bool) -> None:
        """Count `size` bytes no more."""
        self.taken -= size
        if stranger:
            self.strangers -= size


class Share:
    """What one connection holds of a budget: `size` bytes, of which the first `free` do not count,
    so that newcomers can say who they are while others take all there is.
    """

    __slots__ = ("_budget", "_free", "_held", "_stranger", "size")

    def __init__(self, budget: Budget, free: int, *, stranger: bool) -> None:
        self.size = 0
        self._budget = budget
        self._free = free
        self._held = 0
        self._stranger = stranger

    def hold(self, size: int) -> bool:
        """Hold `size` bytes from now on, instead of what it was; False if there is no room."""
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
        """Count what is held as that of a client that has been admitted; it is little until now."""
        size = self.size
        self.hold(0)
        self._stranger = False
        self.hold(size)
