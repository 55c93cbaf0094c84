"""The models that are checked: which module, which bounds, which rules off, what must come out.

Three kinds. A model of kind "holds" must be exhausted without an error; a "witness" asks whether
an interesting state can be reached, so its invariant must be violated; a "mutant" has one rule of
the protocol switched off, and some invariant must be violated.
"""

from attrs import frozen

LOG = (
    "CommittedSurvives",
    "HeldByEveryMajority",
    "Agreement",
    "Identity",
    "EpochsRise",
    "Once",
    "PublisherOrder",
    "CommittedHasNoHole",
)
DELIVERY = ("DeliveredIsCommitted", "SeenIsCommitted", "AckIsTrue", "ReadyHoldsAll")
COLD = ("SurvivesInHistory", "AgreementInHistory", "KeepsWhatSurvived", "EpochsRise", "Identity")
CANDIDATES = ("OneCoordinator", "FileIsAhead")
RECONFIGURE = (
    "CommittedSurvives",
    "Agreement",
    "Once",
    "ConfigurationsRise",
    "OldSeedsAreFree",
)
RELIST = ("CommittedSurvives", "Agreement", "Once", "OldSeedsAreFree")

SPECIFICATIONS = {
    "GroupLog": "Spec",
    "Readmit": "RSpec",
    "ColdStart": "CSpec",
    "HandOver": "HSpec",
    "Delivery": "Spec",
    "Candidates": "Spec",
    "Reconfigure": "Spec",
    "Relist": "Spec",
}
UNSYMMETRIC = ("Reconfigure", "Relist")  # their seeds differ by the lists that they are in


@frozen
class Model:
    """One run of TLC. `profile` is the smallest of "quick", "ci" and "full" that includes it."""

    name: str
    kind: str
    module: str
    sets: dict[str, int | str]
    invariants: tuple[str, ...]
    off: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    constraint: str | None = None
    idle: tuple[str, ...] = ()  # actions that these bounds or rules leave out
    profile: str = "ci"
    symmetric: bool = True

    def config(self) -> str:
        """The text of the configuration file."""
        constants: list[str] = []
        for name, value in self.sets.items():
            members = value if isinstance(value, str) else _members(name, value)
            if members.startswith("{") and not members.startswith(("{1", '{"')):
                constants += [f" {m} = {m}" for m in members.strip("{}").split(", ")]
            equals = "<-" if name in {"Config", "Stands"} else "="
            constants.append(f" {name} {equals} {members}")
        rules = ", ".join(f'"{rule}"' for rule in self.off)
        lines = [f"SPECIFICATION {SPECIFICATIONS[self.module]}", "CONSTANTS", *constants]
        lines.append(f" Off = {{{rules}}}")
        if self.symmetric:
            lines.append("SYMMETRY Symmetry")
        if self.constraint:
            lines.append(f"CONSTRAINT {self.constraint}")
        if self.invariants:
            lines.append("INVARIANTS " + " ".join(self.invariants))
        if self.properties:
            lines.append("PROPERTIES " + " ".join(self.properties))
        return "\n".join(lines) + "\n"


def _members(name: str, count: int) -> str:
    """A set of so many model values for a set, the number itself for a bound."""
    if name.startswith("Max"):
        return str(count)
    prefix = {"Seed": "s", "Publication": "p", "Learner": "l", "Candidate": "c"}[name]
    return "{" + ", ".join(f"{prefix}{i}" for i in range(1, count + 1)) + "}"


def log(epochs: int, crashes: int, publications: int, seeds: int = 3) -> dict[str, int | str]:
    """Bounds of GroupLog: publications with identities but without numbers."""
    return {
        "Seed": seeds,
        "Publication": publications,
        "MaxEpoch": epochs,
        "MaxCrash": crashes,
        "Numbered": "FALSE",
    }


def numbered(epochs: int, crashes: int, publications: int) -> dict[str, int | str]:
    """Bounds of GroupLog with one publisher that counts."""
    numbers = "{" + ", ".join(str(i) for i in range(1, publications + 1)) + "}"
    return log(epochs, crashes, 1) | {"Publication": numbers, "Numbered": "TRUE"}


def delivery(epochs: int, joins: int, publications: int, learners: int) -> dict[str, int | str]:
    """Bounds of Delivery."""
    return {
        "Learner": learners,
        "Publication": publications,
        "MaxEpoch": epochs,
        "MaxJoin": joins,
    }


def candidates(epochs: int, crashes: int) -> dict[str, int | str]:
    """Bounds of Candidates."""
    return {"Seed": 3, "Candidate": 2, "MaxEpoch": epochs, "MaxCrash": crashes}


def reconfigure(config: str, seeds: int, epochs: int, publications: int) -> dict[str, int | str]:
    """Bounds of Reconfigure: `config` names a sequence of configurations in the module."""
    names = ", ".join(f'"s{number}"' for number in range(1, seeds + 1))
    return {
        "Seed": f"{{{names}}}",
        "Config": config,
        "Publication": publications,
        "MaxEpoch": epochs,
    }


def relist(
    config: str, seeds: int, epochs: int, publications: int, stands: str = "AnyList"
) -> dict[str, int | str]:
    """Bounds of Relist: `stands` names who may stand for each epoch."""
    return {**reconfigure(config, seeds, epochs, publications), "Stands": stands}


PEERS = ("InstallFromPeers",)
CALM = ("Crash", "Install", "Register", *PEERS)

HOLDS = (
    Model("log 2e 0c 2p", "holds", "GroupLog", log(2, 0, 2), LOG, idle=CALM, profile="quick"),
    Model("log 2e 1c 1p", "holds", "GroupLog", log(2, 1, 1), LOG, idle=PEERS),
    Model(
        "log 2e 0c numbers 1-2",
        "holds",
        "GroupLog",
        numbered(2, 0, 2),
        LOG,
        idle=CALM,
        profile="quick",
    ),
    Model("log 3e 0c 1p", "holds", "GroupLog", log(3, 0, 1), LOG, idle=CALM),
    Model(
        "hand-over 2e 0c 2p",
        "holds",
        "HandOver",
        log(2, 0, 2),
        LOG,
        idle=("Shortcut", "Crash", "Install", "Register"),
    ),
    Model("cold start 2e 1c 1p", "holds", "ColdStart", log(2, 1, 1), COLD),
    Model("candidates 2e 2c", "holds", "Candidates", candidates(2, 2), CANDIDATES, profile="quick"),
    Model(
        "delivery 2e 1j 2p 2l",
        "holds",
        "Delivery",
        delivery(2, 1, 2, 2),
        DELIVERY,
        properties=("NeverBack",),
        profile="quick",
    ),
    Model(
        "one seed replaced 2e 1p",
        "holds",
        "Reconfigure",
        reconfigure("ReplaceOne", 4, 2, 1),
        RECONFIGURE,
        profile="quick",
        symmetric=False,
    ),
    Model(
        "two seeds replaced 2e 1p",
        "holds",
        "Reconfigure",
        reconfigure("ReplaceTwo", 5, 2, 1),
        RECONFIGURE,
        symmetric=False,
    ),
    Model(
        "another list: one more seed 2e 1p",
        "holds",
        "Relist",
        relist("OneMore", 4, 2, 1),
        RELIST,
        profile="full",
        symmetric=False,
    ),
    Model("log 2e 1c 2p", "holds", "GroupLog", log(2, 1, 2), LOG, idle=PEERS, profile="full"),
    Model(
        "log 2e 1c numbers 1-2",
        "holds",
        "GroupLog",
        numbered(2, 1, 2),
        LOG,
        idle=PEERS,
        profile="full",
    ),
    Model("log 2e 2c 1p", "holds", "GroupLog", log(2, 2, 1), LOG, idle=PEERS, profile="full"),
    Model("cold start 2e 2c 1p", "holds", "ColdStart", log(2, 2, 1), COLD, profile="full"),
    Model(
        "log 5 seeds 2e 0c 1p", "holds", "GroupLog", log(2, 0, 1, 5), LOG, idle=CALM, profile="full"
    ),
    Model(
        "delivery 3e 2j 2p 2l",
        "holds",
        "Delivery",
        delivery(3, 2, 2, 2),
        DELIVERY,
        properties=("NeverBack",),
        profile="full",
    ),
)


def witness(name: str, module: str, sets: dict[str, int | str], profile: str = "ci") -> Model:
    """An "invariant" named after the state that must be reachable."""
    return Model(
        f"reached: not {name}",
        "witness",
        module,
        sets,
        (name,),
        profile=profile,
        symmetric=module not in UNSYMMETRIC,
    )


WITNESSES = (
    witness("NeverCommittedByTwoEpochs", "GroupLog", log(2, 0, 2), "quick"),
    witness("NeverRecovered", "GroupLog", log(2, 1, 1), "quick"),
    witness("NeverTakenOverUncommitted", "GroupLog", log(2, 0, 1), "quick"),
    witness("NeverTwoActive", "GroupLog", log(2, 0, 2), "quick"),
    witness("NeverReadmitted", "Readmit", log(3, 0, 1) | {"MaxLoss": 1}),
    witness("NeverColdStarted", "ColdStart", log(2, 0, 2)),
    witness("NeverHanded", "HandOver", log(2, 0, 1), "quick"),
    witness("NeverContested", "Candidates", candidates(2, 0), "quick"),
    witness("NeverTailLost", "Delivery", delivery(2, 0, 2, 1), "quick"),
    witness("NeverJoined", "Delivery", delivery(2, 1, 2, 2), "quick"),
    witness("NeverCommittedByBoth", "Reconfigure", reconfigure("ReplaceOne", 4, 2, 2)),
    witness("NeverTriedAgain", "Reconfigure", reconfigure("ReplaceOne", 4, 3, 1), "full"),
    witness("NeverCommittedByLaterLists", "Relist", relist("OneMore", 4, 2, 2), "full"),
    witness("NeverSettled", "Relist", relist("OneMore", 4, 2, 1), "full"),
)


def mutant(
    rule: str,
    module: str,
    sets: dict[str, int | str],
    invariants: tuple[str, ...],
    profile: str = "ci",
    *,
    bounded: bool = False,
    properties: tuple[str, ...] = (),
) -> Model:
    """The protocol without one of its rules."""
    return Model(
        f"without: {rule}",
        "mutant",
        module,
        sets,
        invariants,
        off=(rule,),
        profile=profile,
        constraint="Bounded" if bounded else None,
        properties=properties,
        symmetric=module not in UNSYMMETRIC,
    )


MUTANTS = (
    mutant("commit on a majority", "GroupLog", log(2, 0, 1), LOG, "quick"),
    mutant("a repeat is no new entry", "GroupLog", log(2, 0, 1), LOG, "quick", bounded=True),
    mutant("numbers have no gaps", "GroupLog", numbered(2, 0, 2), LOG, "quick"),
    mutant("promises are durable", "GroupLog", log(2, 1, 1), LOG),
    mutant("recover before voting", "GroupLog", log(2, 1, 1), LOG),
    mutant("recover from the coordinator only", "GroupLog", log(2, 1, 1), LOG),
    mutant("log of the highest accepted epoch", "GroupLog", log(3, 0, 1), LOG),
    mutant("a hand-over elects", "HandOver", log(3, 0, 2), LOG),
    mutant("every seed attends", "ColdStart", log(2, 1, 1), COLD),
    mutant("a cold start is a new history", "ColdStart", log(2, 2, 1), COLD),
    mutant("a cold log is for who promised it", "ColdStart", log(2, 1, 1), COLD),
    mutant("one candidate an epoch", "Candidates", candidates(2, 0), CANDIDATES, "quick"),
    mutant("the vote file is written first", "Candidates", candidates(2, 1), CANDIDATES, "quick"),
    mutant("delivered at commit", "Delivery", delivery(2, 0, 2, 1), DELIVERY, "quick"),
    mutant("acknowledged at commit", "Delivery", delivery(2, 0, 2, 1), DELIVERY, "quick"),
    mutant("no gap in the view", "Delivery", delivery(1, 0, 2, 1), DELIVERY, "quick"),
    mutant("ready at the join position", "Delivery", delivery(1, 1, 1, 2), DELIVERY, "quick"),
    mutant(
        "a member behind makes the client wait",
        "Delivery",
        delivery(1, 0, 1, 2),
        (),
        "quick",
        properties=("NeverBack",),
    ),
    *(
        mutant(rule, "Reconfigure", reconfigure("ReplaceOne", 4, 3, 1), RECONFIGURE)
        for rule in (
            "the old seeds elect",
            "the new seeds hold it first",
            "seeds note the configuration",
            "both elect until it is established",
        )
    ),
    mutant(
        "one change at a time",
        "Reconfigure",
        reconfigure("ThereAndBack", 4, 3, 1),
        RECONFIGURE,
    ),
    mutant("settled before the next", "Relist", relist("Replaced", 4, 2, 1), RELIST, "full"),
    *(
        Model(
            f"without: one seed at a time, {config}",
            "mutant",
            "Relist",
            relist(config, 5, 2, 1),
            RELIST,
            profile="full",
            symmetric=False,
        )
        for config in ("TwoAtOnce", "TwoReplaced")
    ),
    mutant("readmission elects anew", "Readmit", log(3, 0, 1) | {"MaxLoss": 1}, LOG, "full"),
    mutant("promises carry notes", "Readmit", log(3, 0, 1) | {"MaxLoss": 1}, LOG, "full"),
)

# Without these nothing breaks within the bounds that TLC exhausts: they are kept because the proof
# of the others leans on them, and the simulator is not bounded so tightly.
SURVIVORS = ("acks are fenced", "synchronise before active")
# These are about three lists of seeds, for which TLC does not get to the end: no model is without
# them, and nothing is said about what they are worth (README.md, "Other seeds").
NOT_RUN = ("seeds are fenced", "elected by fenced seeds")

MODELS = (*HOLDS, *WITNESSES, *MUTANTS)
PROFILES = ("quick", "ci", "full")


def chosen(profile: str) -> tuple[Model, ...]:
    """The models of a profile: each includes those before it."""
    last = PROFILES.index(profile)
    return tuple(m for m in MODELS if PROFILES.index(m.profile) <= last)
