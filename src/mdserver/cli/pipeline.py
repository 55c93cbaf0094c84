"""`mdserver pipeline`: archive the journal, derive from it, audit deliveries, roll up, replay.

Everything that a job needs is checked before Spark starts, so that a mistake costs one line and not
ten seconds. For the same reason modules that import Spark are imported in functions.
"""

import functools
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import trio

from mdserver import limits
from mdserver.cli.export_iceberg import export_iceberg
from mdserver.cli.forms import format_option, print_result
from mdserver.cli.job_options import figures_options, refuse_given, spark_options, token_in
from mdserver.cli.job_sources import (
    FOLDER,
    SPARK_PLACE,
    TABLES,
    JobSource,
    absolute,
    check_page,
    check_tables,
    check_writable,
    source_options,
    started,
    tables_option,
)
from mdserver.cli.options import ConnectionOptions, connection_options
from mdserver.config import values
from mdserver.core.subjects import parse_interest, validate_subject
from mdserver.ending import end_in_order_on_sigterm
from mdserver.limits import GB, MB
from mdserver.pipeline.common import requirements
from mdserver.pipeline.common.figures import Outlets, Progressed, told
from mdserver.pipeline.common.places import Tables

if TYPE_CHECKING:
    from mdserver.pipeline.capacity.model import Plan

_FILE = click.Path(dir_okay=False, path_type=Path)
_OF_A_SERVER = (
    *("servers", "token", "encoding", "authority", "form"),
    *("metrics", "metrics_file", "report_to", "report_token_file"),
)
"""The parameters of `derive` that do nothing with --real-time."""
_TIMES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")


@click.group("pipeline")
def command() -> None:
    """Jobs on what went through the server, with Spark (extra `pipeline`, Java 17).

    `archive` first: it fills the Delta tables that the others read. Each job says with --help what
    it takes. They run in this process (Spark's `local[*]`) and listen on loopback alone, or on a
    cluster (docs/pipeline.md, "Deployment").
    """
    end_in_order_on_sigterm()


command.add_command(export_iceberg)


@command.command("archive")
@spark_options
@source_options
@tables_option
@click.option(
    "--checkpoints",
    type=SPARK_PLACE,
    metavar="PLACE",
    help="With --kafka: a folder, or a URI of Spark's file systems, for what Spark remembers."
    "  [default: TABLES/_checkpoints]",
)
@figures_options
@click.option("--once", is_flag=True, help="End when everything there is has been archived.")
@click.option(
    "--new-source",
    is_flag=True,
    help="Archive this source from its beginning, although these tables have had another one.",
)
@format_option("A line a batch: words, or a JSON object.")
def archive(
    *,
    spark_settings: Mapping[str, str],
    where: JobSource,
    tables: Tables,
    checkpoints: Path | str | None,
    outlets: Outlets,
    once: bool,
    new_source: bool,
    form: str,
) -> None:
    """Put every message, receipt and statistic into Delta tables, exactly once.

    Lines that cannot be used go to the table `quarantine` with their reason. A job that was killed
    goes on where it was. Of a cluster give the --journal of every member, or --shipped, the place
    to which `mdserver ship` sends them: a message that several members journal becomes one row. A
    topic that was deleted and created again is refused:
    --new-source says that this is meant.
    """
    requirements.check_extra()
    if checkpoints is not None and where.kafka is None:
        raise click.UsageError("--checkpoints is for --kafka: journals have theirs in the tables.")
    check_writable(tables)
    from mdserver.pipeline.common import checkpoints as kept
    from mdserver.pipeline.common import rows

    where.check_streams(rows.STREAMS)
    if where.kafka is not None:
        checkpoints = kept.place_of(absolute(tables), checkpoints)
    place = where.place()
    where.attend("archive", rows.STREAMS)
    with told("archive", outlets) as figures, started("archive", spark_settings, where) as spark:
        from mdserver.pipeline.archive import job

        def tell(batch: Any) -> None:
            count = "already there" if batch.rows is None else f"{batch.rows} rows"
            bad = f", {batch.bad} set aside" if batch.bad else ""
            speed = "" if not batch.rows else f", {batch.rows / batch.seconds:.0f} rows/s"
            for hole in batch.missing:
                click.echo(f"{batch.stream}: {hole}: deleted before it was archived", err=True)
            text = f"{batch.stream} batch {batch.batch_id}: {count}{bad}{speed}"
            print_result(form, text, attrs.asdict(batch))
            figures.add(
                Progressed(
                    stream=batch.stream,
                    rows=batch.rows or 0,
                    set_aside=batch.bad,
                    seconds=batch.seconds,
                    lag_s=batch.lag_s,
                )
            )

        job.run_archive(
            spark,
            where.all_sources(),
            absolute(tables),
            tell,
            once=once,
            new_source=new_source,
            shipped=place,
            spark_place=checkpoints,
        )


@command.command("derive")
@spark_options
@click.option("--rules", type=_FILE, required=True, help="The rules file (YAML).")
@source_options
@tables_option
@click.option(
    "--checkpoints",
    type=FOLDER,
    help="A folder for what the job remembers.  [default: TABLES/_checkpoints]",
)
@figures_options
@click.option("--once", is_flag=True, help="End when everything there is has been read.")
@click.option(
    "--engine",
    type=click.Choice(["embedded", "distributed"]),
    default="embedded",
    show_default=True,
    help="Where the rules run: in this process, or on Spark's executors.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, limits.DERIVE_SHARDS_MAX),
    metavar="N",
    help="Of the distributed engine: how many parts executors divide; 8 by default, never changed.",
)
@click.option(
    "--real-time",
    metavar="TOPIC",
    help="With --kafka: write to this topic, within milliseconds, in place of a server.",
)
@format_option("A line about every 5 seconds with something to say: words, or a JSON object.")
@connection_options
def derive(
    *,
    spark_settings: Mapping[str, str],
    connection: ConnectionOptions,
    rules: Path,
    where: JobSource,
    tables: Tables,
    checkpoints: Path | None,
    outlets: Outlets,
    once: bool,
    engine: str,
    shards: int | None,
    real_time: str | None,
    form: str,
) -> None:
    """Publish what rules make of the messages: averages, bars, last values, top lists, alarms.

    Follows the journal as it is written; what a rule says is published within about a second, each
    message once, also after a crash. Lines that cannot be used, and messages that are late or no
    number, go to the table `quarantine` with their reason. A job that was killed goes on where it
    was; what it remembers is in the folder `derive` of --checkpoints, which executors of a cluster
    mount as well.

    With --engine distributed, groups of rules are divided into shards, which the executors of a
    cluster run, with their states in Spark's store. The first run decides engine and shards.

    With --real-time, rules that judge each message by itself (last, threshold without clear) run in
    Spark's real-time mode, from Kafka to Kafka; what cannot be used goes to TOPIC.quarantine. With
    --plain both topics are those of members with ClusterEngine = kafka.

    \b
    A rules file (docs/rules.md):
      rules:
        - name: speeding
          kind: threshold
          from: /vehicles/*/speed
          above: 90
          clear: 80
          to: /notifications/{1}
          message: "{1} drives {value} km/h"

    \b
    Kinds: last; threshold (above, clear); window (function: avg, count, max, min or
    rate; seconds); ohlc (seconds); top (count, seconds, group); stale (seconds);
    geofence (area: [[x, y], ...]). {0}, {1}... are the segments of the subject.
    """
    requirements.check_extra()
    requirements.check_java(os.environ)
    if len(where.journals) > 1 or where.shipped is not None:
        raise click.UsageError("derive follows one --journal.")
    from mdserver.pipeline.common import checkpoints as kept
    from mdserver.pipeline.derive import job as deriving
    from mdserver.pipeline.derive.publisher import PublishServer

    if shards is not None and engine == "embedded":
        raise click.UsageError("--shards is for --engine distributed.")
    if real_time is not None and engine == "distributed":
        raise click.UsageError(
            "--real-time runs rules without a state on the executors itself: leave --engine out."
        )
    folder = Path(kept.place_of(absolute(tables), checkpoints)).resolve()
    if real_time is not None:
        derive_in_real_time(rules, where, folder, real_time, spark_settings, once=once)
        return
    check_writable(tables)
    server = PublishServer(connection.servers, connection.token)
    words = functools.partial(print_result, form)

    def say(text: str, values: Mapping[str, Any]) -> None:
        words(text, values)
        figures.add(
            Progressed(
                stream="messages",
                rows=values["rows"],
                set_aside=values["set_aside"],
                seconds=values["rows"] / max(values["rows_per_s"], 1),
                lag_s=values["lag_s"],
            )
        )

    chosen = deriving.EngineChoice(shards) if engine == "distributed" else deriving.EMBEDDED
    places = deriving.JobPlaces(absolute(tables), folder)
    ready = deriving.ready(rules, places, server, say, chosen, once=once)
    with told("derive", outlets) as figures, ready as job:
        where.attend("derive", ["messages"])
        with started("derive", spark_settings, where) as spark:
            job.run(spark, where.source(), once=once)


def derive_in_real_time(
    rules_file: Path,
    where: JobSource,
    checkpoints: Path,
    topic: str,
    spark_settings: Mapping[str, str],
    *,
    once: bool,
) -> None:
    """Run `derive --real-time`, from Kafka to Kafka."""
    from mdserver.pipeline.derive import realtime, rules

    if where.kafka is None or once:
        raise click.UsageError("--real-time needs --kafka, and runs for ever.")
    refuse_given(
        _OF_A_SERVER,
        "--real-time writes to its topic alone, publishes to no server and has no figures",
    )
    source = where.kafka_source()
    loaded = rules.load(rules_file)
    target = realtime.TopicTarget(source.servers, topic, source.settings, source.plain)
    realtime.check(loaded, source, target)
    with started("derive", spark_settings, where) as spark:
        realtime.run(spark, source, loaded, target, checkpoints)


@command.command("audit")
@spark_options
@tables_option
@figures_options
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="An HTML page.")
@format_option("Sentences, or a JSON object with the counts.")
def audit(
    *,
    spark_settings: Mapping[str, str],
    tables: Tables,
    outlets: Outlets,
    report: Path | None,
    form: str,
) -> None:
    """Hold what subscribers say they got against what was archived.

    All that is found goes to the table `audit_findings`. Exit status 1 if a receipt is not whole,
    if something lies between two receipts, if a session got nothing, or if the archive lacks
    something. If the source is Kafka, let `archive --once` catch up first: messages of a receipt
    that are not archived yet are taken for missing.
    """
    check_tables(tables)
    check_page(report)
    with told("audit", outlets) as figures, started("audit", spark_settings) as spark:
        from mdserver.pipeline.audit import job

        began = time.monotonic()

        def tell(name: str, rows: int) -> None:
            figures.add(Progressed(stream=name, rows=rows, seconds=time.monotonic() - began))

        found = job.run_audit(spark, absolute(tables), report, tell)
    text = (
        f"{found.receipts} receipts: {found.bad} not whole, {found.gaps} gaps between receipts;"
        f" {found.silent} subjects of which a session got nothing;"
        f" {found.unarchived} that the archive lacks;"
        f" {found.claims} claims that no server confirms; {found.unjudged} could not be judged"
    )
    value = {**attrs.asdict(found), "whole": found.whole}
    if report is not None:
        text += f"\nreport: {report}"
        value["report"] = str(report)
    print_result(form, text, value)
    if not found.whole:
        raise requirements.PipelineError("something that was promised was not delivered")


@command.command("rollup")
@spark_options
@tables_option
@figures_options
@click.option(
    "--keep-days",
    type=click.IntRange(0, 36_500),
    default=30,
    show_default=True,
    help="Delete samples that are older and in all summaries; 0 keeps them for ever.",
)
@click.option(
    "--every",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help="Roll up again and again, with this pause, until it is ended.",
)
@format_option("A line a table that changed, or a JSON object a run.")
def rollup(
    *,
    spark_settings: Mapping[str, str],
    tables: Tables,
    outlets: Outlets,
    keep_days: int,
    every: int | None,
    form: str,
) -> None:
    """Roll archived statistics up to minutes, hours, days and months.

    Only samples that are new since the run before are read, each is in the summaries once, and
    those stay when samples are deleted.
    """
    check_tables(tables)
    with told("rollup", outlets) as figures, started("rollup", spark_settings) as spark:
        from mdserver.pipeline.rollup import job

        while True:
            began = time.monotonic()
            before = datetime.now(UTC) - timedelta(days=keep_days) if keep_days else None
            done = job.run_rollup(spark, absolute(tables), before)
            changed = [f"{name}: {count} summaries" for name, count in done.summaries.items()]
            head = f"{done.samples} new samples, {done.deleted} old ones deleted"
            print_result(form, "\n".join([head, *changed]), attrs.asdict(done))
            seconds = time.monotonic() - began
            figures.add(
                Progressed(stream="stats", rows=done.samples, seconds=seconds, lag_s=done.lag_s)
            )
            if every is None:
                return
            time.sleep(every)


@command.command("maintain")
@spark_options
@tables_option
@click.option(
    "--keep-lines-days",
    type=click.IntRange(1, 36_500),
    metavar="DAYS",
    help="Delete lines of `quarantine` that were set aside longer ago.  [default: keep them]",
)
@figures_options
@format_option("A line a table, or a JSON object a table.")
def maintain(
    *,
    spark_settings: Mapping[str, str],
    tables: Tables,
    keep_lines_days: int | None,
    outlets: Outlets,
    form: str,
) -> None:
    """Join small files of all tables, in order, and delete what no version of a week names.

    The archive does so once an hour by itself while it runs; jobs may go on meanwhile.
    """
    check_tables(tables)
    check_writable(tables)
    with told("maintain", outlets) as figures, started("maintain", spark_settings) as spark:
        from mdserver.pipeline.common import maintenance

        def tell(done: Any) -> None:
            deleted = f", {done.deleted} lines deleted" if done.deleted else ""
            text = (
                f"{done.table}: {done.joined} files joined, {done.files} files now,"
                f" {done.seconds:.1f} s{deleted}"
            )
            print_result(form, text, attrs.asdict(done))
            figures.add(Progressed(stream=done.table, rows=done.joined, seconds=done.seconds))

        before = None
        if keep_lines_days is not None:
            before = datetime.now(UTC) - timedelta(days=keep_lines_days)
        maintenance.run_maintain(spark, absolute(tables), tell, before)


@command.command("capacity")
@spark_options
@click.argument("runs", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--tables", type=TABLES, metavar="PLACE", help="Keep the runs in the table `bench_runs` here."
)
@click.option("--connections", type=click.IntRange(0), required=True, help="Of all clients.")
@click.option("--publications", type=click.FloatRange(0), required=True, help="A second, in all.")
@click.option("--deliveries", type=click.FloatRange(0), required=True, help="A second, in all.")
@click.option("--bytes", "content_bytes", type=click.IntRange(1), default=128, show_default=True)
@click.option(
    "--burst",
    type=click.FloatRange(1),
    default=1,
    show_default=True,
    help="How many messages arrive together.",
)
@click.option("--connects", type=click.FloatRange(0), default=0, help="New connections a second.")
@click.option("--subjects", type=click.IntRange(0), default=0, help="Subjects with messages.")
@click.option("--cached", type=click.IntRange(0), default=0, help="Further messages in the cache.")
@click.option(
    "--share",
    type=click.FloatRange(0.05, 1),
    default=0.7,
    show_default=True,
    help="How much of its core a member may use.",
)
@click.option("--memory", default="4 GB", show_default=True, help="What a member may take.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="An HTML page.")
@format_option("Sentences, or a JSON object with the plan.")
def capacity(
    *,
    spark_settings: Mapping[str, str],
    runs: tuple[Path, ...],
    tables: Tables | None,
    memory: str,
    report: Path | None,
    form: str,
    **load: Any,
) -> None:
    """Say how many members a load takes, and what limits them, from benchmark RUNS.

    RUNS are files that `python -m mdserver.bench ... --json FILE` wrote on a member's machine:
    fanout (with several --bytes and --burst), publish or, for more than one member, cluster,
    connect, idle and cache. Nothing is foretold beyond twice what they measured.
    """
    if not runs and tables is None:
        raise click.UsageError("Give files of benchmark runs, or --tables with some.")
    try:
        bytes_each = values.size(MB, 1024 * GB).parse(memory)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--memory") from None
    check_page(report)
    with started("capacity", spark_settings) as spark:
        from mdserver.pipeline.capacity import job
        from mdserver.pipeline.capacity.model import Demand

        folder = None if tables is None else absolute(tables)
        plan = job.run_capacity(spark, runs, folder, Demand(memory=bytes_each, **load), report)
    print_result(form, plan_text(plan), plan_value(plan))


def plan_text(plan: "Plan") -> str:
    """Return a plan in words."""
    members = "1 member" if plan.members == 1 else f"{plan.members} members"
    lines = [f"{members}, limited by {plan.limited_by}"]
    for name, parts in (("processor time", plan.processor), ("memory", plan.memory)):
        shares = ", ".join(f"{part} {share:.1%}" for part, share in parts.items())
        lines.append(f"{name} of a member: {shares or 'nothing'}")
    for fit in plan.fits:
        trust = "one run only" if fit.error is None else f"foretold within {fit.error:.0%}"
        lines.append(f"{fit.resource}: {len(fit.runs)} runs, {trust}")
    return "\n".join(lines)


def plan_value(plan: "Plan") -> dict[str, Any]:
    """Return a plan as a JSON object, with shares and errors as fractions of 1."""
    return {
        "members": plan.members,
        "limited_by": plan.limited_by,
        "processor": dict(plan.processor),
        "memory": dict(plan.memory),
        "fits": [
            {"resource": fit.resource, "runs": len(fit.runs), "error": fit.error}
            for fit in plan.fits
        ],
    }


@command.command("replay")
@tables_option
@figures_options
@click.option("--subject", required=True, help="A subject or pattern, such as /vehicles/**.")
@click.option("--from", "start", type=click.DateTime(_TIMES), help="The first moment (UTC).")
@click.option("--to", "end", type=click.DateTime(_TIMES), help="The moment to stop before (UTC).")
@click.option("--speed", default="1x", show_default=True, help="A factor such as 10x, or max.")
@click.option("--to-prefix", default="/replay", show_default=True, help="Goes before subjects.")
@click.option("--server", default="127.0.0.1:8800", show_default=True, help="Where to publish.")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@format_option("A sentence, or a JSON object: how many messages were published.")
def replay(
    *,
    tables: Tables,
    outlets: Outlets,
    subject: str,
    start: datetime | None,
    end: datetime | None,
    speed: str,
    to_prefix: str,
    server: str,
    token_file: Path | None,
    form: str,
) -> None:
    """Publish archived messages again, with the pauses they had, or faster.

    It needs no Java, and memory for a few seconds of messages only, however many there are.
    """
    requirements.check_extra()
    check_tables(tables)
    parse_interest(subject)
    validate_subject(to_prefix + "/x/x")
    token = None if token_file is None else token_in(token_file, "--token-file")
    from mdserver.pipeline.common import spark_errors
    from mdserver.pipeline.replay import job
    from mdserver.pipeline.replay.windows import Selection

    factor = job.parse_speed(speed)
    chosen = job.rows(absolute(tables), Selection.between(subject, start, end))
    with told("replay", outlets) as figures, spark_errors.told("replay"):
        before, since = 0, time.monotonic()

        def tell(progress: job.Replayed) -> None:
            nonlocal before, since
            now = time.monotonic()
            figures.add(
                Progressed(
                    stream="messages",
                    rows=progress.published - before,
                    seconds=now - since,
                    lag_s=progress.behind_s,
                )
            )
            before, since = progress.published, now

        planned = job.plan(chosen, factor, to_prefix)
        replayed = trio.run(job.replay, server, token, planned, tell)
    text = f"{replayed.published} messages published"
    if replayed.behind_s >= 1:
        text += f"; the last one {replayed.behind_s:.1f} s after its time"
    print_result(form, text, attrs.asdict(replayed))
