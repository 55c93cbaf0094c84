"""Options that jobs share: what they take, and what they say of the rest."""

import click
import pytest

from mdserver.cli.job_options import parsed_address, parsed_setting, spark_size


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9101", ("", 9101)),
        ("0.0.0.0:9101", ("0.0.0.0", 9101)),
        ("[::1]:0", ("::1", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parsed_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "host:", "1:x", "65536", "-1", "٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no PORT or HOST:PORT"):
        parsed_address(text)


@pytest.mark.parametrize(
    ("text", "size"), [("4g", "4g"), ("600 MB", "600m"), ("600000000", "600000000b")]
)
def test_sizes(text: str, size: str) -> None:
    assert spark_size(text) == size


@pytest.mark.parametrize("text", ["", "4", "64m", "4x", "-4g"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size of 512m or more"):
        spark_size(text)


def test_settings() -> None:
    assert parsed_setting("a=b=c") == ("a", "b=c")
    for text in ("a", "=b", ""):
        with pytest.raises(click.BadParameter, match="is not NAME=VALUE"):
            parsed_setting(text)
