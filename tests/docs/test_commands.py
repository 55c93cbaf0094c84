"""Every code block of every page says what it is, and every command on a page exists.

Blocks that a live server can run are run by `test_documents.py`, those of the pipeline by
`tests/pipeline/test_pipeline_page.py`. What takes too long for a test is parsed: subcommands,
options, targets of make and modules have to be there.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from mdserver.bench.commands import bench
from mdserver.cli.main import mdserver

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}(?:mdserver|make|python) .*\n)+", re.MULTILINE)
KINDS = {
    "console",
    "console background",
    "console server",
    "sh",
    "text",
    "text output",
    "python",
    "python pipeline",
    "html",
    "js",
    "json",
    "yaml",
    "sql",
}
RECIPES = re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
TARGETS = set(RECIPES)
MODULES = {"spec", "simulation", "mdserver.bench", "tests.guard"}
PLACEHOLDER = re.compile(r"\[[^\]]*\]|\.\.\.")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return what each fenced block of a page says that it is, and its text."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of ours on a page."""
    text = page.read_text(encoding="utf-8")
    shells = [body for kind, body in FENCE.findall(text) if kind == "sh"]
    consoles = [
        line.removeprefix("$ ")
        for kind, body in FENCE.findall(text)
        if kind.startswith("console")
        for line in re.findall(r"^\$ (?:.*\\\n)*.*", body, re.MULTILINE)
    ]
    indented = [block for block in INDENTED.findall(text) if "```" not in block]
    for block in (*shells, *consoles, *indented):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(PLACEHOLDER.sub("", line), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*|.*/bin|command", words[0]):
                words = words[1:]
            if words and Path(words[0]).name in ("mdserver", "make", "python"):
                yield words


ALL = [(page, words) for page in PAGES for words in commands(page)]


def leaf(group: click.Command, words: list[str]) -> tuple[click.Command, list[str]]:
    """Follow the words to the subcommand that they name; return it with the words left."""
    while isinstance(group, click.Group):
        if not words or words[0].startswith(("-", "$")):
            break
        name, *words = words
        found = group.get_command(click.Context(group), name)
        assert found is not None, f"there is no subcommand {name}"
        group = found
    return group, words


def check_options(group: click.Command, words: list[str]) -> None:
    """Fail unless the subcommand is there and takes the options."""
    command, rest = leaf(group, words)
    if rest and rest[0].startswith("$"):
        return  # a loop of the shell runs several subcommands
    stop = next((at for at, word in enumerate(rest) if word in ("|", ">", "&", "<", "&&")), None)
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = {word.partition("=")[0] for word in rest[:stop] if re.match(r"--?[a-z]", word)}
    assert given <= known | {"--help", "-h", "--version"}, (
        f"{command.name}: {sorted(given - known)}"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert [kind for kind, _ in blocks(page) if kind not in KINDS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_data_in_blocks_can_be_read(page: Path) -> None:
    for kind, body in blocks(page):
        if kind == "json":
            decoder, rest = json.JSONDecoder(), body.strip()
            while rest:
                found, end = decoder.raw_decode(rest)
                assert isinstance(found, dict | list), body
                rest = rest[end:].lstrip()
        elif kind == "yaml":
            assert isinstance(yaml.safe_load(body), dict | list), body


@pytest.mark.parametrize(
    ("page", "words"), ALL, ids=[f"{page.name}: {' '.join(words)[:60]}" for page, words in ALL]
)
def test_every_command_exists(page: Path, words: list[str]) -> None:
    program = Path(words[0]).name
    if program == "make":
        assert set(words[1:]) <= TARGETS
    elif program == "mdserver":
        check_options(mdserver, words[1:])
    elif words[1] == "-m":
        name, rest = words[2], words[3:]
        assert name in MODULES or (TOP / "src" / name.replace(".", "/")).with_suffix(".py").exists()
        if name == "mdserver.bench" and rest and not rest[0].startswith("$"):
            check_options(bench, rest)
    else:
        assert (TOP / words[1]).exists()


def test_commands_are_found_in_all_their_forms() -> None:
    assert {Path(words[0]).name for _, words in ALL} == {"mdserver", "make", "python"}
    assert len(ALL) > 40


def test_a_command_that_is_not_there_is_noticed() -> None:
    with pytest.raises(AssertionError, match="--colour"):
        check_options(mdserver, ["sub", "/a/b", "--colour", "red"])
    with pytest.raises(AssertionError, match="no subcommand"):
        check_options(mdserver, ["subscribe"])


def test_each_target_is_there_once_and_so_is_what_ci_makes() -> None:
    assert len(RECIPES) == len(TARGETS)
    parts = re.findall(r"^part make (\S+)$", (TOP / ".ci" / "run").read_text(), re.MULTILINE)
    assert len(parts) > 5
    assert set(parts) <= TARGETS
