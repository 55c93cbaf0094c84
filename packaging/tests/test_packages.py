"""The packages as an operator gets them: built twice, installed in a clean root, used, removed.

`make verify-packages` runs this. It needs root's rights, and from Debian's packages debootstrap,
rpm and systemd; it skips without them. The clean root is Debian's smallest, with Python.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from simulation.chaos import releases
from tests.live import post

ROOT = Path(__file__).parents[2]
CONFIG = "/etc/mdserver/mdserver.conf"
EXPOSURE_MAX = 2.0
START_MAX_S = 60
PATIENCE_S = 60
PUBLISHED_LEAST = 50
KINDS = ("sdist", "wheel", "tar", "deb", "rpm", "single", "sbom")
RELEASE = ROOT / "build" / "release-venv"
SINGLE_START_MAX_S = 1  # of processor time, so that a busy machine counts for nothing
TOOLS = ("debootstrap", "rpm", "systemd-analyze", "dpkg-deb")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a clean root"),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)} (make roots)"
    ),
]


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


def built(source: Path, output: Path, *kinds: str) -> Path:
    only = [word for kind in kinds for word in ("--only", kind)]
    build = source / "packaging" / "build.py"
    environment = {**os.environ, "MDSERVER_RELEASE_TOOLS": str(RELEASE)}
    run(sys.executable, build, *only, "--output", output, cwd=source, env=environment)
    return output


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is released."""
    return built(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian of the release of this machine, from where this machine has its packages."""
    root = tmp_path_factory.mktemp("clean") / "root"
    site = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)").splitlines()
    release = platform_release()
    mirror = next(line.split()[0] for line in site if line.endswith(f" {release}"))
    run("debootstrap", "--variant=minbase", "--include=python3", release, root, mirror)
    return root


def platform_release() -> str:
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    found = re.search(r"^VERSION_CODENAME=(\S+)", text, re.MULTILINE)
    assert found
    return found[1]


def inside(root: Path, *command: object, user: str = "root") -> str:
    return run("chroot", f"--userspec={user}", root, *command)


def install(root: Path, package: Path, *options: str) -> None:
    shutil.copy(package, root / "srv")
    inside(root, "dpkg", *options, "-i", f"/srv/{package.name}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def serving(*command: object) -> Iterator[str]:
    """Run what starts a server until the end of the block; its URL."""
    url = f"http://127.0.0.1:{free_port()}"
    words = [*map(str, command), "--set", f"Listen={url.removeprefix('http://')}"]
    words += ["--set", "Entitlement=None"]  # the configuration as it comes lets nobody publish
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            began = time.monotonic()
            line = process.stdout.readline()
            assert line == f"mdserver ready: {url}\n"
            assert time.monotonic() - began < START_MAX_S
            yield url
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_two_builds_of_one_commit_are_the_same(dist: Path, tmp_path: Path) -> None:
    run("git", "clone", "-q", ROOT, tmp_path / "clone")
    again = built(tmp_path / "clone", tmp_path / "again", *KINDS)
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)


def test_the_unit_gives_few_rights() -> None:
    unit = ROOT / "packaging" / "systemd" / "mdserver.service"
    said = run("systemd-analyze", "security", "--offline=true", unit)
    found = re.search(r"Overall exposure level for mdserver.service: ([0-9.]+)", said)
    assert found, said
    assert float(found[1]) < EXPOSURE_MAX


def test_the_debian_package_is_installed_used_upgraded_and_purged(dist: Path, clean: Path) -> None:
    (package,) = dist.glob("*.deb")
    install(clean, package)
    unit = (clean / "usr/lib/systemd/system/mdserver.service").read_text()
    start = re.search(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    assert start
    command = ("chroot", "--userspec=mdserver:mdserver", clean, *start[1].split())
    with serving(*command) as url:
        assert post(url, "/a/b")["status"] == "OK"
        content = inside(clean, "mdserver", "snapshot", "/a/b", "--server", url)
        assert "hello" in content
        # The files of a running server are replaced; what it runs is in memory, and goes on.
        with (clean / CONFIG[1:]).open("a") as file:
            file.write("\nNodeName = mine\n")
        install(clean, package, "--force-confold")
        assert post(url, "/a/b")["status"] == "OK"
    assert inside(clean, "mdserver", "check-config", "--config", CONFIG, user="mdserver")
    with serving(*command) as url:
        assert post(url, "/a/b")["status"] == "OK"
    assert "NodeName = mine" in (clean / CONFIG[1:]).read_text()
    inside(clean, "dpkg", "--purge", "mdserver")
    left = run("find", clean, "-xdev", "-name", "*mdserver*", "-not", "-path", "*/srv/*.deb")
    assert [line for line in left.splitlines() if "/var/lib/dpkg/" not in line] == []


@pytest.mark.skipif(releases.missing() is not None, reason=f"no upgrade: {releases.missing()}")
def test_the_package_of_the_release_before_is_upgraded_under_load(
    dist: Path, clean: Path, tmp_path: Path
) -> None:
    """Its files are replaced while it serves; the new release reads the journal that it wrote."""
    run("git", "clone", "-q", ROOT, tmp_path / "clone")
    run("git", "-C", tmp_path / "clone", "checkout", "-q", releases.COMMIT)
    (before,) = built(tmp_path / "clone", tmp_path / "before", "deb").glob("*.deb")
    (package,) = dist.glob("*.deb")
    install(clean, before)
    assert releases.RELEASE in inside(clean, "mdserver", "--version")
    settings = {
        "Journal": "on",
        "JournalFsync": "commit",
        "JournalFolder": "/var/lib/mdserver/journal",
        "MaxCachedMessagesPerSubject": "1000000",
    }
    words = [word for item in settings.items() for word in ("--set", "=".join(item))]
    command = ("chroot", "--userspec=mdserver:mdserver", clean, "mdserver", "run", *words)
    kept: list[str] = []
    upgraded = threading.Event()

    def publish(url: str) -> None:
        while not upgraded.is_set() or len(kept) < PUBLISHED_LEAST:
            content = f"message {len(kept)}"
            if post(url, "/a/b", content=content)["status"] != "OK":
                return
            kept.append(content)

    with serving(*command) as url:
        publisher = threading.Thread(target=publish, args=(url,))
        publisher.start()
        try:
            install(clean, package, "--force-confold")
        finally:
            upgraded.set()
            publisher.join(PATIENCE_S)
    assert not publisher.is_alive()
    assert len(kept) >= PUBLISHED_LEAST
    assert releases.RELEASE not in inside(clean, "mdserver", "--version")
    with serving(*command) as url:
        assert post(url, "/a/b", content="after")["status"] == "OK"
        path = f"/rest/consume?subject=/a/b&history={len(kept) + 1}"
        messages = json.loads(run("curl", "-sf", url + path))["messages"]
    assert [message["content"] for message in messages] == [*kept, "after"]
    inside(clean, "dpkg", "--purge", "mdserver")


def test_the_configuration_is_for_root_and_the_server_only(dist: Path, clean: Path) -> None:
    (package,) = dist.glob("*.deb")
    install(clean, package)
    assert inside(clean, "stat", "-c", "%a %U %G", CONFIG) == "640 root mdserver\n"
    assert inside(clean, "stat", "-c", "%a %U %G", "/etc/mdserver") == "750 root mdserver\n"
    inside(clean, "dpkg", "--purge", "mdserver")


def test_the_tarball_runs_from_where_it_is_unpacked(dist: Path, clean: Path) -> None:
    (tarball,) = dist.glob("*-linux-*.tar.gz")
    run("tar", "-xzf", tarball, "-C", clean / "opt")
    name = tarball.name.removesuffix(".tar.gz")
    (clean / "usr/local/bin/mdserver").symlink_to(f"/opt/{name}/bin/mdserver")
    with serving("chroot", "--userspec=nobody", clean, "mdserver", "run") as url:
        assert post(url, "/a/b")["status"] == "OK"


def test_the_rpm_has_what_the_debian_package_has(dist: Path) -> None:
    """There is no Fedora here to install it on: its list of files, its scripts, what it needs."""
    (package,) = dist.glob("*.rpm")
    (debian,) = dist.glob("*.deb")
    listed = set(run("rpm", "-qlp", package).splitlines())
    shown = run("dpkg-deb", "--contents", debian).splitlines()
    files = {
        line.split(maxsplit=5)[5].removeprefix(".") for line in shown if not line.startswith("d")
    }
    assert {file.replace("vendor-completions", "site-functions") for file in files} <= listed
    assert "/usr/share/man/man1/mdserver-cluster-drain.1.gz" in listed
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"python(abi) = {python}" in run("rpm", "-qRp", package)
    assert CONFIG in run("rpm", "-qcp", package)
    assert "useradd --system" in run("rpm", "-qp", "--scripts", package)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the C library and nothing else: no Python, no shell."""
    root = tmp_path_factory.mktemp("bare")
    said = run("ldd", sys.executable)
    for library in {*re.findall(r"(/lib\S+/(?:libc|libm|libdl|libpthread|ld-\S+)\.so\S*)", said)}:
        place = root / library[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    loader = re.search(r"(/lib64/ld-\S+)", said)
    assert loader
    (root / "lib64").mkdir(exist_ok=True)
    shutil.copy(loader[1], root / loader[1][1:])
    for name in ("libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1", "libz.so.1"):
        for found in Path("/lib").glob(f"*-linux-gnu/{name}"):
            shutil.copy(found, root / found.relative_to("/"))
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    root.chmod(0o755)
    return root


def test_the_single_file_publishes_and_subscribes_without_a_python(dist: Path, bare: Path) -> None:
    (single,) = dist.glob("mdserver-*-linux-*[!z]")
    shutil.copy(single, bare / "mdserver")
    assert not list(bare.rglob("*python*"))
    command = ("chroot", "--userspec=65534:65534", bare, "/mdserver")
    with serving(*command, "run") as url:
        run(*command, "pub", "/a/b", "hello", "--server", url)
        said = run(*command, "sub", "/a/b", "--count", 1, "--quiet", "--server", url)
        assert said == "/a/b hello\n"
    run(*command, "check-config")
    assert list((bare / "tmp").iterdir()) == []


def test_the_single_file_starts_soon(dist: Path) -> None:
    (single,) = dist.glob("mdserver-*-linux-*[!z]")
    before = os.times()
    run(single, "--version")
    after = os.times()
    spent = after.children_user - before.children_user
    assert spent + after.children_system - before.children_system < SINGLE_START_MAX_S


def test_the_list_of_parts_names_what_the_packages_hold(dist: Path) -> None:
    (file,) = dist.glob("*.cdx.json")
    document = json.loads(file.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "mdserver"
    held = {part["name"]: part["version"] for part in document["components"]}
    locked = (ROOT / "requirements" / "server.txt").read_text()
    assert held == dict(re.findall(r"^(\S+)==(\S+)", locked, re.MULTILINE))
    # The time of the commit, as of everything that is built.
    made = datetime.fromisoformat(document["metadata"]["timestamp"])
    assert int(made.timestamp()) == int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))


def test_checksums_are_signed_with_a_key_that_is_given(tmp_path: Path) -> None:
    key = tmp_path / "release"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    os.environ["MDSERVER_SIGNING_KEY"] = str(key)
    try:
        built(ROOT, tmp_path / "signed", "wheel")
    finally:
        del os.environ["MDSERVER_SIGNING_KEY"]
    signers = tmp_path / "signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text()}")
    words = ("-f", signers, "-I", "release", "-n", "mdserver-release")
    sums = tmp_path / "signed" / "SHA256SUMS"
    command = ["ssh-keygen", "-Y", "verify", *map(str, words), "-s", f"{sums}.sig"]
    with sums.open() as file:
        run(*command, stdin=file)
    sums.write_text(sums.read_text() + "\n")
    with sums.open() as file:
        changed = subprocess.run(command, stdin=file, capture_output=True, check=False)
    assert changed.returncode != 0


def test_an_audit_says_when_it_could_ask_nobody() -> None:
    done = subprocess.run(
        [RELEASE / "bin" / "python", ROOT / "packaging" / "audit.py"],
        env={**os.environ, "HTTPS_PROXY": f"http://127.0.0.1:{free_port()}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "could not be reached, nothing was checked" in done.stderr


def test_the_wheel_is_installed_and_carries_the_pages(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, wheel)
    command = "import json, mdserver; print(json.dumps(mdserver.__file__))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = json.loads(run(sys.executable, "-c", command, env=environment, cwd=tmp_path))
    assert Path(found).is_relative_to(tmp_path)
    assert (tmp_path / "mdserver/web/client/bundle").is_dir()
    assert not list(tmp_path.rglob("node_modules"))
