"""Writes down the classes of Spark's JVM once, so that each later JVM of the tests starts sooner.

    python -m tests.pipeline.class_archive FILE

A JVM takes a class from such an archive without reading, verifying and linking it anew, which is
half of what Spark takes to start and to answer its first query. It uses an archive only if it was
made of the same jars by the same Java, and starts without one in silence.
"""

import os
import sys
import tempfile
from pathlib import Path

from mdserver.core.message import Publication
from mdserver.pipeline.common import requirements, session

from .conftest import JVM_VARIABLE, QUICK_JVM, run_archive, write_messages

DUMP_TIMEOUT_S = 120


def main(file: Path) -> None:
    """Run a job, and let the JVM write the archive at its end."""
    try:
        requirements.check_java(os.environ)
    except requirements.PipelineError as error:
        print(f"NO ARCHIVE OF CLASSES, so tests of the pipeline start slowly: {error}")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # Tests run meanwhile: none of their JVMs is to find a file that is not whole.
    made = file.with_name(f"{file.name}.new")
    made.unlink(missing_ok=True)
    os.environ[JVM_VARIABLE] = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made}"
    spark = session.start("classes")
    with tempfile.TemporaryDirectory() as folder:
        journal, tables = Path(folder) / "journal", Path(folder) / "tables"
        write_messages(journal, [Publication("/a", b"%d" % n) for n in range(10)])
        run_archive(spark, journal, tables)
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()  # the JVM ends when its standard input does
    jvm.wait(DUMP_TIMEOUT_S)
    made.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
