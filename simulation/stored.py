"""Plans that are stored whole: what they are for, their faults with all draws, and publications.

A seed stands for a plan only as long as nobody changes how plans are drawn. A stored plan stays the
same plan, so it goes on to reach the guard, or to bring the bug to light, that it was found for.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from simulation.chaos import releases
from simulation.plan import Plan

FOLDER = Path(__file__).with_name("plans")


class StoredPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and what it is kept for.

    `about`: what happens in it. `reaches`: names of guards (`mdserver.cluster.guards`) that refuse
    something in it. `mutant`: the bug of the list of mutants with which it fails, "" if none.
    `rule`: the rule of the specification without which TLC finds just this, "" if it is not TLC's.
    """

    about: str
    reaches: tuple[str, ...] = ()
    mutant: str = ""
    rule: str = ""
    plan: Plan


def load(folder: Path = FOLDER) -> dict[str, StoredPlan]:
    """Return the stored plans by their names, in the order of these.

    Those with members of the release before are left out if that is not there.
    """
    plans = {
        path.stem: msgspec.json.decode(path.read_bytes(), type=StoredPlan)
        for path in sorted(folder.glob("*.json"))
    }
    beside = [name for name, stored in plans.items() if "before" in stored.plan.versions]
    return {
        name: stored
        for name, stored in plans.items()
        if not (name in beside and releases.missing())
    }


def save(name: str, stored: StoredPlan, folder: Path = FOLDER) -> Path:
    """Write a plan down under a name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = msgspec.json.format(msgspec.json.encode(stored), indent=1)
    path.write_bytes(compact(content.decode().splitlines()).encode())
    return path


def compact(lines: Iterable[str]) -> str:
    """Put each fault and each publication, an object without objects, into one line."""
    found: list[str] = []
    inner = False
    for line in lines:
        if line.startswith("   {"):
            found.append(line)
            inner = True
        elif inner:
            found[-1] += line.strip() + ("" if line.strip().startswith("}") else " ")
            inner = not line.startswith("   }")
        else:
            found.append(line)
    return "\n".join(found) + "\n"
