"""Copies subjects to topics: each message once.

The records of a batch and the positions of their subjects are one transaction (`Ledger`), so a
bridge that starts recovers each subject from the last message that is in its topic.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio
from attrs import define

from mdserver.bridge.inward import OpenClient, Tell, Watch, asked
from mdserver.bridge.ledger import Ledger
from mdserver.bridge.rules import Rules
from mdserver.client import Client, Message
from mdserver.cluster.kafka_records import PoisonError, ProducedRecord
from mdserver.core.message import Publication
from mdserver.core.subjects import parse_interest

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
        rows = await asked(self.ledger.load)
        interests = list(dict.fromkeys(rule.interest for rule in self.rules.topics))
        client = self.open_client(publisher=None, positions=restored(rows, interests))
        subscription = client.subscribe(*interests)
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(self.watch, client)
            await client.connected()
            # Before the first message: subjects may come up while nobody is here to see them.
            await asked(self.ledger.commit, (), self._under_patterns(client))
            self.started()
            while True:
                messages = await subscription.batch()
                # Nothing else has come by now, so these are the positions of the last messages. A
                # reset that came behind a message has taken its position away.
                reached: dict[str, Any] = {
                    message.subject: seen
                    for message in messages
                    if message.position is not None
                    and (seen := client.position(message.subject)) is not None
                }
                reached |= self._under_patterns(client)
                records = [
                    (message.subject, record)
                    for message in messages
                    for record in self._records(message)
                ]
                refused = await asked(self.ledger.commit, [one for _, one in records], reached)
                for at, reason in refused.items():
                    self.tell(f"{records[at][0]} left out: {reason}")

    def _under_patterns(self, client: Client) -> dict[str, Seen]:
        """Have subjects of patterns that come up unseen recovered; return the rows to keep."""
        new: dict[str, Seen] = {}
        for rule in self.rules.topics:
            if rule.pattern is not None:
                seen = client.recover_unseen(rule.interest)
                if seen is not None:
                    new[rule.interest] = seen
        return new

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


def restored(rows: Mapping[str, Any], interests: Sequence[str]) -> dict[str, Seen]:
    """Return the positions that were kept, without those of patterns that no rule has any more."""
    return {
        subject: (str(at[0]), int(at[1]), int(at[2]))
        for subject, at in rows.items()
        if at is not None
        and (subject in interests or parse_interest(subject, segments_min=1) is None)
    }
