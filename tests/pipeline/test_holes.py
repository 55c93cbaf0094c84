"""Lines that stand for missing segments."""

import msgspec

from mdserver.pipeline.common import holes


def test_a_line_says_what_is_missing_and_where() -> None:
    hole = holes.JournalHole(journal="j", first=3, last=4, node="n1", noticed=5)
    line = holes.line_of(hole)
    assert msgspec.json.decode(line)["hole"] == msgspec.to_builtins(hole)
    assert "line_crc" in msgspec.json.decode(line)


def test_the_member_is_that_of_the_first_line_that_names_one() -> None:
    lines = [b"{damaged", b"\xff", b'{"seq":1}', b'{"via":"n2"}', b'{"node":"n3"}']
    assert holes.member_of(lines) == "n2"
    assert holes.member_of(lines[:3]) == ""
