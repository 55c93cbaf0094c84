"""What a job needs is checked before Spark starts, and told in one line."""

from pathlib import Path

import pytest

from mdserver.pipeline.common import requirements
from mdserver.pipeline.common.requirements import PipelineError


def java(folder: Path, says: str) -> dict[str, str]:
    """An environment whose java program says this."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"Java 17 or newer, and PATH has no java program"):
        requirements.check_java({"PATH": str(tmp_path)})


def test_an_old_java(tmp_path: Path) -> None:
    environment = java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(PipelineError, match=r"Java 17 or newer; .*/bin/java is 11"):
        requirements.check_java(environment)


def test_something_else_called_java(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="does not say its version"):
        requirements.check_java(java(tmp_path, "an island"))


def test_a_new_java(tmp_path: Path) -> None:
    requirements.check_java(java(tmp_path, 'openjdk version "21.0.1" 2023-10-17'))


def test_kafka_jars(tmp_path: Path) -> None:
    name = requirements.JARS_VARIABLE
    with pytest.raises(PipelineError, match=f"set {name} to the folder"):
        requirements.spark_jars({})
    with pytest.raises(PipelineError, match="holds no spark-sql-kafka"):
        requirements.spark_jars({name: str(tmp_path)})
    jar = tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar"
    jar.write_bytes(b"")
    assert requirements.spark_jars({name: str(tmp_path)}) == [jar]
    more = tmp_path / "more" / "hadoop-aws-3.5.0.jar"
    more.parent.mkdir()
    more.write_bytes(b"")
    assert requirements.spark_jars({name: f"{more.parent}:{tmp_path}"}) == [more, jar]


def test_the_extra_is_there() -> None:
    requirements.check_extra()
