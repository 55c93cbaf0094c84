"""The image of the container, built and run: not as root, on a root that nobody can write to.

`make verify-packages` runs this. It needs root's rights and, of Debian's packages, podman, crun and
debootstrap. No registry of images is asked: the image below is Debian's smallest root, made here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "packaging" / "container" / "Containerfile"
TOOLS = ("podman", "crun", "debootstrap", "unshare")
PATIENCE_S = 60
TIMEOUT_S = 900  # of a command: the slowest makes a root, or the packages
# podman may not raise limits of processes on each machine that these tests run on, but lower them.
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024")
# crun does not run where both versions of control groups have controllers: it sees the first alone.
SEEING_ONE = 'umount /sys/fs/cgroup/unified 2> /dev/null; exec "$@"'
RUNNING = ("--cgroups=disabled", "--network", "none", "--read-only", "--tmpfs", "/tmp")  # noqa: S108
RIGHTS = ("--cap-drop", "all", "--security-opt", "no-new-privileges")

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a clean root"),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)} (make roots)"
    ),
]


def run(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stdout
    return done


@frozen
class Podman:
    """podman with a store of its own."""

    folder: Path

    def __call__(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        options = ("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs")
        options += ("--events-backend", "file", "--root", str(self.folder / "store"))
        options += ("--runroot", str(self.folder / "run"))
        inside = ("unshare", "--mount", "sh", "-c", SEEING_ONE, "sh")
        return run(*inside, "podman", *options, *words, check=check)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """The image `mdserver`, of the tarball of this commit."""
    folder = tmp_path_factory.mktemp("podman")
    found = Podman(folder)
    release = re.search(r"^FROM debian:(\d+)-slim$", CONTAINERFILE.read_text(), re.MULTILINE)
    assert release
    assert release[1] == "12"
    sites = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)").stdout.splitlines()
    mirror = next((line.split()[0] for line in sites if line.endswith(" bookworm")), None)
    assert mirror, f"no source of apt has bookworm, which the image is made of: {sites}"
    run("debootstrap", "--variant=minbase", "bookworm", folder / "root", mirror)
    run("tar", "-C", folder / "root", "-cf", folder / "root.tar", ".")
    found("import", folder / "root.tar", f"docker.io/library/debian:{release[1]}-slim")
    build = (sys.executable, ROOT / "packaging" / "build.py", "--only", "tar")
    run(*build, "--output", folder / "dist")
    # The format of OCI has no health check; and without layers nothing is stored twice.
    options = ("--format", "docker", "--layers=false", "--isolation", "chroot", "--pull-never")
    found("build", *options, "-f", CONTAINERFILE, "-t", "mdserver", folder / "dist")
    return found


@pytest.fixture(scope="module")
def running(podman: Podman) -> Iterator[Podman]:
    """A container `one` that serves."""
    words = ("run", "-d", "--name", "one", *RUNNING, *RIGHTS, *LIMITS)
    podman(*words, "-v", "data:/var/lib/mdserver", "-e", "MDSERVER_ENTITLEMENT=None", "mdserver")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while podman("healthcheck", "run", "one", check=False).returncode:
            assert time.monotonic() < deadline, podman("logs", "one", check=False).stdout
        yield podman
    finally:
        podman("rm", "-f", "-t", 0, "one", check=False)


def test_the_page_builds_it_as_these_tests_do() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    command = "podman build --format docker -f packaging/container/Containerfile -t mdserver dist"
    assert f"\n{command}\n" in page
    assert f"    {command}\n" in CONTAINERFILE.read_text(encoding="utf-8")


def test_the_image_says_who_runs_it_and_how_it_is_known_to_be_well(podman: Podman) -> None:
    (image,) = json.loads(podman("inspect", "mdserver").stdout)
    assert image["Config"]["User"] == "8800:8800"
    assert image["Config"]["ExposedPorts"] == {"8800/tcp": {}}
    assert image["Healthcheck"]["Test"][:2] == ["CMD", "mdserver"]


def test_it_serves_as_a_user_that_may_write_to_its_folder_only(running: Podman) -> None:
    running("exec", "one", "mdserver", "pub", "/a/b", "hello")
    assert running("exec", "one", "mdserver", "snapshot", "/a/b").stdout == "hello\n"
    assert running("exec", "one", "id", "-u").stdout == "8800\n"
    refused = running("exec", "one", "touch", "/etc/mine", check=False)
    assert refused.returncode
    assert "Read-only file system" in refused.stdout
    running("exec", "one", "touch", "/var/lib/mdserver/mine")
    status = running("exec", "one", "cat", "/proc/1/status").stdout
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)


def test_it_is_healthy_until_it_stops_which_ends_it_in_order(running: Podman) -> None:
    assert running("healthcheck", "run", "one").returncode == 0
    running("stop", "-t", PATIENCE_S, "one")
    (container,) = json.loads(running("inspect", "one").stdout)
    assert container["State"]["ExitCode"] == 0
    assert running("healthcheck", "run", "one", check=False).returncode != 0
