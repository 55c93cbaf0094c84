"""The names of MBeans and attributes."""

from mdserver.server.monitor.mbeans import camel, properties, type_of


def test_names_are_camel_case() -> None:
    values = camel({"messages_in": 1, "p99.9_s": 0.5, "sessions": 2})
    assert values == {"MessagesIn": 1, "P99_9S": 0.5, "Sessions": 2}


def test_keys_are_those_of_the_name() -> None:
    name = "mdserver:type=Window,indicator=sessions,window=1h"
    assert properties(name) == {"type": "Window", "indicator": "sessions", "window": "1h"}


def test_a_truth_is_no_number() -> None:
    types = [type_of(value) for value in (True, 1, 1.5, "a")]
    assert types == ["boolean", "long", "double", "java.lang.String"]
