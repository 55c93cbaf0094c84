"""What a node takes: values that compare by what they say and do not change."""

from typing import Any, get_args

import attrs
import pytest

from mdserver.cluster.node import Input
from mdserver.core import inputs
from mdserver.core.inputs import Authorized, Denied, Grants, Opened, TimerDue, Writability

KINDS = [
    kind
    for kind in vars(inputs).values()
    if isinstance(kind, type) and attrs.has(kind) and kind.__module__ == inputs.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_does_not_change(kind: type) -> None:
    one: Any = kind(**dict.fromkeys(field.name for field in attrs.fields(kind)))
    for field in attrs.fields(kind):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(one, field.name, 1)


def test_a_node_takes_every_input_of_the_core() -> None:
    parts_of_answers = {Grants, Denied}
    assert set(KINDS) - parts_of_answers <= set(get_args(Input))


def test_inputs_that_say_the_same_are_the_same() -> None:
    assert TimerDue(("broker", "expire")) == TimerDue(("broker", "expire"))
    assert Writability(1, True) != Writability(1, False)
    assert Authorized(1, None) != Authorized(2, None)
    assert Opened(1, "192.0.2.1") == Opened(1, "192.0.2.1", "websocket", False, "")


def test_a_token_that_says_nothing_allows_nothing() -> None:
    assert (Grants().subscribe, Grants().publish, Grants().expires) == ((), (), None)


def test_a_refusal_is_final_unless_it_says_that_nobody_decided() -> None:
    assert not Denied("no").busy
    assert Denied("later", busy=True) != Denied("later")
