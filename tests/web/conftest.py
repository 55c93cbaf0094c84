"""Node, for the tests of the JavaScript client."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.web.programs import CLIENT, HERE

NODE_TIMEOUT_S = 300


@pytest.fixture(scope="session")
def node() -> Callable[..., str]:
    """Runs Node with arguments and gives what it printed; a failure fails the test.

    Without Node the tests are skipped, which CI takes for a failure.
    """
    program = shutil.which("node")
    if program is None or not (CLIENT / "node_modules").is_dir():
        missing = "node, or what it needs, is not there: `make javascript` installs it"
        if os.environ.get("CI"):
            pytest.fail(f"JAVASCRIPT TESTS CANNOT RUN: {missing}")
        pytest.skip(f"JAVASCRIPT TESTS SKIPPED: {missing}")

    def run(
        *arguments: str | Path,
        folder: Path = HERE,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        done = subprocess.run(
            [program, *map(str, arguments)],
            cwd=folder,
            env=os.environ | dict(environment or {}),
            capture_output=True,
            text=True,
            timeout=NODE_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
