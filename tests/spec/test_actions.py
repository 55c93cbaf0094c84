"""The table of spec/README.md, the steps that traces know, the modules and the code agree."""

import importlib
import re
from pathlib import Path

import mdserver.cluster
from spec import models, traces

FOLDER = Path(models.__file__).parent
CODE = Path(next(iter(mdserver.cluster.__path__)))
ROW = re.compile(r"^\| `(\w+)` \|.*\| (.+?) \| `([\w.]+)` \|$", re.M)
WRITTEN_BY_THE_DRIVER = {"Start", "Forget"}


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall((FOLDER / "README.md").read_text())


def test_table_names_every_step_of_a_trace() -> None:
    assert tuple(name for name, _, _ in rows()) == traces.ACTIONS


def test_every_action_of_the_table_is_in_a_module() -> None:
    modules = "\n".join(path.read_text() for path in FOLDER.glob("*.tla"))
    for name, actions, _ in rows():
        for action in re.findall(r"`(?:\w+!)?(\w+)(?:\.tla)?`", actions):
            known = re.search(rf"^{action}\(|MODULE {action}\b", modules, re.M)
            assert known or action == "Start", f"{name}: there is no {action}"


def test_every_function_of_the_table_exists() -> None:
    for name, _, path in rows():
        module, _, rest = path.partition(".cluster.")
        file, *attributes = rest.split(".")
        found = importlib.import_module(f"{module}.cluster.{file}")
        for attribute in attributes:
            found = getattr(found, attribute)
        assert callable(found), name


def test_the_code_traces_every_step_and_no_other() -> None:
    text = "\n".join(path.read_text() for path in CODE.glob("*.py"))
    calls = re.findall(r"(?:\.trace|\bself)\(\s*([^,]*(?:,|$))", text)
    traced = {name for call in calls for name in re.findall(r'"(\w+)"', call)}
    if "STEP_TRACES[" in text:
        table = re.search(r"STEP_TRACES = \{(.*?)\}", text, re.S)
        assert table is not None
        traced |= set(re.findall(r'"(\w+)"', table.group(1)))

    assert traced == set(traces.ACTIONS) - WRITTEN_BY_THE_DRIVER


def test_every_module_is_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text()

    for path in FOLDER.glob("*.tla"):
        assert f"`{path.stem}`" in text
