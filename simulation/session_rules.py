"""What one connection of a client may carry, seen on its wire: nothing twice, nothing already held.

A client drops what it saw before by its position, so what its application sees cannot show that a
member sent something twice. These rules read what members say before a client judges it. They hold
for each connection alone, since a client that comes back says from where it goes on.
"""

from collections.abc import Callable, Sequence

from attrs import define, field

from mdserver.codec.encoding import ClientCodec
from mdserver.core.commands import Subscribe, Unsubscribe, WireCommand
from mdserver.core.events import (
    Connected,
    MessageEvent,
    Reset,
    Status,
    StatusName,
    WireEvent,
)
from mdserver.core.message import MessageType

LIVE = (MessageType.UPDATE, MessageType.RECOVERED)
Seen = tuple[int, int]  # epoch, seq


@define
class SessionRules:
    """Wraps a client's codec for one connection; `violate` is told what broke which rule.

    A subject that is subscribed again, or no more, within the connection is left alone from then
    on: messages of the former subscription may still be on their way.
    """

    codec: ClientCodec
    violate: Callable[[str, str], None]
    history: str = ""
    asked: dict[str, tuple[str, Seen]] = field(factory=dict)
    reached: dict[str, Seen] = field(factory=dict)
    subscribed: dict[str, None] = field(factory=dict)
    left_alone: dict[str, None] = field(factory=dict)
    text: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.text = self.codec.text

    def command(self, command: WireCommand) -> bytes:
        """Encode a command, and note what it asks for."""
        if isinstance(command, Subscribe):
            again = [subject for subject in command.subjects if subject in self.subscribed]
            self.left_alone |= dict.fromkeys(again)
            self.subscribed |= dict.fromkeys(command.subjects)
            for subject, after in (command.positions or {}).items():
                self.asked[subject] = (after.history, (after.epoch, after.seq))
        elif isinstance(command, Unsubscribe):
            self.left_alone |= dict.fromkeys(command.subjects)
        return self.codec.command(command)

    def join(self, frames: Sequence[bytes]) -> bytes:
        """Put several frames into the payload of one WebSocket message."""
        return self.codec.join(frames)

    def events(self, data: bytes) -> list[WireEvent | MessageEvent]:
        """Decode a WebSocket message, and judge the messages in it."""
        found = self.codec.events(data)
        for event in found:
            if isinstance(event, MessageEvent):
                self._message(event)
            elif isinstance(event, Connected):
                self.history = event.history
            elif isinstance(event, Reset):
                self._reset(event)
            elif isinstance(event, Status) and event.status is StatusName.DATA_RESYNC:
                # What the client has may be of a fork that is gone: it goes on from a snapshot.
                self.asked.pop(event.subject or "", None)
                self.reached.pop(event.subject or "", None)
        return found

    def _reset(self, event: Reset) -> None:
        """Forget positions: what follows is numbered in another history."""
        self.history = event.history
        self.reached.clear()
        self.asked.clear()

    def _message(self, event: MessageEvent) -> None:
        if not event.seq or {event.subject, event.match} & self.left_alone.keys():
            return
        here = (event.epoch, event.seq)
        history, asked = self.asked.get(event.subject, ("", (0, 0)))
        reached = self.reached.get(event.subject, (0, 0))
        if event.type in LIVE:
            what = f"{event.type.value} {event.epoch}/{event.seq} of {event.subject}"
            if here <= reached:
                self.violate("repeated", f"{what} after {reached[0]}/{reached[1]} in a session")
            elif history == self.history and here <= asked:
                self.violate("repeated", f"{what}, asked for what follows {asked[0]}/{asked[1]}")
        self.reached[event.subject] = max(here, reached)
