"""What a step of a group may answer."""

from typing import get_args

import msgspec

from mdserver.cluster.replies import Consequence, Gap, Reply, Unregistered


def test_answers_are_items_for_the_sender_or_name_what_the_member_has_to_do() -> None:
    kinds = set(get_args(Reply)) - {type(None)}
    items = {kind for kind in kinds if issubclass(kind, msgspec.Struct)}
    assert kinds - items == {Gap, Unregistered, Consequence}


def test_a_seed_is_readmitted_only_if_that_is_said() -> None:
    assert not Unregistered(3).readmit
