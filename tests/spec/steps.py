"""A run of three seeds, step by step: election, publications, a crash, recovery, a new epoch."""

import json

Step = dict[str, object]


def step(name: str, node: str, **values: object) -> Step:
    """One line of a trace, of group 0 unless it says otherwise."""
    return {"name": name, "node": node, "group": 0, **values}


def start(node: str, incarnation: int, status: str) -> Step:
    """A start belongs to no group."""
    return {"name": "Start", "node": node, "incarnation": incarnation, "status": status}


def run() -> list[Step]:
    """The whole run; member `c` coordinates epoch 1, member `a` epoch 5."""
    return [
        *(start(node, 1, "normal") for node in "abc"),
        step("Promise", "a", epoch=1, candidate="c", accepted=0, length=0),
        step("Promise", "c", epoch=1, candidate="c", accepted=0, length=0),
        step("Elect", "c", epoch=1, length=0, voters="a,c"),
        step("Sync", "c", epoch=1, length=0),
        step("Sync", "b", epoch=1, length=0),
        step("Activate", "c", epoch=1, length=0),
        step("Publish", "c", epoch=1, length=1, publication="p#1"),
        step("Publish", "c", epoch=1, length=2, publication="p#2"),
        step("Accept", "c", epoch=1, length=2),
        step("Accept", "b", epoch=1, length=1),
        step("Commit", "c", epoch=1, length=1),
        step("Learn", "a", length=1),
        step("Accept", "b", epoch=1, length=2),
        step("Commit", "c", epoch=1, length=2),
        start("b", 2, "recovering"),
        step("Forget", "b"),
        step("Register", "c", epoch=1, length=2, seed="b", incarnation=2),
        step("Install", "b", epoch=1, length=2),
        step("Learn", "b", length=2),
        step("Publish", "c", epoch=1, length=3, publication="p#3"),
        step("Accept", "b", epoch=1, length=3),
        step("Promise", "a", epoch=5, candidate="a", accepted=0, length=0),
        step("Promise", "b", epoch=5, candidate="a", accepted=1, length=3),
        step("Elect", "a", epoch=5, length=3, voters="a,b"),
        step("Sync", "a", epoch=5, length=3),
        step("Sync", "b", epoch=5, length=3),
        step("Activate", "a", epoch=5, length=3),
        step("Learn", "a", length=3),
        step("Publish", "a", epoch=5, length=4, publication="p#4"),
        step("Accept", "a", epoch=5, length=4),
        step("Accept", "b", epoch=5, length=4),
        step("Commit", "a", epoch=5, length=4),
    ]


def as_text(steps: list[Step]) -> str:
    """The file of a run."""
    return "".join(json.dumps(line) + "\n" for line in steps)
