"""Checks of the machine before Spark starts; each failure is reported in one clear line."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mdserver.errors import MdserverError

JAVA_MIN = 17
JARS_VARIABLE = "MDSERVER_SPARK_JARS"
CONNECTOR = "spark-sql-kafka-0-10_2.13-*.jar"
MODULES = ("numpy", "pyspark", "deltalake", "pyarrow", "yaml")


class PipelineError(MdserverError):
    """A job cannot run; the message is one line that gives the reason and the remedy."""


def check_extra() -> None:
    """Raise PipelineError unless the extra `pipeline` is installed."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineError(
            f"the pipeline needs {', '.join(missing)}: install the extra `pipeline`"
            " (in the folder of the mdserver repository: pip install '.[pipeline]')"
        )


def check_java(environment: Mapping[str, str]) -> None:
    """Raise PipelineError unless Spark will find Java 17 or newer by `JAVA_HOME` or `PATH`."""
    home = environment.get("JAVA_HOME")
    java = (
        Path(home) / "bin" / "java" if home else shutil.which("java", path=environment.get("PATH"))
    )
    where = f"JAVA_HOME={home}" if home else "PATH"
    if java is None or not os.access(java, os.X_OK):
        raise PipelineError(
            f"Spark needs Java {JAVA_MIN} or newer, and {where} has no java program"
        )
    shown = subprocess.run(
        [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    match = re.search(r'version "(\d+)', shown.stderr)
    if match is None or int(match[1]) < JAVA_MIN:
        found = match[1] if match else "something that does not say its version"
        raise PipelineError(f"Spark needs Java {JAVA_MIN} or newer; {java} is {found}")


def spark_jars(environment: Mapping[str, str]) -> list[Path]:
    """Return the jars of the folders that MDSERVER_SPARK_JARS names, separated as in PATH.

    Spark's Kafka connector is there, and perhaps a file system for checkpoints. Raises
    PipelineError if the variable is missing or no folder has the connector.
    """
    folders = environment.get(JARS_VARIABLE)
    if not folders:
        raise PipelineError(
            f"reading Kafka needs Spark's connector: set {JARS_VARIABLE} to the folder of its jars"
            " (docs/pipeline.md says how to make it)"
        )
    places = [Path(folder) for folder in folders.split(os.pathsep) if folder]
    if not any(jar for place in places for jar in place.glob(CONNECTOR)):
        raise PipelineError(f"{JARS_VARIABLE}: {folders} holds no {CONNECTOR}")
    return [jar for place in places for jar in sorted(place.glob("*.jar"))]
