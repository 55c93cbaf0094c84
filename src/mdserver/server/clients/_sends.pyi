"""Types of the C extension `_sends.c`, which is there when a compiler was at its installation."""

from socket import socket
from typing import final

Sent = tuple[list[int], list[tuple[int, int]], list[tuple[int, int]]]

def send(wires: list[bytes], socks: list[socket], /) -> Sent: ...

@final
class Ring:
    closed: bool
    def __new__(cls, entries: int, /) -> Ring: ...
    def send(self, wires: list[bytes], socks: list[socket], /) -> Sent: ...
    def close(self) -> None: ...
