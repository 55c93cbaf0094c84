"""The client without the server: built, installed into a fresh environment, and used there."""

import ast
import importlib.metadata
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.live import live_server

ROOT = Path(__file__).parents[2]
NEEDED = {"anyio", "attrs", "h11", "idna", "msgspec", "typing_extensions", "wsproto"}
PROGRAM = """
import asyncio
import sys

from mdserver.client import aio, sync

url = sys.argv[1]


async def main() -> str:
    async with aio.Client([url]) as client:
        await client.publish("/a/b", "1")
        message = await anext(client.subscribe("/a/b"))
        return str(message.content)


print(asyncio.run(main()))
with sync.Client([url], transport="http", encoding="json") as client:
    result: sync.PublishResult = client.publish("/a/b", "2", timeout_s=30)
    subscription: sync.Subscription = client.subscribe("/a/b", history=2)
    print(result.seq, [message.content for message in subscription.batch(timeout_s=30)][-1])
    reveal_type(client.submit("/a/b", "3").outcome().seq)
    client.publish("/a/b", 4)
print("trio" in sys.modules)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `make dist-client`."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT / "client",
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("mdserver_client-*.whl")
    return built


def imported(file: Path) -> set[str]:
    """The modules of mdserver that a file imports, with the packages around them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.split(".")[0] == "mdserver"}


def file_of(module: str) -> Path | None:
    """The file of a module; None for what is no module."""
    path = ROOT / "src" / Path(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


@pytest.mark.slow
def test_it_holds_what_the_client_imports_and_nothing_else(wheel: Path) -> None:
    needed: set[Path] = set()
    open_ = list((ROOT / "src" / "mdserver" / "client").rglob("*.py"))
    while open_:
        file = open_.pop()
        if file in needed:
            continue
        needed.add(file)
        if (file.parent / "__init__.py").is_file():
            open_.append(file.parent / "__init__.py")
        open_ += [found for name in imported(file) if (found := file_of(name)) is not None]
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.endswith(".py")}
    assert names == {str(file.relative_to(ROOT / "src")) for file in needed}


@pytest.mark.slow
def test_it_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """No network: what it depends on is copied from where these tests run."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    for name in NEEDED:
        for file in importlib.metadata.distribution(name).files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(file.locate())), site / file)
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    command = [*pip, "install", "--quiet", "--no-index", wheel]
    subprocess.run(command, check=True, capture_output=True)
    program = tmp_path / "program.py"
    plain = [line for line in PROGRAM.splitlines() if "reveal" not in line and ", 4)" not in line]
    program.write_text("\n".join(plain), encoding="utf-8")
    with live_server(tmp_path) as server:
        ran = subprocess.run(
            [python, "-W", "error", program, server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ran.stderr, ran.stdout) == ("", "1\n2 2\nFalse\n")
    program.write_text(PROGRAM, encoding="utf-8")
    typed = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", ""),
            *("--python-executable", python, "--cache-dir", tmp_path / "cache", program),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    told = typed.stdout.splitlines()
    assert 'Revealed type is "int"' in told[0].replace("builtins.", "")
    assert 'has incompatible type "int"; expected "str | bytes"' in told[1]
    assert "Found 1 error" in told[2]
