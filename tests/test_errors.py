"""What an exception group holds, however deep."""

from mdserver.errors import leaves


def test_the_errors_of_nested_groups_come_in_order() -> None:
    errors = [ValueError("a"), KeyError("b"), OSError("c")]
    inner = ExceptionGroup("inner", [errors[1]])
    group = ExceptionGroup("outer", [errors[0], ExceptionGroup("middle", [inner]), errors[2]])

    assert leaves(group) == errors


def test_an_error_that_is_no_group_stands_alone() -> None:
    error = ValueError("a")

    assert leaves(error) == [error]
