"""The models that are checked: which module, which bounds, which rules off, what must come out.

Three kinds. A model of kind "holds" must be exhausted without an error; a "witness" asks whether
an interesting state can be reached, so its invariant must be violated; a "mutant" has one rule of
the protocol switched off, and some invariant must be violated.
"""

from attrs import frozen

from spec.bounds import (
    candidates,
    delivery,
    forget,
    log,
    numbered,
    numbering,
    progress,
    reconfigure,
    relist,
)

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
DELIVERY = (
    "DeliveredIsCommitted",
    "SeenIsCommitted",
    "AckIsTrue",
    "ReadyHoldsAll",
    "NobodyDenied",
)
COLD = ("SurvivesInHistory", "AgreementInHistory", "KeepsWhatSurvived", "EpochsRise", "Identity")
CANDIDATES = ("OneCoordinator", "FileIsAhead")
RECONFIGURE = (
    "CommittedSurvives",
    "Agreement",
    "Once",
    "ConfigurationsRise",
    "OldSeedsAreFree",
)
RELIST = (
    "CommittedSurvives",
    "Agreement",
    "Once",
    "OneListANumber",
    "ListsRise",
    "OldSeedsAreFree",
)
FORGET = ("NumbersRise", "TableFollows", "NoSilentLoss", "NoFalseGap")
NUMBERING = ("NumbersFollow", "TableIsOfTheLog", "CommittedIsChosen")

SPECIFICATIONS = {
    "GroupLog": "Spec",
    "Readmit": "RSpec",
    "ColdStart": "CSpec",
    "HandOver": "HSpec",
    "Delivery": "Spec",
    "Candidates": "Spec",
    "Reconfigure": "Spec",
    "Relist": "Spec",
    "Forget": "Spec",
    "Numbering": "Spec",
    "PreVote": "PSpec",
    "Refines": "Spec",
    "Progress": "PSpec",
    "Restored": "DSpec",
}
# The seeds of the first two differ by the lists that they are in, the subjects of the third by
# which of them the client follows; members and subjects of Numbering are no model values, and
# liveness is not to be checked on a part of the behaviours.
UNSYMMETRIC = ("Reconfigure", "Relist", "Forget", "Numbering", "Progress")


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
    behaviours: int = 0  # drawn at random, where there are too many states to visit; 0: all states

    def config(self) -> str:
        """The text of the configuration file."""
        constants: list[str] = []
        for name, value in self.sets.items():
            members = value if isinstance(value, str) else _members(name, value)
            if members.startswith("{") and not members.startswith(("{1", '{"')):
                constants += [f" {m} = {m}" for m in members.strip("{}").split(", ")]
            equals = "<-" if name in {"Config", "Before"} else "="
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


PEERS = ("InstallFromPeers",)
LOSS = ("Lose", "Hear", "ComeAnew")
CALM = ("Crash", "Install", "Register", *PEERS)


def delivering(name: str, sets: dict[str, int | str], profile: str) -> Model:
    """A model of Delivery that holds: members join in it, or coordinators refuse gaps."""
    idle = ("Join", "Hear", "Ready", "Copy") if sets["MaxAsk"] else ("Ask", "Refuse")
    return Model(
        name,
        "holds",
        "Delivery",
        sets,
        DELIVERY,
        properties=("NeverBack",),
        idle=idle,
        profile=profile,
    )


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
    delivering("delivery 2e 1j 2p 2l", delivery(2, 1, 2, 2), "quick"),
    delivering("refusals 2e 2p", delivery(2, 0, 2, 1, asks=2), "quick"),
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
        "forgotten subjects 4 2e 2v",
        "holds",
        "Forget",
        forget(4, 2, 2),
        FORGET,
        symmetric=False,
    ),
    Model(
        "lists: one seed more 2e 0c 1p",
        "holds",
        "Relist",
        relist("TwoToThree", 3, 2, 1),
        RELIST,
        idle=("Crash", *LOSS),
        symmetric=False,
    ),
    Model(
        "lists: a seed goes, and comes back without its file 3e 1p",
        "holds",
        "Relist",
        relist("OutAndIn", 2, 3, 1, losses=1),
        RELIST,
        idle=("Crash",),
        symmetric=False,
    ),
    *(
        Model(
            f"numbering {length} entries {epochs}e",
            "holds",
            "Numbering",
            numbering(length, epochs),
            NUMBERING,
            profile=profile,
            symmetric=False,
        )
        for length, epochs, profile in ((3, 2, "ci"), (3, 3, "full"), (4, 2, "full"))
    ),
    *(
        Model(
            f"progress {epochs}e {crashes}c 1p, acks lost with {lost} links",
            "holds",
            "Progress",
            progress(epochs, crashes, lost),
            (),
            properties=("CommittedInTheEnd", "NormalInTheEnd"),
            idle=idle,
            symmetric=False,
        )
        for epochs, crashes, lost, idle in (
            (1, 1, 2, PEERS),
            (2, 0, 0, (*CALM, "LoseAcks", "AckAgain")),
        )
    ),
    *(
        Model(
            f"log refines delivery {epochs}e {crashes}c {publications}p",
            "holds",
            "Refines",
            log(epochs, crashes, publications),
            (),
            properties=("RefinesDelivery",),
            idle=idle,
            profile=profile,
        )
        for epochs, crashes, publications, idle, profile in (
            (2, 0, 1, CALM, "ci"),
            (2, 0, 2, CALM, "full"),
            (2, 1, 1, PEERS, "full"),
        )
    ),
    Model(
        "pre-vote 2e 1p",
        "holds",
        "PreVote",
        log(2, 0, 1),
        (*LOG, "Undisturbed"),
        properties=("IsOneOfTheLog",),
    ),
    *(
        Model(
            f"lists: {lists} {epochs}e {crashes}c 1p",
            "holds",
            "Relist",
            relist(lists, seeds, epochs, 1, crashes),
            RELIST,
            # Nobody is taken back if no seed is new and none crashes.
            idle=(
                *LOSS,
                *(() if crashes else ("Crash", "TakeBack")[: 1 + (lists == "ThreeToTwo")]),
            ),
            profile="full",
            symmetric=False,
        )
        for lists, seeds, epochs, crashes in (
            ("TwoToThree", 3, 2, 1),
            ("ThreeToTwo", 3, 2, 0),
            ("Moved", 2, 4, 0),
        )
    ),
    # Either of these rules does without the other one, and nothing does without both (`MUTANTS`).
    *(
        Model(
            f"log 2e 1c 1p without: {rule}",
            "holds",
            "GroupLog",
            log(2, 1, 1),
            LOG,
            off=(rule,),
            idle=PEERS,
            profile="full",
        )
        for rule in ("acks are fenced", "the tail is handed over too")
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
    Model("restored logs 2e 1c 1p", "holds", "Restored", log(2, 1, 1), LOG, profile="full"),
    Model("log 2e 2c 1p", "holds", "GroupLog", log(2, 2, 1), LOG, idle=PEERS, profile="full"),
    Model("cold start 2e 2c 1p", "holds", "ColdStart", log(2, 2, 1), COLD, profile="full"),
    Model(
        "log 5 seeds 2e 0c 1p", "holds", "GroupLog", log(2, 0, 1, 5), LOG, idle=CALM, profile="full"
    ),
    Model(
        "forgotten subjects 5 2e 2v",
        "holds",
        "Forget",
        forget(5, 2, 2),
        FORGET,
        profile="full",
        symmetric=False,
    ),
    delivering("delivery 3e 2j 2p 2l", delivery(3, 2, 2, 2), "full"),
    delivering("refusals 3e 2p", delivery(3, 0, 2, 1, asks=2), "full"),
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


# Bounds that are not exhausted: behaviours are drawn. The mutant and the witness beside them show
# what as many of them reach (README.md, "Behaviours that are drawn").
DRAWN = (
    Model(
        "log 3e 2c 2p, drawn",
        "holds",
        "GroupLog",
        log(3, 2, 2),
        LOG,
        profile="full",
        symmetric=False,
        behaviours=15000,
    ),
    Model(
        "log 5 seeds 3e 1c 1p, drawn",
        "holds",
        "GroupLog",
        log(3, 1, 1, 5),
        LOG,
        profile="full",
        symmetric=False,
        behaviours=3000,
    ),
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
    witness("NeverBornAgain", "Forget", forget(4, 1, 1)),
    witness("NeverLedFromAState", "Numbering", numbering(3, 2), "quick"),
    witness("NeverRestored", "Restored", log(2, 1, 1), "full"),
    witness("NeverDeposed", "PreVote", log(2, 0, 1), "quick"),
    witness("NeverCommittedByLaterLists", "Relist", relist("TwoToThree", 3, 2, 2), "full"),
    witness("NeverSettled", "Relist", relist("Moved", 2, 3, 1), "full"),
    witness("NeverBackAfterALoss", "Relist", relist("OutAndIn", 2, 3, 1, losses=1)),
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
    mutant("refused at commit", "Delivery", delivery(2, 0, 2, 1, asks=1), DELIVERY, "quick"),
    mutant("no gap in the view", "Delivery", delivery(1, 0, 2, 1), DELIVERY, "quick"),
    mutant("ready at the join position", "Delivery", delivery(1, 1, 1, 2), DELIVERY, "quick"),
    mutant("no newer epoch was promised", "Delivery", delivery(2, 1, 1, 1), DELIVERY, "quick"),
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
    mutant("a subject begins above the floor", "Forget", forget(3, 1, 0), FORGET[:1]),
    mutant("forgetting raises the floor", "Forget", forget(3, 1, 0), FORGET[:1]),
    mutant("the floor goes with the tables", "Forget", forget(3, 2, 0), FORGET[:1]),
    mutant("the floor stands for what is not known", "Forget", forget(3, 1, 1), FORGET),
    *(
        mutant(rule, "Numbering", numbering(3, 2), NUMBERING[:1], "quick")
        for rule in (
            "what is cut off is taken back",
            "a state is of what is committed",
            "a state comes with its table",
            "numbers follow on the tail too",
        )
    ),
    *(
        mutant(rule, "Refines", log(epochs, 0, 1), (), profile, properties=("RefinesDelivery",))
        for rule, epochs, profile in (
            ("a deposed coordinator may commit late", 2, "quick"),
            ("a deposed coordinator may begin late", 3, "full"),
        )
    ),
    *(
        mutant(rule, "Progress", progress(1, 1, 2), (), properties=(broken,))
        for rule, broken in (
            ("a last candidate asks again", "CommittedInTheEnd"),
            ("an elected log goes to all seeds", "CommittedInTheEnd"),
            ("entries that were lost are asked for", "CommittedInTheEnd"),
            ("acks that were lost are given again", "CommittedInTheEnd"),
            ("a seed that restarted asks for the log", "NormalInTheEnd"),
            ("a publisher repeats what has no answer", "CommittedInTheEnd"),
        )
    ),
    mutant("an ack waits for the disk", "Restored", log(2, 1, 1), LOG),
    *(
        mutant(rule, "PreVote", log(2, 0, 1), ("Undisturbed",), "quick")
        for rule in (
            "a majority grants it first",
            "seeds that see a coordinator grant nothing",
            "a pre-vote is no promise",
        )
    ),
    *(
        mutant(rule, "Relist", relist("Forked", 3, 3, 1, 0, "FromTheFirst"), RELIST)
        for rule in ("a next list is named once", "a majority names the next list")
    ),
    mutant("settled before the next", "Relist", relist("Moved", 2, 3, 1), RELIST, "full"),
    *(
        mutant(rule, "Relist", relist("Moved", 2, 4, 1), RELIST, "full")
        for rule in ("older lists are refused", "newer lists are noted first")
    ),
    mutant("the list is durable", "Relist", relist("Moved", 2, 4, 1, 1), RELIST, "full"),
    *(
        Model(
            f"without: {rule}, who begins anew is given the log by others",
            "mutant",
            "Relist",
            relist(lists, 3, 2, 1, losses=1),
            RELIST,
            off=(rule, "who begins anew is given the log by others"),
            symmetric=False,
        )
        for rule, lists in (
            ("who begins anew is in no list", "Unchanged"),
            ("the list without it is settled", "ThreeToTwo"),
        )
    ),
    *(
        Model(
            f"without: one seed at a time, {config}",
            "mutant",
            "Relist",
            relist(config, 3, 2, 1),
            RELIST,
            profile=profile,
            symmetric=False,
        )
        for config, profile in (("Swapped", "ci"), ("TwoMore", "full"))
    ),
    Model(
        "without: acks are fenced, the tail is handed over too",
        "mutant",
        "GroupLog",
        log(2, 1, 1),
        LOG,
        off=("acks are fenced", "the tail is handed over too"),
    ),
    Model(
        "refinement without: commit on a majority",
        "mutant",
        "Refines",
        log(2, 0, 1),
        (),
        off=("commit on a majority",),
        properties=("RefinesDelivery",),
        profile="quick",
    ),
    mutant("readmission elects anew", "Readmit", log(3, 0, 1) | {"MaxLoss": 1}, LOG, "full"),
    mutant("promises carry notes", "Readmit", log(3, 0, 1) | {"MaxLoss": 1}, LOG, "full"),
)

# Without this nothing breaks within the bounds that TLC exhausts: it is kept because the proof of
# the others leans on it, and the simulator is not bounded so tightly.
SURVIVORS = ("synchronise before active", "no newer list has it")
MODELS = (*HOLDS, *DRAWN, *WITNESSES, *MUTANTS)
PROFILES = ("quick", "ci", "full")


def chosen(profile: str) -> tuple[Model, ...]:
    """The models of a profile: each includes those before it."""
    last = PROFILES.index(profile)
    return tuple(m for m in MODELS if PROFILES.index(m.profile) <= last)
