"""What packages bring along is what the server depends on, in the versions of an installation."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[str, str]:
    """Return the version of each project in a lock file."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))


def test_packages_lack_no_dependency_and_have_the_versions_of_an_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=\[ ;]", each)[0].lower() for each in project["dependencies"]}
    packaged, installed = pins("server.txt"), pins("run.txt")
    assert wanted
    assert wanted <= packaged.keys()
    assert packaged.items() <= installed.items()
