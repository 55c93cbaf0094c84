"""`mdserver ship`: a member's journal, sent to a place from which the archive reads all members."""

from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from mdserver.cli.forms import format_option, print_result
from mdserver.cli.job_options import figures_options
from mdserver.ending import end_in_order_on_sigterm
from mdserver.errors import ConfigError
from mdserver.pipeline.common import object_store, shipped
from mdserver.pipeline.common.figures import Outlets, Progressed, told
from mdserver.pipeline.ship import job
from mdserver.pipeline.ship.destination import Destination, SharedPlace, Shipped
from mdserver.pipeline.ship.topics import Topics


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
    metavar="PLACE",
    help="A folder, or s3://BUCKET/PREFIX; s3a, gs, az and abfss as well. One for all members.",
)
@click.option("--kafka", metavar="SERVERS", help="Bootstrap servers of Kafka, in place of --to.")
@click.option(
    "--topics",
    metavar="TOPICS",
    help="A comma list for --kafka; the part after the last dot names the stream. Streams without "
    "a topic are not sent.",
)
@click.option(
    "--kafka-properties",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The properties of a Java client for --kafka: TLS, SASL with passwords.",
)
@click.option(
    "--state-topic",
    default="mdserver-ships",
    show_default=True,
    help="The compacted topic that keeps how far streams were sent; it is made if it is not there.",
)
@click.option("--once", is_flag=True, help="End when everything that is sealed has been sent.")
@figures_options
@format_option("A line a segment: words, or a JSON object.")
def command(
    *,
    journal: Path,
    place: str | None,
    kafka: str | None,
    topics: str | None,
    kafka_properties: Path | None,
    state_topic: str,
    once: bool,
    outlets: Outlets,
    form: str,
) -> None:
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

    With --kafka each line is a record of the stream's topic, whose headers name journal, segment
    and line. It is there once for readers of what is committed, since lines are written in
    transactions. It needs the extra mdserver[kafka]:

    \b
      mdserver ship --journal /var/lib/mdserver/journal --kafka broker:9092 \\
        --topics fleet.messages,fleet.receipts --kafka-properties kafka.properties
      mdserver pipeline archive --kafka broker:9092 --topics fleet.messages,fleet.receipts \\
        --tables tables
    """
    end_in_order_on_sigterm()
    if (place is None) == (kafka is None):
        raise click.UsageError("Give either --to or --kafka.")
    if place is None:
        assert kafka is not None
        to = _topics(kafka, _by_stream(topics), kafka_properties, state_topic)
    elif topics is not None or kafka_properties is not None:
        raise click.UsageError("--topics and --kafka-properties are for --kafka.")
    else:
        to = SharedPlace(object_store.opened(place))
    with told("ship", outlets) as figures:

        def tell(sent: Shipped) -> None:
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

        job.run_ship(journal.resolve(), to, tell, once=once)


def _by_stream(topics: str | None) -> dict[str, str]:
    """Return the topics by the streams that they are for. Raises UsageError."""
    if not topics:
        raise click.UsageError("--kafka needs --topics, such as fleet.messages,fleet.receipts.")
    found: dict[str, str] = {}
    for topic in topics.split(","):
        stream = topic.rpartition(".")[2]
        if stream not in shipped.STREAMS or stream in found:
            raise click.UsageError(
                f"--topics: {topic!r} is no topic of a stream: each of {', '.join(shipped.STREAMS)}"
                " may have one, whose name ends with it after a dot."
            )
        found[stream] = topic
    return found


def _topics(
    servers: str, topics: dict[str, str], properties: Path | None, state_topic: str
) -> Destination:
    """Return the topics as a destination. Raises ConfigError."""
    try:
        from mdserver.bridge.lines import JournalLedger
        from mdserver.server.kafka.properties import (
            load_properties,
            require_stores,
            translated,
            without_topics,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"ship --kafka: {error.name} is not installed: python -m pip install 'mdserver[kafka]'"
        ) from None
    given = {}
    if properties is not None:
        found = load_properties("--kafka-properties", properties)
        require_stores("--kafka-properties", properties, found)
        given = translated(properties, without_topics(found))
    ledger = partial(JournalLedger.of, given | {"bootstrap.servers": servers}, state_topic)
    return Topics(topics, ledger)
