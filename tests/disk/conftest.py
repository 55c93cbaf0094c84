"""A disk that fails on purpose, under real processes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from attrs import frozen

SOURCE = Path(__file__).with_name("failing_files.c")


@frozen
class FailingDisk:
    """What file calls of processes with `environment` do. Patterns are those of fnmatch."""

    library: Path
    control: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(self.library), "FAILING_FILES": str(self.control)}

    def fails(self, *rules: str) -> None:
        """From now on calls fail as these rules say: CALL ERROR COUNT PATTERN."""
        fresh = self.control.with_suffix(".new")
        fresh.write_text("".join(f"{rule}\n" for rule in rules))
        fresh.replace(self.control)

    def works(self) -> None:
        """From now on nothing fails."""
        self.fails()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes file calls fail, compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("there is no C compiler: CI has to test what a failing disk does")
        pytest.skip("NOT TESTED HERE: what a failing disk does. Install gcc for it.")
    made = tmp_path_factory.mktemp("disk") / "failing_files.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", made, SOURCE, "-ldl"],
        check=True,
    )
    return made


@pytest.fixture
def disk(library: Path, tmp_path: Path) -> FailingDisk:
    return FailingDisk(library, tmp_path / "faults")
