"""The JavaScript client as it is shipped: types, vectors, scenarios, size, package."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from mdserver import __version__
from tests.web.programs import CLIENT, COMPILER, HERE

Node = Callable[..., str]
BUNDLE_BYTES_MAX = 17 * 1024


def test_vectors(node: Node) -> None:
    assert "# fail 0" in node("--test", "--test-reporter=tap", "vectors.test.mjs")


def test_scenarios(node: Node) -> None:
    assert "# fail 0" in node("--test", "--test-reporter=tap", "scenarios.test.mjs")


def test_the_core_needs_no_browser(node: Node) -> None:
    told = node("--no-warnings", "--experimental-vm-modules", "bare.mjs")
    kinds = (
        "open timer transmit cancel connected notify transmit transmit transmit transmit deliver"
    )
    assert told.split() == ["1", *kinds.split(), "transmit", "0"]


def test_the_hub_of_tabs(node: Node) -> None:
    assert "# fail 0" in node("--test", "--test-reporter=tap", "hub.test.mjs")


def test_the_benchmark_hands_every_message_over(node: Node) -> None:
    few = ("--messages", "2000", "--rounds", "1", "--only", "mdserver")
    told = node("--experimental-websocket", "clients.bench.mjs", *few).splitlines()
    assert [line.split()[:2] for line in told] == [["mdserver", "binary"], ["mdserver", "JSON"]]


def test_types(node: Node) -> None:
    node(
        COMPILER,
        "-p",
        "tooling/tsconfig.json",
        "--noEmit",
        folder=CLIENT,
    )


def test_the_bundle_is_what_the_sources_make(node: Node, tmp_path: Path) -> None:
    node("tooling/bundle.mjs", tmp_path, folder=CLIENT)
    made = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    there = {file.name: file.read_text(encoding="utf-8") for file in (CLIENT / "bundle").iterdir()}
    assert made == there, "run `make javascript`"


def test_it_is_small(node: Node) -> None:
    size = "console.log(zlib.gzipSync(fs.readFileSync('bundle/mdserver.js'), {level: 9}).length)"
    assert int(node("-e", size, folder=CLIENT)) <= BUNDLE_BYTES_MAX


def test_versions_agree() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == __version__
    assert f'"mdserver-js/{__version__}"' in (CLIENT / "client.js").read_text(encoding="utf-8")


def test_the_package_installs_and_types_hold(node: Node, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm is not None
    packed = subprocess.run(
        [npm, "pack", "--silent", "--pack-destination", tmp_path],
        cwd=CLIENT,
        check=True,
        capture_output=True,
        text=True,
    )
    tarball = tmp_path / packed.stdout.split()[-1]
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    install = [npm, "install", "--silent", "--offline", "--no-audit", tarball]
    subprocess.run(install, cwd=tmp_path, check=True, capture_output=True)
    program = (
        "import { Client } from 'mdserver-client';\n"
        "import { BinaryCodec } from 'mdserver-client/binary';\n"
        "import { inflated } from 'mdserver-client/compression';\n"
        "import { MdValue, useClient } from 'mdserver-client/components';\n"
        "console.log(typeof Client, typeof BinaryCodec, typeof inflated);\n"
        "console.log(typeof MdValue, typeof useClient);\n"
    )
    (tmp_path / "program.mjs").write_text(program, encoding="utf-8")
    told = "function function function\nfunction function\n"
    assert node("program.mjs", folder=tmp_path) == told
    example = HERE / "example.ts"
    (tmp_path / "example.ts").write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    strict = (
        "--strict",
        "--noEmit",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--skipLibCheck",
    )
    node(COMPILER, *strict, "example.ts", folder=tmp_path)
