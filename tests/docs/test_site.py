"""The site of `make site`: complete, no link that leads nowhere, nothing from elsewhere."""

import json
import os
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from attrs import Factory, define

from simulation.chaos import releases

TOP = Path(__file__).parents[2]
MKDOCS = TOP / "build/site-venv/bin/mkdocs"
VERSION = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
FOLLOWED = ("href", "src", "srcset", "poster", "data")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not MKDOCS.exists() and "CI" not in os.environ, reason="needs mkdocs (make site)"
    ),
]


@define
class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    links: list[str] = Factory(list)
    loads: list[str] = Factory(list)
    anchors: set[str] = Factory(set)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in FOLLOWED and value and tag != "form":
                (self.links if tag == "a" else self.loads).append(value)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, with a folder for each version."""
    output = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [MKDOCS.with_name("python"), TOP / "packaging" / "site" / "build.py", output],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.fixture(scope="module")
def site(built: Path) -> dict[Path, Page]:
    """The pages of all versions, each read."""
    pages = {}
    for path in built.rglob("*.html"):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


def test_every_document_is_a_page(site: dict[Path, Page], built: Path) -> None:
    names = {path.stem for path in site if path.is_relative_to(built / VERSION)}
    assert {path.stem for path in (TOP / "docs").rglob("*.md")} <= names
    assert {"openapi", "openapi-viewer", "asyncapi", "metrics", "changelog", "reporting"} <= names


@pytest.mark.skipif(releases.missing() is not None, reason=f"one version: {releases.missing()}")
def test_the_release_before_stands_beside_this_one(built: Path) -> None:
    versions = json.loads((built / "versions.json").read_text())
    assert [each["version"] for each in versions] == [VERSION, releases.RELEASE]
    for each in versions:
        assert (built / each["version"] / "configuration.html").exists()
    assert f"url={VERSION}/index.html" in (built / "index.html").read_text()
    # What came with this release is not on the pages of the one before.
    assert (built / VERSION / "metrics.html").exists()
    assert not (built / releases.RELEASE / "metrics.html").exists()


def test_no_link_leads_nowhere(site: dict[Path, Page]) -> None:
    broken = []
    for path, page in site.items():
        if path.name == "404.html":  # its links are those of the root of a site
            continue
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append((str(path), link))
            elif parts.fragment and target in site and target.suffix == ".html":
                anchors = site[target].anchors
                if unquote(parts.fragment) not in anchors:
                    broken.append((str(path), link))
    assert broken == []


def test_nothing_is_loaded_from_another_host(site: dict[Path, Page]) -> None:
    foreign = [load for page in site.values() for load in page.loads if urlsplit(load).netloc]
    assert foreign == []


def test_the_requests_of_the_openapi_document_are_shown(
    site: dict[Path, Page], built: Path
) -> None:
    page = site[built / VERSION / "openapi.html"]
    assert {"post-restproduce", "get-healthready"} <= page.anchors


def test_the_messages_of_the_asyncapi_document_are_shown(
    site: dict[Path, Page], built: Path
) -> None:
    page = site[built / VERSION / "asyncapi.html"]
    assert {"subscribe", "message", "reset"} <= page.anchors


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[one](two.md) [three](#three)\n")
    config = "site_name: x\nstrict: true\nvalidation: {links: {anchors: warn}}\n"
    (tmp_path / "mkdocs.yml").write_text(config)
    done = subprocess.run(
        [str(MKDOCS), "build", "-f", str(tmp_path / "mkdocs.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "two.md" in done.stderr
    assert "#three" in done.stderr


def test_a_folder_that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    words = [sys.executable, TOP / "packaging" / "site" / "build.py", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is not empty, and no site" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]
