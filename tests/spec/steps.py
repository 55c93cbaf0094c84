"""A run of three seeds, step by step: cold election, publications, a crash, recovery, an epoch."""

import json

Step = dict[str, object]


def step(name: str, node: str, **values: object) -> Step:
    """One line of a trace, of group 0 unless it says otherwise."""
    return {"name": name, "node": node, "group": 0, **values}


def seed(
    name: str,
    node: str,
    epoch: int,
    accepted: int,
    length: int,
    standing: str = "normal",
    **values: object,
) -> Step:
    """A step of a seed, with the state after it."""
    state = {"promised": epoch, "accepted": accepted, "length": length, "standing": standing}
    return step(name, node, epoch=epoch, **state, **values)


def promise(node: str, epoch: int, accepted: int, length: int, to: str, **values: object) -> Step:
    """A seed promises an epoch to a candidate."""
    more = {"cold": False, "readmit": "", **values}
    return seed("Promise", node, epoch, accepted, length, candidate=to, **more)  # type: ignore[arg-type]


def elect(
    node: str,
    epoch: int,
    length: int,
    promises: str,
    *,
    cold: bool = False,
    number: int = 1,
    seats: str = "a,b,c",
) -> Step:
    """A candidate is elected by a list of seeds."""
    votes = {"promises": promises, "cold": cold, "list": number, "seats": seats}
    return step("Elect", node, epoch=epoch, length=length, **votes)


def start(node: str, incarnation: int, promised: int, *, lost: bool = False) -> Step:
    """A start belongs to no group."""
    return {
        "name": "Start",
        "node": node,
        "incarnation": incarnation,
        "promised": [promised],
        "seed": True,
        "lost": lost,
    }


def publish(node: str, epoch: int, length: int, publications: str) -> list[Step]:
    """A coordinator that is a seed appends, and its own log holds it."""
    return [
        step("Publish", node, epoch=epoch, length=length, publications=publications),
        seed("Accept", node, epoch, epoch, length),
    ]


def run() -> list[Step]:
    """The whole run; member `c` coordinates epoch 1, member `a` epoch 5."""
    return [
        *(start(node, 1, 0) for node in "abc"),
        *(promise(node, 1, 0, 0, "c", standing="recovering", cold=True) for node in "abc"),
        elect("c", 1, 0, "a,b,c", cold=True),
        seed("ColdSync", "c", 1, 1, 0),
        seed("ColdSync", "b", 1, 1, 0),
        step("Activate", "c", epoch=1, committed=0),
        seed("ColdSync", "a", 1, 1, 0),
        *publish("c", 1, 2, "p#1,p#2"),
        seed("Accept", "b", 1, 1, 1),
        step("Commit", "c", epoch=1, committed=1),
        step("Learn", "a", epoch=1, committed=1),
        seed("Accept", "b", 1, 1, 2),
        step("Commit", "c", epoch=1, committed=2),
        start("b", 2, 1),
        step("Register", "c", epoch=1, length=2, seed="b", registered=2),
        seed("Install", "b", 1, 1, 2),
        step("Learn", "b", epoch=1, committed=2),
        *publish("c", 1, 3, "p#3"),
        seed("Accept", "b", 1, 1, 3),
        promise("a", 5, 1, 0, "a"),
        promise("b", 5, 1, 3, "a"),
        elect("a", 5, 3, "a,b"),
        seed("Sync", "a", 5, 5, 3),
        seed("Sync", "b", 5, 5, 3),
        step("Activate", "a", epoch=5, committed=3),
        step("Learn", "a", epoch=5, committed=3),
        *publish("a", 5, 4, "p#4"),
        seed("Accept", "b", 5, 5, 4),
        step("Commit", "a", epoch=5, committed=4),
    ]


def interrupted() -> list[Step]:
    """The run, and member `c` dies twice: with its new log on the way, and before that is on disk.

    It was registered in epoch 5, but its vote file has nothing of that epoch. It asked twice, so
    it is registered once more when it already votes.
    """
    register = step("Register", "a", epoch=5, length=4, seed="c")
    return [
        *run(),
        start("c", 2, 1),
        {**register, "registered": 2},
        start("c", 3, 1),
        {**register, "registered": 3},
        seed("Install", "c", 5, 5, 4),
        {**register, "registered": 3},
        start("c", 4, 1),
    ]


def lost() -> list[Step]:
    """The run, and member `b` loses its vote record after one more promise; it is taken back."""
    return [
        *run(),
        promise("b", 9, 5, 4, "a"),
        start("b", 1, 0, lost=True),
        seed("Lose", "b", 0, 0, 0, "lost", incarnation=1024),
        promise("a", 9, 5, 4, "a", readmit="b=1024"),
        promise("c", 9, 1, 3, "a", readmit="b=1024"),
        elect("a", 9, 4, "a,c"),
        seed("Sync", "a", 9, 9, 4),
        seed("Sync", "c", 9, 9, 4),
        step("Activate", "a", epoch=9, committed=4),
        step("Readmit", "a", epoch=9, length=4, seed="b", registered=1024),
        seed("Install", "b", 9, 9, 4),
        *publish("a", 9, 5, "p#5"),
        seed("Accept", "b", 9, 9, 5),
        step("Commit", "a", epoch=9, committed=5),
    ]


def restored() -> list[Step]:
    """The run, and member `b` comes back with its log, and votes at once."""
    return [
        *run(),
        start("b", 3, 5),
        seed("Restore", "b", 5, 5, 4),
        *publish("a", 5, 5, "p#5"),
        seed("Sync", "b", 5, 5, 5),
        step("Commit", "a", epoch=5, committed=5),
    ]


def as_text(steps: list[Step]) -> str:
    """The file of a run."""
    return "".join(json.dumps(line) + "\n" for line in steps)
