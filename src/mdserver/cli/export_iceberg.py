"""`mdserver pipeline export-iceberg`: the archive for readers that know only Iceberg."""

import importlib.util
import time

import attrs
import click

from mdserver.cli.forms import format_option, print_result
from mdserver.cli.job_options import figures_options
from mdserver.cli.job_sources import absolute, check_tables, check_writable, tables_option
from mdserver.cli.terminal import harmless
from mdserver.pipeline.common import requirements
from mdserver.pipeline.common.figures import Outlets, Progressed, told
from mdserver.pipeline.common.places import Tables


@click.command("export-iceberg")
@tables_option
@figures_options
@click.option(
    "--every",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help="Export again and again, with this pause, until it is ended.",
)
@format_option("A line a table, or a JSON object a table.")
def export_iceberg(*, tables: Tables, outlets: Outlets, every: int | None, form: str) -> None:
    """Let readers of Iceberg read all tables, each as the folder TABLES/iceberg/NAME.

    Only metadata is written, over the files that are there, and only for files that came or went
    since the run before. It needs no Spark and no Java, and the extra mdserver[iceberg].
    """
    requirements.check_extra()
    check_iceberg()
    check_tables(tables)
    check_writable(tables)
    from mdserver.pipeline.common import spark_errors
    from mdserver.pipeline.iceberg import job

    with told(job.JOB, outlets) as figures, spark_errors.told(job.JOB):

        def tell(done: job.Exported) -> None:
            text = (
                f"{done.table}: version {done.version}, {done.added} files added,"
                f" {done.removed} removed, {done.rows} rows now, {done.seconds:.1f} s"
            )
            print_result(form, text, attrs.asdict(done))
            figures.add(Progressed(stream=done.table, rows=done.added, seconds=done.seconds))

        while True:
            try:
                job.run_export(absolute(tables), tell)
            except job.NotExportedError as error:
                if every is None:
                    raise
                click.echo(harmless(str(error)), err=True)
            if every is None:
                return
            time.sleep(every)


def check_iceberg() -> None:
    """Raise PipelineError unless the extra `iceberg` is installed."""
    if importlib.util.find_spec("pyiceberg") is None:
        raise requirements.PipelineError(
            "this job needs pyiceberg: install the extra `iceberg` (in the folder of the mdserver"
            " repository: pip install '.[pipeline,iceberg]')"
        )
