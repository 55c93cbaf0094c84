"""The engines of the fan-out, for tests that run with each of them (`conftest.py`)."""

import importlib.util
import os
import sys
from importlib.machinery import ExtensionFileLoader
from types import ModuleType

import pytest

from mdserver.config import FanoutEngine
from mdserver.server.clients import fanout
from mdserver.server.clients.fanout import SendMany, open_fanout

NAME = "mdserver.server.clients._sends"
ENGINES = (FanoutEngine.PYTHON, FanoutEngine.SEND, FanoutEngine.IO_URING)


def loaded(path: str) -> ModuleType:
    """The extension from a file, in place of the one that is installed."""
    loader = ExtensionFileLoader(NAME, path)
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TESTED := os.environ.get("MDSERVER_TESTED_SENDS"):  # `make check-native`
    fanout._sends = sys.modules[NAME] = loaded(TESTED)
    fanout.INSTALLED = True


def usable(engine: FanoutEngine) -> SendMany | None:
    """What sends with this engine; skips a test that cannot be run here, but in CI."""
    found = open_fanout(engine)
    if engine not in (FanoutEngine.AUTO, found.engine):
        if engine is FanoutEngine.SEND and os.environ.get("CI"):
            pytest.fail(str(found.reason))
        pytest.skip(str(found.reason))
    return found.send
