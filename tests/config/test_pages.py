"""What is made of the table is what lies in the repository."""

from pathlib import Path

import pytest

from mdserver.config import PARAMETERS, load
from mdserver.config.pages import PAGES, PRODUCTION, sample_file

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_up_to_date(name: str) -> None:
    assert (TOP / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_the_sample_without_comment_marks_is_the_default_configuration(tmp_path: Path) -> None:
    file = tmp_path / "sample.conf"
    lines = sample_file().splitlines()
    file.write_text(
        "\n".join(
            line[1:] if line.startswith("#") and not line.startswith("# ") else line
            for line in lines
        ),
        encoding="utf-8",
    )
    loaded = load(file)
    file.write_text("")
    assert loaded.config == load(file).config
    assert all(origin.startswith(str(file)) for origin in loaded.origins.values())


SERVERS = [
    file for file in sorted((TOP / "conf").rglob("*.conf")) if file.parent.name != "pipeline"
]


@pytest.mark.parametrize("file", SERVERS, ids=str)
def test_every_example_configuration_is_valid(file: Path) -> None:
    assert load(file).config is not None


def test_what_production_changes_are_parameters() -> None:
    names = [name for group in PRODUCTION for name in group]
    assert len(names) == len(set(names))
    assert set(names) <= set(PARAMETERS)
