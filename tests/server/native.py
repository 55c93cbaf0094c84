"""The engines of the fan-out, for tests that run with each of them (`conftest.py`)."""

import importlib.util
import os
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import hatch_build
from mdserver.config import FanoutEngine
from mdserver.server.clients import fanout
from mdserver.server.clients.fanout import SendMany, open_fanout

ROOT = Path(__file__).parents[2]
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
    """What sends with this engine; skips a test if it cannot be used here.

    In CI native code must be there if it can be compiled.
    """
    found = open_fanout(engine)
    if engine not in (FanoutEngine.AUTO, found.engine):
        if engine is FanoutEngine.SEND and os.environ.get("CI"):
            with tempfile.TemporaryDirectory() as folder:
                reason = hatch_build.compiled(ROOT, Path(folder, hatch_build.MODULE))
            assert reason is not None, "it can be compiled, so the installation should have it"
        pytest.skip(str(found.reason))
    return found.send
