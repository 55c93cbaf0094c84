"""The place of Spark's checkpoints: a folder, or a URI of one of Spark's own file systems.

A streaming query of Spark's renames and lists its files, by the file systems that Spark has: those
of Hadoop, with the jars that they need. Tables in an object store are reached without jars, and so
the checkpoints of a query may be in another place than the tables that it fills.
"""

import json
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from mdserver.pipeline.common import object_store, store_errors
from mdserver.pipeline.common.requirements import JARS_VARIABLE, PipelineError


class SparkFolders(Protocol):
    """A place with a folder for each streaming query. All methods raise PipelineError."""

    def path(self, name: str) -> str:
        """Return the path or the URI of a folder, as Spark takes it."""

    def exists(self, name: str) -> bool:
        """Return whether the folder is there."""

    def is_empty(self, name: str) -> bool:
        """Return whether nothing is in a folder that is there."""

    def make(self, name: str) -> None:
        """Make a folder, and those above it; do nothing if it is there."""

    def content(self, name: str) -> bytes | None:
        """Return a file below a folder, None if it is not there."""


@frozen
class LocalFolders:
    """Folders of the file system."""

    place: Path

    def path(self, name: str) -> str:
        """Return the path of a folder."""
        return str(self.place / name)

    def exists(self, name: str) -> bool:
        """Return whether the folder is there."""
        return (self.place / name).is_dir()

    def is_empty(self, name: str) -> bool:
        """Return whether nothing is in a folder that is there."""
        return not any((self.place / name).iterdir())

    def make(self, name: str) -> None:
        """Make a folder, and those above it; do nothing if it is there."""
        try:
            (self.place / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PipelineError(f"{self.path(name)} cannot be made: {error.strerror}") from None

    def content(self, name: str) -> bytes | None:
        """Return a file below a folder, None if it is not there."""
        try:
            return (self.place / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PipelineError(f"{self.path(name)}: {error.strerror}") from None


FIRST_LOOK = {"fs.s3a.attempts.maximum": "3", "fs.s3a.retry.limit": "3"}
"""Settings of Hadoop for the look at folders before a job begins: by default it takes minutes until
a wrong address is an error. The job itself has the patience that Hadoop has."""


FIRST_OFFSETS = "sources/0/0"
"""Where Spark's checkpoint of a query has the offsets of each partition when the query began."""


class RemoteFolders:
    """Folders of one of Spark's file systems, such as `hdfs://` or `s3a://`, by their URI.

    Raises PipelineError if Spark has no such file system.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._place = place.rstrip("/")
        assert spark._jvm is not None
        self._jvm = spark._jvm
        try:
            hadoop = self._jvm.org.apache.hadoop
            configuration = hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
            for name, value in FIRST_LOOK.items():
                configuration.set(name, value)
            # Not the instance that Hadoop keeps for each address, which the job uses.
            uri = self._path(self._place).toUri()
            self._files: Any = hadoop.fs.FileSystem.newInstance(uri, configuration)
        except Py4JJavaError as error:
            raise PipelineError(
                f"{place}: Spark has no file system for it ({_reason(error, place)}):"
                f" {_remedy(place)}, or give a folder that is mounted"
            ) from None

    def path(self, name: str) -> str:
        """Return the URI of a folder."""
        return f"{self._place}/{name}"

    def exists(self, name: str) -> bool:
        """Return whether the folder is there."""
        return bool(self._asked(self._files.exists, name))

    def is_empty(self, name: str) -> bool:
        """Return whether nothing is in a folder that is there."""
        return len(self._asked(self._files.listStatus, name)) == 0

    def make(self, name: str) -> None:
        """Make a folder, and those above it; do nothing if it is there."""
        self._asked(self._files.mkdirs, name)

    def content(self, name: str) -> bytes | None:
        """Return a file below a folder, None if it is not there."""
        if not self.exists(name):
            return None
        opened = self._asked(self._files.open, name)
        try:
            return bytes(opened.readAllBytes())
        except Py4JJavaError as error:
            raise PipelineError(f"{self.path(name)}: {_reason(error, self._place)}") from None
        finally:
            opened.close()

    def _asked(self, method: Any, name: str) -> Any:
        try:
            return method(self._path(self.path(name)))
        except Py4JJavaError as error:
            raise PipelineError(f"{self.path(name)}: {_reason(error, self._place)}") from None

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def _remedy(place: str) -> str:
    """Return what to do so that Spark has the file system of a URI."""
    scheme = place.partition("://")[0]
    if scheme == "s3":
        return "Hadoop calls it s3a://"
    if scheme == "s3a":
        return f"`make jars` fetches its jars: name build/jvm/s3a as well in {JARS_VARIABLE}"
    return "give its jars by --spark-option spark.jars=..."


def _reason(error: Py4JJavaError, place: str) -> str:
    """Return the first line of what Java says, and what to do about a store that refuses.

    Of S3 alone: Hadoop looks for its credentials in the variables of its provider.
    """
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    told = str(cause.toString()).partition("\n")[0]
    found = store_errors.remedy(told, store_errors.S3) if place.startswith("s3a://") else None
    return told if found is None else f"{told}: {found}"


def opened(spark: SparkSession, place: Path | str) -> SparkFolders:
    """Return the folders in a place: the path of a folder, or a URI. Raises PipelineError."""
    if isinstance(place, Path):
        return LocalFolders(place)
    assert object_store.is_uri(place)
    return RemoteFolders(spark, place)


def first_partitions(folders: SparkFolders, name: str) -> dict[str, int]:
    """Return how many partitions topics had when the query of a folder read them first.

    Returns nothing if Spark's checkpoint does not say it.
    """
    found = folders.content(f"{name}/{FIRST_OFFSETS}") or b""
    try:
        # A zero byte, the version of the format, and offsets by topic and partition.
        offsets = json.loads(found.lstrip(b"\0").partition(b"\n")[2])
        return {str(topic): len(parts) for topic, parts in offsets.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
