"""What docs/install.md says to run, where that needs neither root, a network nor packages.

Packages, the single file, signatures and the image are built and run by packaging/tests.
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.live import live_server, post

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "install.md").read_text(encoding="utf-8")
# Of a server that is started from a clone; others are in the folders of packages.
RUNS = [shlex.split(line)[2:] for line in re.findall(r"^mdserver run .*$", PAGE, re.MULTILINE)]


def test_the_page_has_such_a_command() -> None:
    assert len(RUNS) == 1


@pytest.mark.parametrize("options", RUNS, ids=" ".join)
def test_a_server_that_is_started_as_on_the_page_takes_a_message(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TOP)
    elsewhere = ("--set", "Listen=127.0.0.1:0", "--set", "MonitorHTTP.Listen=127.0.0.1:0")
    with live_server(tmp_path, *options, *elsewhere) as server:
        assert post(server.url, "/demo/one")["status"] == "OK"
