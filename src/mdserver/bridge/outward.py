"""Copies subjects to topics: each message once.

The records of a batch and the positions of their subjects are one transaction (`Ledger`), so a
bridge that starts recovers each subject from the last message that is in its topic.
"""

from collections.abc import Callable
from typing import Any

import trio
from attrs import define

from mdserver.bridge.inward import OpenClient, Tell, Watch
from mdserver.bridge.ledger import Ledger
from mdserver.bridge.rules import Rules
from mdserver.client import Message
from mdserver.cluster.kafka_records import PoisonError, ProducedRecord
from mdserver.core.message import Publication

Seen = tuple[str, int, int]


@define
class Outward:
    """One direction of a bridge; `run` ends only by an error."""

    rules: Rules
    ledger: Ledger
    open_client: OpenClient
    watch: Watch
    tell: Tell
    started: Callable[[], object]

    async def run(self) -> None:
        """Copy until cancelled. Raises BridgeError."""
        rows = await trio.to_thread.run_sync(self.ledger.load)
        positions = {subject: (str(at[0]), int(at[1]), int(at[2])) for subject, at in rows.items()}
        client = self.open_client(publisher=None, positions=positions)
        interests = list(dict.fromkeys(rule.interest for rule in self.rules.topics))
        subscription = client.subscribe(*interests)
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(self.watch, client)
            await client.connected()
            self.started()
            while True:
                messages = await subscription.batch()
                # Nothing else has come by now, so these are the positions of the last messages.
                reached: dict[str, Any] = {
                    message.subject: client.position(message.subject)
                    for message in messages
                    if message.position is not None
                }
                records = [record for message in messages for record in self._records(message)]
                await trio.to_thread.run_sync(self.ledger.commit, records, reached)

    def _records(self, message: Message) -> tuple[ProducedRecord, ...]:
        content = message.content
        text = isinstance(content, str)
        made = Publication(
            message.subject,
            content.encode() if isinstance(content, str) else content,
            text,
            dict(message.fields) or None,
            message.closure,
            message.retained,
            message.qos,
            reply_subject=message.reply_subject,
        )
        try:
            return self.rules.produced(message.subject, made)
        except PoisonError as error:
            self.tell(f"{message.subject} left out: {error}")
            return ()
