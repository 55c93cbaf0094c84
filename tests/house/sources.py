"""Measure the sources: names, tests by name, formatter exceptions and comments."""

import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import mdserver
import mdserver.client.core.values
import mdserver.client.sync
from mdserver.cluster.node import TICK, Node
from mdserver.core.inputs import TimerDue
from mdserver.core.settings import BrokerSettings

PACKAGE = Path(mdserver.__file__).parent
ROOT = PACKAGE.parent.parent
GROUPS = (13, 29)
"""What has both sizes, one in a node of each, has one part for each group."""
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|ruff:|mypy:)")
CLIENT_API = (mdserver.client, mdserver.client.sync, mdserver.client.core.values)
"""What docs/clients.md names: the two clients, and the outputs for those who write a driver."""
WORDS_MIN = 4
"""A comment of fewer words is a heading."""


def modules(*packages: str) -> Iterator[Path]:
    """Yield the modules of some packages of the server; of all without arguments."""
    for package in packages or (".",):
        for path in sorted((PACKAGE / package).rglob("*.py")):
            if path.stem not in {"__init__", "__main__"}:
                yield path


def doubled_names() -> dict[str, list[str]]:
    """Return the public names of classes that several modules define at their top, with those.

    Names that a client exports (`CLIENT_API`) count elsewhere only. They are for programs, which
    see no other module: both clients call the same things by the same names on purpose, and a
    program's `Publication` is a handle on what is a `Publication` in the core.
    """
    exported = {name for module in CLIENT_API for name in vars(module)}
    places: dict[str, list[str]] = {}
    for path in modules():
        place = str(path.relative_to(PACKAGE))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if not (place.startswith("client/") and node.name in exported):
                places.setdefault(node.name, []).append(place)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def untested(*packages: str) -> list[str]:
    """Return the modules without a test file of their name: `test_log.py`, `test_log_model.py`."""
    tests = [path.stem for path in (ROOT / "tests").rglob("test_*.py")]
    return [
        str(path.relative_to(PACKAGE))
        for path in modules(*packages)
        if not any(re.fullmatch(f"test_{path.stem}(_.*)?", test) for test in tests)
    ]


def formatter_skips() -> int:
    """Count the places that the formatter must leave alone."""
    skip = "# fmt: " + "skip"
    folders = ("src", "tests", "simulation", "spec")
    return sum(
        path.read_text(encoding="utf-8").count(skip)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    )


def comments(*packages: str) -> tuple[int, int]:
    """Count the lines with a comment that is a sentence, and all lines that are not blank."""
    told = lines = 0
    for path in modules(*packages):
        text = path.read_text(encoding="utf-8")
        lines += sum(1 for line in text.splitlines() if line.strip())
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
                told += len(token.string.split()) > WORDS_MIN
    return told, lines


def group_state() -> list[str]:
    """Return where a node keeps something for each subject group.

    These are the containers in the cluster's objects that grow with the number of groups, each
    under the first attribute that names it. The vote record is left out: it is what stands in the
    file. The cache is, too: it is the broker's.
    """
    few, many = (containers(count) for count in GROUPS)
    return sorted(few & many)


def containers(groups: int) -> set[str]:
    """Return the attributes of a node's objects that hold as many things as there are groups."""
    found: dict[int, str] = {}
    seen: set[int] = set()
    node = Node(BrokerSettings(groups=groups), random.Random(1))
    node.step(TimerDue(TICK), 1)  # has nothing more to say than a timer
    left: list[object] = [node]
    while left:
        one = left.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        for name, value in attributes(one):
            module = type(value).__module__
            if isinstance(value, list | tuple | dict) and len(value) == groups:
                found.setdefault(id(value), f"{type(one).__name__}.{name}")
            if module.startswith("mdserver.cluster") and not module.endswith(".votes"):
                left.append(value)
    return set(found.values())


def attributes(one: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes that an object has of its own, in slots or not."""
    names = dict.fromkeys(getattr(one, "__dict__", ()))
    for kind in type(one).__mro__:
        slots = getattr(kind, "__slots__", ())
        names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    for name in names:
        if hasattr(one, name):
            yield name, getattr(one, name)
