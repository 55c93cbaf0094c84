"""Build what is released into dist/: packages, a single file, what they hold, their checksums.

    python packaging/build.py [--only KIND]... [--output dist]

The same commit gives the same bytes: every file has the time of the commit (`SOURCE_DATE_EPOCH`,
reproducible-builds.org), root as its owner, and a place in sorted order. The packages bring the
dependencies of requirements/server.txt along, for the Python that builds them, because no
distribution has all of them; what they need from the system is that Python alone. The single file
brings Python along as well.

With MDSERVER_SIGNING_KEY, the file of an SSH key, SHA256SUMS is signed: `SHA256SUMS.sig`.
"""

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "packages"
# Where cyclonedx-py and pyinstaller are, with what the server depends on (`make dist` makes it).
RELEASE = Path(os.environ.get("MDSERVER_RELEASE_TOOLS", ROOT / "build" / "release-venv")) / "bin"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
NEXT_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# bin/mdserver beside lib/mdserver, below /usr or wherever a tarball is unpacked.
LAUNCHER = """#!/usr/bin/python3 -sP
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib" / "mdserver"))
from mdserver.cli.main import main

main()
"""
SUMMARY = "real-time messaging server: subjects pushed to very many subscribers"


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return what it printed; its errors are shown, and end the program."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch()), **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"packaging: {' '.join(map(str, command[:3]))} failed\n{done.stdout}")
    return done.stdout


def epoch() -> int:
    """Return the time of the commit (s since the Unix epoch); SOURCE_DATE_EPOCH goes first."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        command = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
        given = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(given)


def version() -> str:
    """Return the version that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def wheel(output: Path) -> Path:
    """Build the wheel; its name says whether native code is in it (hatch_build.py)."""
    pattern = f"mdserver-{version()}-*.whl"
    for earlier in output.glob(pattern):
        earlier.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", output)
    (built,) = output.glob(pattern)
    return built


def sdist(output: Path) -> Path:
    """Build the source distribution."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", output)
    return output / f"mdserver-{version()}.tar.gz"


@cache
def library(output: Path) -> Path:
    """Install the server and what it depends on into one folder; return it."""
    target = BUILD / "library"
    shutil.rmtree(target, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    pip += ("--no-compile", "--no-warn-conflicts", "--target", str(target))
    built = wheel(output)
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "server.txt")
    shutil.rmtree(target / "bin", ignore_errors=True)  # pip complains of one that is there
    run(*pip, "--no-deps", built)
    # Programs, which would start the Python that built this, and the place of the wheel.
    shutil.rmtree(target / "bin", ignore_errors=True)
    for name in ("direct_url.json", "REQUESTED"):
        for path in target.glob(f"*.dist-info/{name}"):
            path.unlink()
            record = path.with_name("RECORD")
            lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if f"/{name}," not in line]
            record.write_text("".join(kept), encoding="utf-8")
    return target


def system(output: Path) -> Path:
    """Lay the files out as they are installed on a system; return the folder that stands for /."""
    tree = BUILD / "system"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(library(output), tree / "usr/lib/mdserver")
    place(tree / "usr/bin/mdserver", LAUNCHER, 0o755)
    for unit in ("mdserver.service", "mdserver.socket"):
        place(tree / "usr/lib/systemd/system" / unit, read(HERE / "systemd" / unit))
    place(tree / "etc/mdserver/mdserver.conf", read(ROOT / "conf/mdserver.conf"), 0o640)
    run(sys.executable, HERE / "manual.py", tree / "usr/share")
    document = tree / "usr/share/doc/mdserver"
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")):
        place(document / page.relative_to(ROOT), read(page))
    place(document / "copyright", read(ROOT / "LICENSE"))
    dated(tree)
    return tree


def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def place(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file, and make the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def dated(tree: Path) -> None:
    """Give everything in a tree the time of the commit, and folders the usual rights."""
    for path in (tree, *tree.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (epoch(), epoch()))


def tar(output: Path) -> Path:
    """Build a tarball that runs from wherever it is unpacked."""
    machine = os.uname().machine
    name = f"mdserver-{version()}-linux-{machine}"
    tree = BUILD / name
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(library(output), tree / "lib" / "mdserver")
    place(tree / "bin" / "mdserver", LAUNCHER, 0o755)
    run(sys.executable, HERE / "manual.py", tree / "share")
    place(tree / "conf" / "mdserver.conf", read(ROOT / "conf/mdserver.conf"))
    place(tree / "LICENSE", read(ROOT / "LICENSE"))
    file = output / f"{name}.tar.gz"
    # gzip writes a time of its own, unless it is given one.
    with (
        gzip.GzipFile(file, "wb", mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,  # type: ignore[arg-type]
    ):
        for path in sorted(tree.rglob("*")):
            archive.add(path, Path(name, path.relative_to(tree)), recursive=False, filter=of_root)
    return file


def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Have an entry of an archive belong to root and have the time of the commit."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = epoch()
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def deb(output: Path) -> Path:
    """Build the Debian package."""
    tree = system(output)
    control = tree / "DEBIAN"
    architecture = ARCHITECTURES[os.uname().machine]
    place(
        control / "control",
        f"Package: mdserver\nVersion: {version()}\nArchitecture: {architecture}\n"
        "Maintainer: mdserver <mdserver@localhost>\nSection: net\nPriority: optional\n"
        f"Depends: python3 (>= {PYTHON}), python3 (<< {NEXT_PYTHON}), passwd\n"
        f"Description: {SUMMARY}\n"
        " Publishers reach browsers, phones and services over WebSocket and HTTP in\n"
        " milliseconds. Several servers form a cluster that loses no acknowledged message.\n",
    )
    place(control / "conffiles", "/etc/mdserver/mdserver.conf\n")
    for name in ("postinst", "prerm", "postrm"):
        place(control / name, read(HERE / "deb" / name), 0o755)
    dated(control)
    file = output / f"mdserver_{version()}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "--build", tree, file)
    return file


def rpm(output: Path) -> Path:
    """Build the RPM package."""
    tree = system(output)
    top = BUILD / "rpm"
    shutil.rmtree(top, ignore_errors=True)
    options = {
        "_topdir": top,
        "_tree": tree,
        "_version": version(),
        "_python": PYTHON,
        "_buildhost": "localhost",
        "_build_id_links": "none",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
    }
    words = [f"--define={name} {value}" for name, value in options.items()]
    run("rpmbuild", "--quiet", "-bb", *words, HERE / "rpm" / "mdserver.spec")
    (built,) = top.glob("RPMS/*/*.rpm")
    return Path(shutil.copyfile(built, output / built.name))


def single(output: Path) -> Path:
    """Build one file that runs without a Python: it unpacks itself, and loads what it brings."""
    tree = BUILD / "single"
    shutil.rmtree(tree, ignore_errors=True)
    place(tree / "start.py", "from mdserver.cli.main import main\n\nmain()\n")
    name = f"mdserver-{version()}-linux-{os.uname().machine}"
    words: tuple[str | Path, ...] = ("--onefile", "--name", name, "--log-level", "ERROR")
    words += ("--paths", library(output), "--collect-all", "mdserver")
    for module in ("mdserver.pipeline", "setuptools", "pip", "PyInstaller"):
        words += ("--exclude-module", module)
    words += ("--distpath", output, "--workpath", tree / "work", "--specpath", tree)
    # Sets of names are written in the order of their hashes.
    run(
        RELEASE / "pyinstaller",
        *words,
        tree / "start.py",
        PYTHONHASHSEED="0",
        PYTHONPATH=str(library(output)),
    )
    return output / name


def sbom(output: Path) -> Path:
    """Write down what the packages hold, as CycloneDX has it: names, versions, hashes."""
    file = output / f"mdserver-{version()}.cdx.json"
    words = ("--output-reproducible", "--short-PURLs", "--pyproject", ROOT / "pyproject.toml")
    words += ("--mc-type", "application", "--of", "JSON", "-o", file)
    run(RELEASE / "cyclonedx-py", "requirements", *words, ROOT / "requirements" / "server.txt")
    return file


def sign(sums: Path, key: str) -> None:
    """Sign the checksums with an SSH key; docs/install.md says how to verify that."""
    run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "mdserver-release", sums)


KINDS: dict[str, Callable[[Path], Path]] = {
    "sdist": sdist,
    "wheel": wheel,
    "tar": tar,
    "deb": deb,
    "rpm": rpm,
    "single": single,
    "sbom": sbom,
}
NEEDS = {
    "deb": "dpkg-deb",
    "rpm": "rpmbuild",
    "single": str(RELEASE / "pyinstaller"),
    "sbom": str(RELEASE / "cyclonedx-py"),
}


def main() -> None:
    """Build what is asked for, or everything for which the tools are there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=KINDS, help="this kind; repeatable")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist/")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    sums = []
    for kind in given.only or KINDS:
        if not shutil.which(NEEDS.get(kind, "true")):
            if given.only:
                sys.exit(f"packaging: {kind} needs {NEEDS[kind]} (make dist)")
            print(f"{kind}: left out, there is no {NEEDS[kind]}", file=sys.stderr)
            continue
        file = KINDS[kind](given.output.resolve())
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sums.append(f"{digest}  {file.name}\n")
        print(f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")
    file = given.output / "SHA256SUMS"
    file.write_text("".join(sums), encoding="utf-8")
    Path(f"{file}.sig").unlink(missing_ok=True)
    key = os.environ.get("MDSERVER_SIGNING_KEY")
    if key:
        sign(file.resolve(), key)


if __name__ == "__main__":
    main()
