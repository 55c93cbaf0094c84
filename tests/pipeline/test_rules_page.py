"""docs/rules.md: its examples are rules files, and it names every kind and key."""

import re
from pathlib import Path

import pytest

from mdserver.pipeline.derive import rules

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_rules_file(example: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(example)
    assert rules.load(tmp_path / "rules.yaml")


def test_the_examples_show_every_kind(tmp_path: Path) -> None:
    shown = set()
    for example in EXAMPLES:
        (tmp_path / "rules.yaml").write_text(example)
        shown |= {rule.kind for rule in rules.load(tmp_path / "rules.yaml")}
    assert shown == set(rules.KINDS)


@pytest.mark.parametrize("kind", sorted(rules.KINDS))
def test_every_key_of_a_kind_is_named(kind: str) -> None:
    (line,) = re.findall(rf"^\| `{kind}` \|.*$", PAGE, re.MULTILINE)
    for key in rules.KINDS[kind]:
        assert f"`{key}`" in line
