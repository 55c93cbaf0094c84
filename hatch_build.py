"""Builds the native code of the server where a C compiler is, for wheels and editable installs.

It is optional: without a compiler, or without Python's headers, the wheel is one of Python alone,
and the server sends socket by socket (`FanoutEngine`). MDSERVER_NATIVE=no leaves it out as well,
MDSERVER_NATIVE=yes has the build fail without it. The same sources and compiler make the same
bytes.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/mdserver/server/clients/_sends.c")
MODULE = "_sends.abi3.so"
ABI = "cp311-abi3"  # the limited API of 3.11: one build serves all later versions
FLAGS = (
    *(
        "-O2",
        "-g0",
        "-fPIC",
        "-shared",
        "-std=gnu11",
        "-fvisibility=hidden",
        "-DNDEBUG",
        "-Wall",
        "-Wextra",
    ),
    "-Wl,--build-id=none",
)


class NativeHook(BuildHookInterface[Any]):
    """Adds the extension to a wheel, or puts it beside the sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before hatchling collects the files; `version` is "standard" or "editable"."""
        root = Path(self.root)
        beside = root / SOURCE.with_name(MODULE)
        built = root / "build" / "native" / MODULE
        if self.target_name != "wheel":
            return
        if version == "editable":
            beside.unlink(missing_ok=True)  # never written over: a process may have it loaded
            if build(root, built):
                shutil.copyfile(built, beside)
            return
        if not build(root, built):
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"{ABI}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        inside = SOURCE.relative_to("src").with_name(MODULE)
        build_data["force_include"][str(built)] = str(inside)


def build(root: Path, target: Path, *flags: str) -> bool:
    """Compile the extension; return False, with a line on stderr, if that is not possible."""
    wish = os.environ.get("MDSERVER_NATIVE", "")
    if wish == "no":
        return False
    reason = compiled(root, target, *flags)
    if reason is None:
        return True
    print(f"mdserver: without native code ({reason})", file=sys.stderr)
    if wish == "yes":
        raise SystemExit(1)
    return False


def compiled(root: Path, target: Path, *flags: str) -> str | None:
    """Compile the extension to `target`; return the reason if that is not possible."""
    if not sys.platform.startswith("linux") or sys.implementation.name != "cpython":
        return "it is for CPython on Linux"
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc")
    if compiler is None:
        return "no C compiler was found"
    headers = sysconfig.get_paths()["include"]
    if not Path(headers, "Python.h").exists():
        return "Python.h was not found"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = (compiler, *FLAGS, *flags, f"-I{headers}", str(SOURCE), "-o", str(target))
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or "the compiler failed"


if __name__ == "__main__":  # `python hatch_build.py FOLDER FLAG...` compiles it with further flags
    sys.exit(compiled(Path(__file__).parent, Path(sys.argv[1], MODULE), *sys.argv[2:]))
