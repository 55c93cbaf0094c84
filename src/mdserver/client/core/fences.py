"""Fences: pings that tell when a command was taken, and which command an error is about.

The server answers commands in order, and a ping after the answers to what was sent before it
(docs/protocol.md, "What answers what"). So a ping goes out right after each `subscribe`: its pong
says that every answer to the subscription has come. The content of a ping names what it is for:
`s1`, `s2`, ... a subscribe command, `m1`, ... a mark of the caller, `r1`, ... subscriptions that
are taken up again behind it (`returning`).
"""

import msgspec

from mdserver.codec.encoding import ClientCodec
from mdserver.core.commands import CommandId, Ping, Subscribe


class Fences:
    """The commands and marks of one connection whose pong has not come yet."""

    def __init__(self, codec: ClientCodec) -> None:
        self._encode = msgspec.json.encode if codec.text else msgspec.msgpack.encode
        self._count = 0
        self._waiting: dict[str, dict[str, None]] = {}
        self._newest: dict[str, str] = {}  # subject -> the last command whose answer is to come
        self._by_pong: dict[bytes, str] = {}
        self._marks: dict[bytes, int] = {}
        self._returns: dict[bytes, int] = {}

    def put(self, command: Subscribe) -> tuple[Subscribe, Ping]:
        """Return the command with an id, and the ping that has to follow it."""
        self._count += 1
        name = f"s{self._count}"
        raw = self._encode(name)
        self._waiting[name] = dict.fromkeys(command.subjects)
        self._newest |= dict.fromkeys(command.subjects, name)
        self._by_pong[raw] = name
        return msgspec.structs.replace(command, id=name), Ping(t=msgspec.Raw(raw))

    def subjects(self, command: CommandId) -> list[str]:
        """Return the subjects of the subscribe command with this id; empty if there is none."""
        return list(self._waiting.get(command, ())) if isinstance(command, str) else []

    def refused(self, subject: str, command: CommandId) -> bool:
        """Return whether a refusal is about the newest subscription to a subject.

        `command` is the id in the refusal; None, if the server ended a subscription unasked, stands
        for one before all that wait. What is refused is not confirmed by the pong.
        """
        if isinstance(command, str) and command in self._waiting:
            self._waiting[command].pop(subject, None)
        newest = self._newest.get(subject)
        self.allowed(subject, command)
        return newest is None or newest == command

    def allowed(self, subject: str, command: CommandId) -> None:
        """Note that the server allows a subscription: what ends it from now on comes unasked."""
        if command is not None and self._newest.get(subject) == command:
            del self._newest[subject]

    def marked(self, mark: int, *, caught_up: bool = False) -> Ping:
        """Return a ping whose pong says that everything sent before it was taken.

        With `caught_up` it also says that all earlier subscriptions have brought what comes before
        live messages.
        """
        raw = self._encode(f"m{mark}")
        self._marks[raw] = mark
        return Ping(t=msgspec.Raw(raw), caught_up=caught_up)

    def mark(self, pong: msgspec.Raw) -> int | None:
        """Return the mark that this pong answers, or None."""
        return self._marks.pop(bytes(pong), None)

    def returning(self, number: int) -> Ping:
        """Return the ping that goes out before subscriptions that are taken up again."""
        raw = self._encode(f"r{number}")
        self._returns[raw] = number
        return Ping(t=msgspec.Raw(raw))

    def returned(self, pong: msgspec.Raw) -> int | None:
        """Return the number of the `returning` ping that this pong answers, or None."""
        return self._returns.pop(bytes(pong), None)

    def passed(self, pong: msgspec.Raw) -> list[str]:
        """Return the subjects whose subscription this pong confirms; empty if it confirms none."""
        name = self._by_pong.pop(bytes(pong), None)
        if name is None:
            return []
        subjects = list(self._waiting.pop(name))
        for subject in subjects:
            self.allowed(subject, name)
        return subjects
