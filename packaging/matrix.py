"""Runs the tests of core, codec, cluster, clients and sessions on each Python that is installed.

`make matrix` runs this. Python 3.N is looked for as `python3.N` on the PATH, then among those of
pyenv. One that is not found is named, and fails the run only if the environment has CI. Each has an
environment of its own, with the packages and hashes of requirements/dev.txt.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".venv" / "bin" / "uv"
MINORS = (11, 12, 13, 14)
TESTS = ("core", "codec", "cluster", "client/core", "config", "server/clients")


def interpreter(minor: int) -> str | None:
    """Return the path of Python 3.`minor`, or None if it is not installed."""
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python3")))]
    # One that a version switcher has put on the PATH may be switched off, so each is asked.
    return next((path for path in found if path and _answers(path, f"3.{minor}")), None)


def _answers(path: str, version: str) -> bool:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def passes(python: str, folder: Path) -> bool:
    """Make an environment of this Python in a folder, and run the tests there."""
    installing = [UV, "pip", "install", "--quiet", "--python", folder]
    commands = [
        [UV, "venv", "--quiet", "--clear", "--python", python, folder],
        [*installing, "--require-hashes", "-r", ROOT / "requirements" / "dev.txt"],
        [*installing, "--no-deps", "--no-build-isolation", "-e", ROOT],
        [folder / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "-m", "not slow"],
    ]
    commands[-1] += [ROOT / "tests" / name for name in TESTS]
    return all(subprocess.run(words, cwd=ROOT, check=False).returncode == 0 for words in commands)


def main() -> None:
    """Exit with 1 if tests fail with one of them."""
    failed: list[str] = []
    for minor in MINORS:
        version = f"3.{minor}"
        python = interpreter(minor)
        if python is None:
            print(
                f"NO PYTHON {version}: it is not installed, nothing was tried with it", flush=True
            )
            failed += [version] if os.environ.get("CI") else []
            continue
        print(f"Python {version}, {python}", flush=True)
        if not passes(python, ROOT / "build" / "matrix" / version):
            failed.append(version)
    if failed:
        sys.exit(f"matrix: not passed with Python {', '.join(failed)}")


if __name__ == "__main__":
    main()
