"""`make jars`: if Maven fails, or fetches nothing, that is named and earlier jars are kept."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FETCHES = (
    "for each; do case $each in -Dout*) mkdir -p ${each#*=}; touch ${each#*=}/x.jar;; esac; done"
)
"""What Maven does, as far as `make` sees it."""
SPARK_FAILS = 'case "$*" in *"-P spark"*) echo "no network" >&2; exit 1;; esac\n'
SPARK_IS_EMPTY = 'case "$*" in *"-P spark"*) exit 0;; esac\n'


def made(folder: Path, target: str, maven: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    """Run make in a copy of the repository that has what the target needs, and this Maven."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    (folder / "jvm").mkdir(exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("Makefile", "jvm/pom.xml"):
        shutil.copy(TOP / name, folder / name)
    (folder / "bin" / "mvn").write_text(f"#!/bin/sh\n{maven}", encoding="utf-8")
    (folder / "bin" / "mvn").chmod(0o755)
    path = f"{folder}/bin:{os.environ['PATH']}"
    return subprocess.run(
        [make, target],
        cwd=folder,
        env={**os.environ, "PATH": path, "CI": ci, "MAKEFLAGS": "", "MAKELEVEL": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def jars(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("build/jvm/*/*.jar")}


def fetched_before(folder: Path) -> None:
    """Make the jars of an earlier run, which are older than `pom.xml`."""
    (folder / "build" / "jvm" / "spark").mkdir(parents=True)
    for name in ("spark/old.jar", ".done"):
        (folder / "build" / "jvm" / name).touch()
        os.utime(folder / "build" / "jvm" / name, (0, 0))


def test_all_are_fetched(tmp_path: Path) -> None:
    run = made(tmp_path, "jars", FETCHES)
    assert run.returncode == 0, run.stderr
    assert jars(tmp_path) == {"broker", "spark", "s3a"}
    assert (tmp_path / "build" / "jvm" / ".done").exists()


@pytest.mark.parametrize("maven", [SPARK_FAILS, SPARK_IS_EMPTY])
def test_one_is_not_fetched(tmp_path: Path, maven: str) -> None:
    run = made(tmp_path, "jars", maven + FETCHES)
    assert run.returncode == 2
    assert "NO JARS: Maven fetched none for build/jvm/spark" in run.stderr
    assert list((tmp_path / "build").glob("*")) == []


@pytest.mark.parametrize("maven", [SPARK_FAILS, SPARK_IS_EMPTY])
def test_jars_of_before_are_kept_until_all_new_ones_are_there(tmp_path: Path, maven: str) -> None:
    fetched_before(tmp_path)
    run = made(tmp_path, "jars", maven + FETCHES)
    assert run.returncode == 2
    assert "The jars that were in build/jvm are left there." in run.stderr
    assert (tmp_path / "build" / "jvm" / "spark" / "old.jar").exists()
    # They are those of another pom.xml, so the next run fetches again.
    assert made(tmp_path, "jars", FETCHES).returncode == 0
    assert jars(tmp_path) == {"broker", "spark", "s3a"}
    assert not (tmp_path / "build" / "jvm" / "spark" / "old.jar").exists()
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["jvm"]


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 2)])
def test_tests_run_without_jars_except_in_ci(tmp_path: Path, ci: str, status: int) -> None:
    run = made(tmp_path, "try-jars", SPARK_FAILS + FETCHES, ci)
    assert run.returncode == status
    assert "NO JARS: " in run.stderr
