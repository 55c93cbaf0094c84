"""The model of the job `capacity`: how many members a load needs, from measurements of benchmarks.

Each run of a benchmark measures the cost of one resource: processor time for a delivery, a
publication or a connect; memory for a connection, a subject or a cached message. A cost is fitted
as a sum of terms, by least squares of the relative residuals, so that a cheap run counts as much as
a costly one. Terms that would be negative are left out.

How far a fit can be trusted is found by leaving out each run in turn and predicting it from the
others (Stone 1974, "Cross-validatory choice and assessment of statistical predictions"). Nothing is
predicted beyond twice what was measured, or below half of it.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from attrs import field, frozen
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mdserver.pipeline.common.requirements import PipelineError

REACH = 2.0
"""How far beyond the measured ranges a fit may be used, as a factor."""
MEMBERS_MAX = 1_000
KIB = 1024

# The axes on which each cost may depend. An axis that the runs do not vary gets no term.
AXES = {
    "deliveries": ("content_bytes", "per_burst"),
    "publications": ("content_bytes",),
    "replicated publications": ("content_bytes",),
    "connects": (),
    "connections": (),
    "subjects": ("content_bytes",),
    "cached messages": ("content_bytes",),
}
BENCHES = {
    "deliveries": "fanout",
    "publications": "publish",
    "replicated publications": "cluster",
    "connects": "connect",
    "connections": "idle",
    "subjects": "cache",
    "cached messages": "cache",
}
MEMORY = ("connections", "subjects", "cached messages")


@frozen(kw_only=True)
class Demand:
    """The load of a whole cluster, and the bounds of one member.

    `publications`, `deliveries` and `connects` are rates per second. `burst` is how many messages
    arrive together, `cached` how many messages are kept besides the latest one of each subject.
    `share` is the part of its core that a member may use, `memory` the bytes that it may take.
    """

    connections: int
    publications: float
    deliveries: float
    content_bytes: int = 128
    burst: float = 1.0
    connects: float = 0.0
    subjects: int = 0
    cached: int = 0
    share: float = 0.7
    memory: int = 4 << 30


@frozen
class Observation:
    """The measurement of one run.

    `cost` is seconds of processor time, or bytes, for each unit of a resource.
    """

    resource: str
    cost: float
    content_bytes: float
    burst: float
    connections: float

    def axis(self, name: str) -> float:
        """Return the value of an axis in this run: KiB of content, or bursts for each message.

        The cost of a burst is shared by its messages, hence the reciprocal.
        """
        return 1 / self.burst if name == "per_burst" else self.content_bytes / KIB


@frozen
class Fit:
    """A fitted cost: a constant, and one coefficient for each term.

    `error` is the largest relative error with which a run was predicted from the others, None if
    there is only one run.
    """

    resource: str
    constant: float
    terms: Mapping[str, float]
    error: float | None
    runs: Sequence[Observation]

    def cost(self, observation: Observation) -> float:
        """Return the cost under the conditions of an observation, measured or not."""
        return self.constant + sum(
            coefficient * observation.axis(name) for name, coefficient in self.terms.items()
        )


@frozen
class Plan:
    """A number of members, and the share of its bounds that each uses for each resource.

    A share of 1.0 is all that a member may use. `limited_by` is why fewer members are too few; for
    a single member it is the resource with the largest share.
    """

    members: int
    limited_by: str
    processor: Mapping[str, float]
    memory: Mapping[str, float]
    fits: Sequence[Fit] = field(factory=tuple)


def observations(runs: DataFrame) -> DataFrame:
    """Return the costs in lines of benchmarks: resource, cost, content_bytes, burst, connections.

    Runs that lost, repeated or altered a message are left out, and of the benchmark `cluster` those
    in which publications wait for each other.
    """
    sound = runs.where("coalesce(lost, 0) + coalesce(repeated, 0) + coalesce(altered, 0) = 0")
    burst = f.coalesce(
        f.regexp_extract("mode", r"^bursts of ([0-9]+)", 1).try_cast("double"), f.lit(1.0)
    )
    piped = f.col("mode") != "one at a time"
    cpu, each = f.lit(1.0) / f.col("per_cpu_s"), f.col("kib_each") * KIB
    bench = f.col("bench")
    named = (
        f.when(bench == "fanout", f.struct(f.lit("deliveries"), cpu))
        .when(bench == "publish", f.struct(f.lit("publications"), cpu))
        # The processor time is that of all members; `connections` says how many there were.
        .when(
            (bench == "cluster") & piped,
            f.struct(f.lit("replicated publications"), cpu / f.col("connections")),
        )
        .when(bench == "connect", f.struct(f.lit("connects"), cpu))
        .when(bench == "idle", f.struct(f.lit("connections"), each))
        .when(
            bench == "cache",
            f.struct(
                f.when(f.col("mode") == "one a subject", "subjects").otherwise("cached messages"),
                each,
            ),
        )
    )
    found = sound.select(
        named.cast("struct<resource: string, cost: double>").alias("found"),
        f.coalesce("content_bytes", f.lit(0)).cast("double").alias("content_bytes"),
        burst.alias("burst"),
        f.col("connections").cast("double").alias("connections"),
    )
    return found.where("found.cost > 0").select("found.*", "content_bytes", "burst", "connections")


def fit_all(found: Sequence[Observation]) -> dict[str, Fit]:
    """Return a fit for each resource that was measured. Raises what `fit` does."""
    return {
        resource: fit(resource, runs)
        for resource in AXES
        if (runs := [each for each in found if each.resource == resource])
    }


def fit(resource: str, runs: Sequence[Observation]) -> Fit:
    """Fit the cost of a resource to its runs. Raises PipelineError if there are too few of them."""
    # One run more than there are coefficients, so that each run can be left out.
    names = [name for name in AXES[resource] if len({run.axis(name) for run in runs}) > 1]
    needed = 1 if not names else len(names) + 2
    if len(runs) < needed:
        raise PipelineError(
            f"{resource}: {len(runs)} runs cannot tell what {' and '.join(names)} cost: at least"
            f" {needed} runs of `python -m mdserver.bench {BENCHES[resource]}` are needed"
        )
    constant, terms = _least_squares(runs, names)
    return Fit(resource, constant, terms, _foretelling_error(resource, runs, names), runs)


def _least_squares(
    runs: Sequence[Observation], names: Sequence[str]
) -> tuple[float, dict[str, float]]:
    """Return the constant and the coefficients.

    The term with the most negative coefficient is left out and the rest is fitted again, until none
    is negative.
    """
    left = list(names)
    while True:
        costs = np.array([run.cost for run in runs])
        # Each row is divided by its cost, so the residuals are relative.
        matrix = np.array([[1.0, *(run.axis(name) for name in left)] for run in runs])
        solved = np.linalg.lstsq(matrix / costs[:, None], np.ones(len(runs)), rcond=None)[0]
        worst = min(range(len(left)), key=lambda index: solved[index + 1], default=None)
        if worst is None or solved[worst + 1] >= 0:
            return float(solved[0]), dict(zip(left, map(float, solved[1:]), strict=True))
        del left[worst]


def _foretelling_error(
    resource: str, runs: Sequence[Observation], names: Sequence[str]
) -> float | None:
    """Return the largest relative error of a run predicted from the others, None for one run."""
    if len(runs) < 2:
        return None
    errors = []
    for index, run in enumerate(runs):
        others = [*runs[:index], *runs[index + 1 :]]
        constant, terms = _least_squares(others, names)
        foretold = Fit(resource, constant, terms, None, others).cost(run)
        errors.append(abs(foretold / run.cost - 1))
    return max(errors)


def plan(fits: Mapping[str, Fit], demand: Demand) -> Plan:
    """Return the smallest cluster that carries the load: one member, or at least three.

    Two members tolerate no failure, and are left out. Raises PipelineError if a fit is missing or
    would have to predict too far, or if no number of members suffices.
    """
    before = ""
    for members in (1, *range(3, MEMBERS_MAX + 1)):
        processor, memory = _shares(fits, demand, members)
        used = {"processor time": processor, "memory": memory}
        over = {name: parts for name, parts in used.items() if sum(parts.values()) > 1}
        if not over:
            most = max(used.values(), key=lambda parts: sum(parts.values()))
            limit = before or max(most, key=lambda part: most[part])
            relied_on = tuple(fits[name] for name in (*processor, *memory))
            _check_reach(relied_on, demand, members)
            return Plan(members, limit, processor, memory, relied_on)
        name, parts = max(over.items(), key=lambda item: sum(item[1].values()))
        before = f"{max(parts, key=lambda part: parts[part])} ({name})"
    raise PipelineError(
        f"no cluster of up to {MEMBERS_MAX} members carries this: {before} fills every member, as"
        " each of them takes part in all of it"
    )


def _shares(
    fits: Mapping[str, Fit], demand: Demand, members: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the shares of a member's processor time and of its memory, by resource."""
    publications = "publications" if members == 1 else "replicated publications"
    # Every member takes part in all publications and caches all messages; clients are spread.
    wanted = {
        "deliveries": demand.deliveries / members,
        publications: demand.publications,
        "connects": demand.connects / members,
        "connections": demand.connections / members,
        "subjects": demand.subjects,
        "cached messages": demand.cached,
    }
    processor, memory = {}, {}
    for resource, count in wanted.items():
        if not count:
            continue
        total = count * found(fits, resource).cost(_asked(resource, demand))
        if resource in MEMORY:
            memory[resource] = total / demand.memory
        else:
            processor[resource] = total / demand.share
    return processor, memory


def found(fits: Mapping[str, Fit], resource: str) -> Fit:
    """Return the fit of a resource. Raises PipelineError if it was not measured."""
    if resource not in fits:
        raise PipelineError(
            f"nothing was measured of {resource}: run"
            f" `python -m mdserver.bench {BENCHES[resource]} --json FILE`"
        )
    return fits[resource]


def _asked(resource: str, demand: Demand) -> Observation:
    """Return the conditions of the demand, for which a cost is predicted."""
    return Observation(resource, 0.0, demand.content_bytes, demand.burst, demand.connections)


def _check_reach(relied_on: Sequence[Fit], demand: Demand, members: int) -> None:
    """Raise PipelineError if a fit would be used too far from what was measured."""
    for resource, what, asked, measured in _reaches(relied_on, demand, members):
        low, high = min(measured), max(measured)
        if not low / REACH <= asked <= high * REACH:
            side = f"twice the {high:,.0f}" if asked > high else f"half of the {low:,.0f}"
            raise PipelineError(
                f"{resource}: {asked:,.0f} {what} is beyond {side} that were measured: run"
                f" `python -m mdserver.bench {BENCHES[resource]} --json FILE` nearer to it"
            )


def _reaches(
    relied_on: Sequence[Fit], demand: Demand, members: int
) -> Iterator[tuple[str, str, float, list[float]]]:
    """Yield, for each condition of each fit: resource, its name, its value, those measured."""
    for fitted in relied_on:
        resource, runs = fitted.resource, fitted.runs
        if resource == "replicated publications":
            yield resource, "members", members, [run.connections for run in runs]
        elif resource == "connections":
            # Fewer connections than were measured are safe, so only the upper bound counts.
            most = max(run.connections for run in runs)
            asked = max(demand.connections / members, most)
            yield resource, "connections a member", asked, [most]
        if "content_bytes" in AXES[resource]:
            measured = [run.content_bytes for run in runs]
            yield resource, "bytes of content", demand.content_bytes, measured
        if "per_burst" in AXES[resource]:
            yield resource, "messages in a burst", demand.burst, [run.burst for run in runs]
