"""What the tests of the documents share: a live server that allows everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import LiveServer, live_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server")) as running:
        yield running
