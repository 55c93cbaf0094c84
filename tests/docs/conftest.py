"""What the tests of the documents share: a live server that allows everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import LiveServer, live_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server writes its logs."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LiveServer]:
    settings = (
        "Listen=127.0.0.1:0",
        "Entitlement=None",
        "Extension.Audit.Access=true",
        f"LogFolder={folder}",
    )
    with live_server(folder, *(word for each in settings for word in ("--set", each))) as running:
        yield running
