"""The bounds of the models: how large the sets and numbers of each module are in a run of TLC.

A set is given by its size, and gets model values (`spec.models.Model.config`), or as the text that
stands for it.
"""


def log(epochs: int, crashes: int, publications: int, seeds: int = 3) -> dict[str, int | str]:
    """Bounds of GroupLog: publications with identities but without numbers."""
    return {
        "Seed": seeds,
        "Publication": publications,
        "MaxEpoch": epochs,
        "MaxCrash": crashes,
        "Numbered": "FALSE",
    }


def progress(epochs: int, crashes: int, lost: int) -> dict[str, int | str]:
    """Bounds of Progress."""
    return log(epochs, crashes, 1) | {"MaxLost": lost}


def numbered(epochs: int, crashes: int, publications: int) -> dict[str, int | str]:
    """Bounds of GroupLog with one publisher that counts."""
    numbers = "{" + ", ".join(str(i) for i in range(1, publications + 1)) + "}"
    return log(epochs, crashes, 1) | {"Publication": numbers, "Numbered": "TRUE"}


def delivery(
    epochs: int, joins: int, publications: int, learners: int, asks: int = 0
) -> dict[str, int | str]:
    """Bounds of Delivery."""
    return {
        "MaxAsk": asks,
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
    config: str,
    seeds: int,
    epochs: int,
    publications: int,
    crashes: int = 0,
    before: str = "InARow",
    losses: int = 0,
) -> dict[str, int | str]:
    """Bounds of Relist: `before` names which list follows which."""
    bounds = reconfigure(config, seeds, epochs, publications)
    return {**bounds, "Before": before, "MaxCrash": crashes, "MaxLoss": losses}


def forget(length: int, epochs: int, visits: int) -> dict[str, int | str]:
    """Bounds of Forget: two subjects, of which a client follows one."""
    return {
        "Subject": '{"s1", "s2"}',
        "Watched": '"s1"',
        "MaxLength": length,
        "MaxEpoch": epochs,
        "MaxVisit": visits,
    }


def numbering(length: int, epochs: int) -> dict[str, int | str]:
    """Bounds of Numbering: two members, two subjects."""
    return {
        "Member": '{"m1", "m2"}',
        "Subject": '{"s1", "s2"}',
        "MaxLength": length,
        "MaxEpoch": epochs,
    }
