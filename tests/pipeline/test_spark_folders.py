"""Places of Spark's checkpoints: a folder, and the file systems that Spark has."""

from pathlib import Path
from typing import Any

import pytest

from mdserver.pipeline.common import spark_folders
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.spark_folders import LocalFolders

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]


@pytest.mark.parametrize("by_uri", [False, True])
def test_a_folder_that_is_made_and_filled(spark: Any, tmp_path: Path, by_uri: bool) -> None:
    place = tmp_path / "ü b"
    folders = spark_folders.opened(spark, f"file://{place}" if by_uri else place)
    assert not folders.exists("a-1")
    folders.make("a-1")
    folders.make("a-1")
    assert folders.exists("a-1")
    assert folders.is_empty("a-1")
    (place / "a-1" / "metadata").write_text("{}")
    assert not folders.is_empty("a-1")
    assert spark.read.text(folders.path("a-1")).count() == 1
    assert folders.content("a-1/metadata") == b"{}"
    assert folders.content("a-1/none") is None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'\0v1\n{"a.b":{"0":0,"1":7},"c":{"0":2}}', {"a.b": 2, "c": 1}),
        (b"\0v1\n[]", {}),
        (b"damaged", {}),
        (None, {}),
    ],
)
def test_the_partitions_that_topics_had_first(
    tmp_path: Path, content: bytes | None, found: dict[str, int]
) -> None:
    if content is not None:
        file = tmp_path / "m-1" / spark_folders.FIRST_OFFSETS
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    assert spark_folders.first_partitions(LocalFolders(tmp_path), "m-1") == found


def test_a_file_system_that_spark_lacks_is_one_line(spark: Any) -> None:
    with pytest.raises(
        PipelineError,
        match=r"^s3a://b/c: Spark has no file system for it \(.*S3A.*\): `make jars` .*"
        r"name build/jvm/s3a as well in MDSERVER_SPARK_JARS",
    ):
        spark_folders.opened(spark, "s3a://b/c")
    with pytest.raises(
        PipelineError,
        match=r"^s3://b/c: Spark has no .*Hadoop calls it s3a://, .* a folder that is mounted$",
    ):
        spark_folders.opened(spark, "s3://b/c")


def test_a_place_that_does_not_answer_is_one_line(spark: Any) -> None:
    folders = spark_folders.opened(spark, "hdfs://127.0.0.1:1/checkpoints")
    with pytest.raises(PipelineError, match=r"^hdfs://127\.0\.0\.1:1/checkpoints/a: .*Exception"):
        folders.exists("a")
