"""Inputs that are kept as files: `KIND-NAME` holds the bytes of one."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.inputs import KINDS, Input

FOLDER = Path(__file__).parent / "corpus"


def corpus(folder: Path = FOLDER) -> list[Input]:
    """All inputs of a folder, in the order of their names."""
    found = []
    for path in sorted(folder.iterdir()):
        kind = path.name.partition("-")[0]
        assert kind in KINDS, f"{path}: a name begins with one of {', '.join(KINDS)}"
        found.append(Input(kind, path.read_bytes()))
    return found


def save(folder: Path, inputs: Iterable[Input]) -> list[Path]:
    """Write inputs down; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for one in inputs:
        path = folder / f"{one.kind}-{hashlib.sha256(one.data).hexdigest()[:12]}"
        path.write_bytes(one.data)
        paths.append(path)
    return paths
