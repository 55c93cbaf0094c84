"""Small files are replaced in one piece."""

from pathlib import Path

import pytest

from mdserver.pipeline.common.durable import PRIVATE, replace_file


def test_what_a_crash_left_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "source.json"
    replace_file(path, b"one")
    path.with_suffix(".new").write_bytes(b"half of")
    replace_file(path, b"two")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
        ("source.json", b"two")
    ]


def test_a_file_with_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    replace_file(tmp_path / "key.json", b"{}", PRIVATE)
    assert (tmp_path / "key.json").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    replace_file(path, b"one")
    path.with_suffix(".new").mkdir()
    with pytest.raises(OSError, match=r"kept\.new"):
        replace_file(path, b"two")
    assert path.read_bytes() == b"one"
