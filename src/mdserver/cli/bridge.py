"""`mdserver bridge kafka`: copies between topics of Kafka and subjects."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from mdserver.cli.options import (
    ConnectionOptions,
    connection_options,
    run_parts,
    tell,
    watch_client,
)
from mdserver.client import Client
from mdserver.errors import ConfigError
from mdserver.limits import MESSAGE_BYTES_MAX


@click.group("bridge")
def command() -> None:
    """Copy messages between a cluster and other systems."""


@command.command("kafka")
@click.option(
    "--properties",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The properties of a Java client: bootstrap.servers, TLS, SASL.",
)
@click.option(
    "--name",
    default="mdserver-bridge",
    show_default=True,
    help="Under which it is kept what was copied, without spaces. A bridge that is started under "
    "the same name goes on there, and shuts out the one before.",
)
@click.option(
    "--to-subjects",
    multiple=True,
    metavar="TOPIC=SUBJECT",
    help="Copy the records of a topic. In SUBJECT {topic}, {key}, {partition} and {header:NAME} "
    "stand for those of the record. Repeatable.",
)
@click.option(
    "--to-topics",
    multiple=True,
    metavar="PATTERN=TOPIC:KEY",
    help="Copy the messages of a subject or pattern. In TOPIC and KEY {subject}, its segments {0}, "
    "{1}..., {rest} (all after the first) and {field:NAME} stand for those of the message; KEY is "
    "{rest} if it is left out. With any of them in TOPIC those who publish choose the topic: let "
    "the bridge's user write only to topics that they may choose. Repeatable.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help="Copy only what has this field or header. Repeatable: it must have all of them.",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="At the first start copy the records that topics have already.",
)
@click.option(
    "--state-topic",
    default="mdserver-bridges",
    show_default=True,
    help="The compacted topic that keeps what was copied; it is made if it is not there.",
)
@click.option(
    "--max-message-size",
    type=click.IntRange(1),
    default=MESSAGE_BYTES_MAX,
    show_default=True,
    help="Leave out larger records; MaxMessageSize of the servers.",
)
@connection_options
def kafka(
    connection: ConnectionOptions,
    file: Path,
    name: str,
    to_subjects: tuple[str, ...],
    to_topics: tuple[str, ...],
    where: tuple[str, ...],
    state_topic: str,
    max_message_size: int,
    *,
    from_beginning: bool,
) -> None:
    """Copy topics of Kafka to subjects, and subjects to topics, each message once.

    It runs until it is ended, and goes on where it was when it is started again, also after a
    crash. What may be missing nevertheless is told on stderr; docs/kafka.md
    says what may come twice. What the bridge has copied is not copied back. It needs the
    extra mdserver[kafka]. With --where only some are copied:

    \b
      mdserver bridge kafka --properties kafka.properties \\
        --to-subjects 'vehicles=/fleet/{key}' \\
        --to-topics '/orders/**=orders:{rest}' --where status=new

    A record that cannot be a message, or that servers refuse for good, is left out, with a line on
    stderr. Each partition of a topic is a publisher of its own. Servers know publishers for an
    hour: after a crash and a longer pause the last batch may be copied twice.
    """
    try:
        from mdserver.bridge.beginning import PartitionRow
        from mdserver.bridge.inward import Inward
        from mdserver.bridge.ledger import Ledger
        from mdserver.bridge.outward import Outward, Seen
        from mdserver.bridge.rules import RuleError, Rules, bridge_name, conditions
        from mdserver.bridge.rules import to_subjects as read_inward
        from mdserver.bridge.rules import to_topics as read_outward
        from mdserver.server.kafka.properties import read_properties, translated
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"bridge kafka: {error.name} is not installed: python -m pip install 'mdserver[kafka]'"
        ) from None
    if not to_subjects and not to_topics:
        raise click.UsageError("give --to-subjects or --to-topics: there is nothing to copy")
    try:
        rules = Rules(
            bridge_name(name),
            tuple(map(read_inward, to_subjects)),
            tuple(map(read_outward, to_topics)),
            conditions(where),
            state_topic,
        )
    except RuleError as error:
        raise click.UsageError(str(error)) from None
    properties = translated(file, read_properties("--properties", file))

    def open_client(**more: Any) -> Client:
        return connection.client(**more)

    watch = partial(watch_client, connection=connection, connected=None)
    parts = []
    if rules.topics:
        ledger = Ledger(properties, f"{name}-out", state_topic, Seen | None)
        said = partial(tell, f"subjects to topics: {len(rules.topics)} rules")
        parts.append(Outward(rules, ledger, open_client, watch, tell, said).run)
    if rules.subjects:
        ledger = Ledger(properties, f"{name}-in", state_topic, PartitionRow)
        parts.append(
            Inward(
                rules,
                properties,
                ledger,
                open_client,
                watch,
                tell,
                max_message_size,
                from_beginning,
            ).run
        )
    run_parts(connection, parts)
