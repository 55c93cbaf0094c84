"""`mdserver ship`: a member's journal, sent to a place from which the archive reads all members."""

from pathlib import Path
from typing import Any

import attrs
import click

from mdserver.cli.ending import end_in_order_on_sigterm
from mdserver.cli.forms import format_option, print_result
from mdserver.cli.job_options import figures_options
from mdserver.pipeline.common import object_store
from mdserver.pipeline.common.figures import Outlets, Progressed, told
from mdserver.pipeline.ship import job


@click.command("ship")
@click.option(
    "--journal",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="JournalFolder of the member.",
)
@click.option(
    "--to",
    "place",
    required=True,
    metavar="PLACE",
    help="A folder, or s3://BUCKET/PREFIX; s3a, gs, az and abfss as well. One for all members.",
)
@click.option("--once", is_flag=True, help="End when everything that is sealed has been sent.")
@figures_options
@format_option("A line a segment: words, or a JSON object.")
def command(*, journal: Path, place: str, once: bool, outlets: Outlets, form: str) -> None:
    """Send a member's journal to a place that all members share, each line once.

    One process beside each member, run as the user of its server. It needs no Spark and no Java,
    and memory for one segment (64 MB). Segments are sent when they are sealed, at most 5 s
    after their first line, and the server deletes only what has been sent, unless the journal's
    limits are reached. The process may be killed at any moment, and started again. Any number of
    members may have the same PLACE, and one job archives them all:

    \b
      mdserver ship --journal /var/lib/mdserver/journal --to s3://fleet/journals
      mdserver pipeline archive --shipped s3://fleet/journals --tables tables

    Credentials come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
    AWS_ENDPOINT_URL (with AWS_ALLOW_HTTP=true if that is http://), AWS_WEB_IDENTITY_TOKEN_FILE,
    GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY and others. Object stores need the
    extra mdserver[ship]. Of the place only listing, reading and making objects are asked, never
    changing or deleting: what has been archived is deleted by a rule of the bucket.
    """
    end_in_order_on_sigterm()
    store = object_store.opened(place)
    with told("ship", outlets) as figures:

        def tell(sent: job.Shipped) -> None:
            if sent.missing is not None:
                click.echo(f"{sent.stream}: {sent.missing}: deleted before it was sent", err=True)
            there = "" if sent.new else ", there already"
            text = f"{sent.stream} segment {sent.segment}: {sent.lines} lines{there}"
            value: dict[str, Any] = attrs.asdict(sent)
            print_result(form, text, value)
            figures.add(
                Progressed(
                    stream=sent.stream, rows=sent.lines, seconds=sent.seconds, lag_s=sent.lag_s
                )
            )

        job.run_ship(journal.resolve(), store, tell, once=once)
