"""The manual pages and completions of the packages: one for each command, and shells take them."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mdserver.cli.main import mdserver

TOP = Path(__file__).parents[2]
MANDOC = shutil.which("mandoc") or ""
BASH_ASKS = """
source "$1"
COMP_WORDS=(mdserver pu)
COMP_CWORD=1
_mdserver_completion mdserver
printf '%s\\n' "${COMPREPLY[@]}"
"""


def written(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, TOP / "packaging" / "manual.py", folder],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("share"))


def names(command: click.Command, name: str) -> set[str]:
    if not isinstance(command, click.Group):
        return {name}
    context = click.Context(command)
    below = {each: command.get_command(context, each) for each in command.list_commands(context)}
    return {name}.union(*(names(found, f"{name}-{each}") for each, found in below.items() if found))


def text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def test_each_command_has_a_page(share: Path) -> None:
    pages = {path.name.removesuffix(".1.gz") for path in share.glob("man/man1/*")}
    assert pages == names(mdserver, "mdserver")
    assert "mdserver-cluster-drain" in pages


def test_a_page_says_what_the_help_says(share: Path) -> None:
    page = text(share / "man/man1/mdserver-sub.1.gz")
    assert page.startswith('.TH "MDSERVER-SUB" "1" "2023-11-14" "mdserver ')
    assert "\n.SH NAME\nmdserver\\-sub \\- " in page
    assert "\\fB\\-\\-history N\\fP\nThe last N messages first." in page


def test_pages_are_the_same_twice(share: Path, tmp_path: Path) -> None:
    again = written(tmp_path)
    files = [path.relative_to(share) for path in share.rglob("*") if path.is_file()]
    assert len(files) > 15
    assert [
        file for file in files if (share / file).read_bytes() != (again / file).read_bytes()
    ] == []


@pytest.mark.skipif(not MANDOC, reason="needs mandoc")
def test_pages_are_well_formed(share: Path, tmp_path: Path) -> None:
    for path in share.glob("man/man1/*"):
        page = tmp_path / path.name.removesuffix(".gz")
        page.write_text(text(path))
        done = subprocess.run(
            [MANDOC, "-T", "lint", "-W", "error", page],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_bash_completes_with_it(share: Path) -> None:
    script = share / "bash-completion/completions/mdserver"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", BASH_ASKS, "bash", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "pub\n"


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("zsh", "zsh/vendor-completions/_mdserver"),
        ("fish", "fish/vendor_completions.d/mdserver.fish"),
    ],
)
def test_other_shells_can_read_it(share: Path, shell: str, file: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n", share / file], check=True)
