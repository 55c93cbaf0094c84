"""Finds out when a command was taken: a subscription, and which one an error is about.

A ping goes out right after each `subscribe`; commands are answered in order, so its pong says that
the answers to the subscription have come before it.
"""

import msgspec

from mdserver.codec.encoding import ClientCodec
from mdserver.core.commands import CommandId, Ping, Subscribe


class Fences:
    """The subscribe commands of one connection whose pong has not come yet."""

    def __init__(self, codec: ClientCodec) -> None:
        self._encode = msgspec.json.encode if codec.text else msgspec.msgpack.encode
        self._count = 0
        self._waiting: dict[str, list[str]] = {}
        self._by_pong: dict[bytes, str] = {}
        self._marks: dict[bytes, int] = {}

    def put(self, command: Subscribe) -> tuple[Subscribe, Ping]:
        """The command with an id, and the ping that is to follow it."""
        self._count += 1
        name = f"s{self._count}"
        raw = self._encode(name)
        self._waiting[name] = command.subjects
        self._by_pong[raw] = name
        return msgspec.structs.replace(command, id=name), Ping(t=msgspec.Raw(raw))

    def subjects(self, command: CommandId) -> list[str]:
        """The subjects of the command with this id; none where it is no subscription."""
        return self._waiting.get(command, []) if isinstance(command, str) else []

    def marked(self, mark: int, *, caught_up: bool = False) -> Ping:
        """Return a ping whose pong says that what went before it has been taken.

        With `caught_up` also that subscriptions have brought all that comes before live messages.
        """
        raw = self._encode(f"m{mark}")
        self._marks[raw] = mark
        return Ping(t=msgspec.Raw(raw), caught_up=caught_up)

    def mark(self, pong: msgspec.Raw) -> int | None:
        """The mark that this pong is about."""
        return self._marks.pop(bytes(pong), None)

    def passed(self, pong: msgspec.Raw) -> list[str]:
        """The subjects whose subscription is in place with this pong."""
        name = self._by_pong.pop(bytes(pong), None)
        return [] if name is None else self._waiting.pop(name)
