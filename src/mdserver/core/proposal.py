"""Proposals: what the broker asks of the group logs, and what they answer.

These are msgspec structs, since there are three for each publication: one takes 0.1 us, a frozen
attrs object of as many fields five times as long.
"""

import msgspec

from mdserver.core.commands import CommandId
from mdserver.core.message import Publication


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The session that waits for the result of a publication, and the names that it gave it.

    `publication` is kept only if the audit stream of messages is on. `fields`: the cache counted
    its fields in (`Cache.make_room`), and has to be told the result (`Cache.landed`). `before`: by
    how much the publisher's number is greater than the one that the log counts.
    """

    session: int
    closure: str | None
    id: CommandId
    subject: str | None = None
    publication: Publication | None = None
    fields: bool = False
    before: int = 0


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A publication that passed validation and entitlement and wants a place in its group's log.

    A STANDARD publication has no place: it goes to every member in sight, once.
    """

    origin: Origin
    publication: Publication


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The result of a proposal, exactly one for each: its position, or why it has none.

    `reason` is None if it is committed. `duplicate` with epoch 0 means that the number was taken so
    long ago that its position is not remembered. A failure that is `certain` left no trace, and the
    publication will not be committed later. `expected` is the number that would have been next.
    """

    origin: Origin
    epoch: int = 0
    seq: int = 0
    duplicate: bool = False
    reason: str | None = None
    certain: bool = True
    expected: int | None = None
