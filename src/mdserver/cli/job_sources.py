"""What a job of `mdserver pipeline` reads and writes, and the start of Spark for it.

Everything that a job needs is checked before Spark starts, so that a mistake costs one line and not
ten seconds. For the same reason modules that import Spark are imported in functions.
"""

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from attrs import field, frozen

from mdserver.cli.job_options import parsed_setting, refuse_secret
from mdserver.errors import ConfigError
from mdserver.journal import segments
from mdserver.pipeline.common import object_store, places, requirements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdserver.pipeline.common import sources


class FolderParam(click.Path):
    """A folder; a URI is refused, since it would be taken for the path of one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if object_store.is_uri(str(value)):
            self.fail(f"{value} is a URI, and this takes a folder.", param, ctx)
        return super().convert(value, param, ctx)


class TablesParam(FolderParam):
    """A folder, or the URI of one in an object store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the tables in an object store."""
        if isinstance(value, places.RemoteTables) or not object_store.is_uri(str(value)):
            return super().convert(value, param, ctx)
        store = object_store.opened(value)
        if isinstance(store, object_store.RemoteStore):
            return places.RemoteTables(store)
        return super().convert(store.uri, param, ctx)


class SparkPlaceParam(FolderParam):
    """A folder, or a URI of one of Spark's file systems."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the absolute path, or the URI."""
        parts = urlsplit(str(value))
        if not object_store.is_uri(str(value)) or parts.scheme == "file":
            folder = parts.path if parts.scheme == "file" else value
            return Path(super().convert(folder, param, ctx)).resolve()
        if parts.password is not None:
            self.fail("an address with a password would be seen by all users.", param, ctx)
        return str(value)


FOLDER = FolderParam(file_okay=False, path_type=Path)
TABLES = TablesParam(file_okay=False, path_type=Path)
SPARK_PLACE = SparkPlaceParam(file_okay=False, path_type=Path)


def tables_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--tables`, the folder of Delta tables that every job has."""
    return click.option(
        "--tables",
        type=TABLES,
        metavar="PLACE",
        required=True,
        help="The folder of the archive's Delta tables, or s3://BUCKET/PREFIX and the like.",
    )(function)


@frozen
class JobSource:
    """The source of a job: a journal, topics of Kafka, or for `archive` several journals.

    `shipped` is a place that has journals of any number of members. Raises UsageError unless
    exactly one kind is given.
    """

    journals: Sequence[Path]
    kafka: str | None
    topics: str | None
    kafka_settings: Mapping[str, str] = field(factory=dict, repr=False)
    plain: bool = False
    shipped: str | None = None

    def __attrs_post_init__(self) -> None:
        if bool(self.journals or self.shipped) == (self.kafka is not None):
            raise click.UsageError("Give either --journal, --shipped or --kafka.")
        if self.kafka is not None and not self.topics:
            raise click.UsageError("--kafka needs --topics, such as mdserver.messages.")
        if self.plain and self.kafka is None:
            raise click.UsageError("--plain is about topics: give --kafka and --topics.")
        if self.kafka is None and (self.topics or self.kafka_settings):
            raise click.UsageError(
                "--topics and the settings of Kafka's client are for --kafka: give that, or leave"
                " them out."
            )
        for journal in self.journals:
            if not journal.is_dir():
                raise click.BadParameter(
                    f"{journal} is no folder; a server with Journal = on makes the one that its"
                    " JournalFolder names.",
                    param_hint="--journal",
                )
        for one, other in itertools.combinations(self.journals, 2):
            if one.samefile(other):
                raise click.BadParameter(
                    f"{one} and {other} are the same folder.", param_hint="--journal"
                )

    def jars(self) -> list[Path]:
        """Return the jars that Spark needs to read the source.

        Raises PipelineError if one is missing.
        """
        from mdserver.pipeline.common import session

        # spark-submit gets the jars by its own option.
        if self.kafka is None or session.submitted():
            return []
        return requirements.spark_jars(os.environ)

    def source(self) -> "sources.Source":
        """Return the source of a job that reads one journal, or topics; imports Spark."""
        from mdserver.pipeline.common import sources

        if self.journals:
            return sources.JournalSource(self.journals[0].resolve())
        return self.kafka_source()

    def all_sources(self) -> "sources.KafkaSource | list[sources.JournalSource]":
        """Return the topics, or all journals; imports Spark."""
        from mdserver.pipeline.common import sources

        if self.kafka is not None:
            return self.kafka_source()
        return [sources.JournalSource(journal.resolve()) for journal in self.journals]

    def place(self) -> object_store.ObjectStore | None:
        """Return the place of --shipped, None without one.

        Raises PipelineError if it is no use, or is not there.
        """
        if self.shipped is None:
            return None
        store = object_store.opened(self.shipped)
        store.check()
        return store

    def check_streams(self, streams: Iterable[str]) -> None:
        """Raise PipelineError if a journal has none of these streams, before Spark starts."""
        names = list(streams)
        for journal in self.journals:
            if not any((journal / name).is_dir() for name in names):
                raise requirements.PipelineError(
                    f"{journal} has none of the folders {', '.join(names)}: give the JournalFolder"
                    " of a server with Journal = on, when that has something in it"
                )

    def attend(self, reader: str, streams: Iterable[str]) -> None:
        """Have the journal kept until this job has read it, before Spark takes its time to start.

        If the folder cannot be written to, only the limits of the server decide what is kept.
        """
        for folder in (journal / stream for journal in self.journals for stream in streams):
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    segments.attend(folder, reader)

    def kafka_source(self) -> "sources.KafkaSource":
        """Return the source for the topics of --kafka."""
        from mdserver.pipeline.common import sources

        assert self.kafka is not None
        topics = (self.topics or "").split(",")
        return sources.KafkaSource(self.kafka, topics, self.kafka_settings, plain=self.plain)


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the source; the function gets them as `where`."""

    @click.option(
        "--journal",
        "journals",
        type=FOLDER,
        multiple=True,
        help="A journal folder: one folder a stream. For `archive` repeatable, one a member.",
    )
    @click.option(
        "--shipped",
        metavar="PLACE",
        help="For `archive`: a folder or s3:// URI to which `mdserver ship` sends all members'.",
    )
    @click.option("--kafka", metavar="SERVERS", help="Bootstrap servers, in place of a journal.")
    @click.option("--topics", help="A comma list; the part after the last dot names the stream.")
    @click.option(
        "--plain",
        is_flag=True,
        help="Records of the topics are messages, as for members with ClusterEngine = kafka.",
    )
    @click.option(
        "--kafka-option",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of the Kafka client, such as security.protocol=SSL; repeatable.",
    )
    @click.option(
        "--kafka-properties",
        "properties",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with such settings, as Java clients have them: for passwords.",
    )
    @functools.wraps(function)
    def with_source(
        journals: tuple[Path, ...],
        shipped: str | None,
        kafka: str | None,
        topics: str | None,
        settings: tuple[str, ...],
        properties: Path | None,
        plain: bool,
        **others: Any,
    ) -> Any:
        parsed = dict(parsed_setting(text) for text in settings)
        for name in parsed:
            refuse_secret(name, "--kafka-option", "put it into a file for --kafka-properties")
        if properties is not None:
            parsed = java_settings(properties) | parsed
        return function(where=JobSource(journals, kafka, topics, parsed, plain, shipped), **others)

    return with_source


def java_settings(file: Path) -> dict[str, str]:
    """Return the properties of a file that are for Spark's Kafka client. Raises ConfigError.

    It may be the file of a server: what is about deserializers, positions and topics is left out.
    """
    try:
        from mdserver.server.kafka.properties import (
            OURS,
            UNUSED,
            load_properties,
            require_stores,
            without_topics,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--kafka-properties: {error.name} is not installed: python -m pip install"
            " 'mdserver[kafka]'"
        ) from None
    left_out = {*UNUSED, *OURS, "bootstrap.servers"}
    found = without_topics(load_properties("--kafka-properties", file))
    require_stores("--kafka-properties", file, found)
    return {name: value.strip() for name, value in found.items() if name not in left_out}


def check_tables(tables: places.Tables) -> None:
    """Raise BadParameter unless the folder exists, or PipelineError if a store refuses it."""
    if isinstance(tables, places.RemoteTables):
        tables.store.check()
    elif not tables.is_dir():
        raise click.BadParameter(
            f"{tables} is no folder; `mdserver pipeline archive` makes it.", param_hint="--tables"
        )


def check_writable(tables: places.Tables) -> None:
    """Create the folder; raise PipelineError if a job cannot write its tables there.

    Of an object store only what it says to a list is known before the first commit.
    """
    if isinstance(tables, places.RemoteTables):
        tables.store.check()
        return
    try:
        tables.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise requirements.PipelineError(f"{tables} cannot be made: {error.strerror}") from None
    if not os.access(tables, os.W_OK | os.X_OK):
        raise requirements.PipelineError(
            f"{tables} cannot be written to: give a folder that can be"
        )


def check_page(page: Path | None) -> None:
    """Raise BadParameter if a report cannot be written there; None is no report."""
    if page is None:
        return
    if not page.absolute().parent.is_dir():
        raise click.BadParameter(f"{page.parent} is no folder.", param_hint="--report")
    if not os.access(page if page.exists() else page.absolute().parent, os.W_OK):
        raise click.BadParameter(f"{page} cannot be written.", param_hint="--report")


def absolute(tables: places.Tables) -> places.Tables:
    """Return the absolute path of a folder; a URI is one already."""
    return tables.resolve() if isinstance(tables, Path) else tables


@contextlib.contextmanager
def started(
    job: str, settings: Mapping[str, str], where: JobSource | None = None
) -> "Iterator[SparkSession]":
    """Start Spark for a job, after checking everything that it needs; stop it at the end.

    What Spark, the tables or the disk fail with becomes a PipelineError of one sentence.
    """
    requirements.check_extra()
    requirements.check_java(os.environ)
    jars = where.jars() if where is not None else []
    from mdserver.pipeline.common import session, spark_errors

    with session.running(job, jars=jars, given=settings) as spark, spark_errors.told(job):
        yield spark
