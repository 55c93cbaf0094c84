"""The policy of the dashboard: to which hosts its scripts may connect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.server.monitor.dashboard import sources


@pytest.mark.parametrize(
    ("url", "named", "expected"),
    [
        ("http://127.0.0.1:8800", "127.0.0.1", ["http://127.0.0.1:8800", "ws://127.0.0.1:8800"]),
        (
            "http://127.0.0.1:8800",
            "localhost",
            [
                "http://127.0.0.1:8800",
                "ws://127.0.0.1:8800",
                "http://localhost:8800",
                "ws://localhost:8800",
            ],
        ),
        (
            "https://0.0.0.0:443",
            "push.example",
            ["https://push.example:443", "wss://push.example:443"],
        ),
        ("http://[::]:8800", "[::1]", ["http://[::1]:8800", "ws://[::1]:8800"]),
        (
            "10.1.0.8:8800",
            "",
            [f"{scheme}://10.1.0.8:8800" for scheme in ("http", "ws", "https", "wss")],
        ),
        ("", "localhost", []),
        ("http://[broken", "evil; script-src *", []),
        ("http://0.0.0.0:8800", "evil; script-src *", []),
    ],
)
def test_the_policy_names_the_listeners_for_clients(
    url: str, named: str, expected: list[str]
) -> None:
    assert list(sources([url], named)) == expected


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_text_adds_to_the_policy(url: str, named: str) -> None:
    for source in sources([url], named):
        assert not set(source) & set(" ;,'\"*\n")
