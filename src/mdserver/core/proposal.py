"""What the broker asks of the group logs, and what they answer.

msgspec structs, since there are three for each publication: one takes 0.1 us, a frozen attrs object
of as many fields five times as long.
"""

import msgspec

from mdserver.core.commands import CommandId
from mdserver.core.message import Publication


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The session that waits for the result of a publication, and the names that it gave it.

    `publication` is kept only where the audit stream of messages is on. `fields`: the cache counted
    its fields in (`Cache.propose_fields`).
    """

    session: int
    closure: str | None
    id: CommandId
    subject: str | None = None
    publication: Publication | None = None
    fields: bool = False


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A publication that passed validation and entitlement and wants a place in its group's log.

    A STANDARD publication has no place: it goes to every member in sight, once.
    """

    origin: Origin
    publication: Publication


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The result of a proposal: its position, or why it has none; exactly one for each.

    `reason` is None when it is committed. `duplicate` with epoch 0: the number was taken so long
    ago that its position is forgotten. `certain`: a refusal that surely left no trace.
    """

    origin: Origin
    epoch: int = 0
    seq: int = 0
    duplicate: bool = False
    reason: str | None = None
    certain: bool = True
    expected: int | None = None
