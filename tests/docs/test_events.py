"""The page lists the events of cluster and journal as the code has them, in both directions."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mdserver
from mdserver.server.cluster_log import LEVELS

PACKAGE = Path(mdserver.__file__).parent
PAGE = PACKAGE.parents[1] / "docs/operations.md"
SECTION = "## Events of a cluster\n"
ROW = re.compile(r"^\| `([^`]+)` \| (error|warning|info|debug) \|", re.MULTILINE)
SERVER = ("peers/*.py", "disk/*.py", "member.py", "store.py")
METHODS = {"exception": "error"} | dict.fromkeys(("error", "warning", "info", "debug"), "")
FOUND_HERE = {"member out of service", "member in service again"}
"""Events that no step of a node can find."""


def listed() -> dict[str, str]:
    """Event -> level, as the page says."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    rows = ROW.findall(section)
    assert len(rows) == len(dict(rows)), "an event is listed twice"
    return dict(rows)


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            yield node


def texts(node: ast.expr, module: str) -> list[str]:
    """The values that an argument may have."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return [*texts(node.body, module), *texts(node.orelse, module)]
    assert isinstance(node, ast.Name), f"{module}: the name of an event is no constant"
    return [str(getattr(importlib.import_module(module), node.id))]


def said_by_nodes() -> set[str]:
    found: set[str] = set()
    for path in sorted((PACKAGE / "cluster").glob("*.py")):
        for call in calls(path):
            assert isinstance(call.func, ast.Attribute)
            owner = ast.unparse(call.func.value)
            if call.func.attr == "log" and owner.endswith("outgoing"):
                found.update(texts(call.args[0], f"mdserver.cluster.{path.stem}"))
    return found


def said_by_server() -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern in SERVER:
        for path in sorted((PACKAGE / "server").glob(pattern)):
            for call in calls(path):
                assert isinstance(call.func, ast.Attribute)
                name = call.func.attr
                owner = ast.unparse(call.func.value)
                if name in METHODS and owner.rpartition(".")[2] in {"log", "_log"}:
                    (event,) = texts(call.args[0], "")
                    found[event] = METHODS[name] or name
    return found


def test_every_event_of_a_node_has_a_level() -> None:
    assert said_by_nodes() | FOUND_HERE == set(LEVELS)


def test_the_page_lists_the_events_with_their_levels() -> None:
    assert listed() == LEVELS | said_by_server()


@pytest.mark.parametrize(
    "event", ["vote record lost", "member out of service", "journal blocked", "journal lines lost"]
)
def test_what_only_an_operator_can_mend_is_an_error(event: str) -> None:
    assert listed()[event] == "error"
