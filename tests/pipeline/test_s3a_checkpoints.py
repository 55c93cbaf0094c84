"""Spark's checkpoints in an object store, beside the tables: with Hadoop's jars, by s3a://."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from mdserver.pipeline.common import leases
from mdserver.pipeline.common.places import RemoteTables
from mdserver.pipeline.common.requirements import JARS_VARIABLE
from tests.live_kafka import JARS, LiveKafka

from . import killed_driver
from .conftest import cannot_run
from .killed_driver import RECORDS, TIMEOUT_S
from .test_remote_streams import BATCHES, numbers, produce

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

ARCHIVE = (sys.executable, "-m", "mdserver.cli.main", "pipeline", "archive", "--once")
LOCK = "_checkpoints/archive.lock"
POM = Path(__file__).parents[2] / "jvm" / "pom.xml"


@pytest.fixture
def jars(connector: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's jars for Kafka and S3, as users name them."""
    if not list((JARS / "s3a").glob("hadoop-aws-*.jar")):
        cannot_run("no jars of Hadoop's S3 in build/jvm: run `make jars`")
    folders = [connector[0].parent, JARS / "s3a"]
    monkeypatch.setenv(JARS_VARIABLE, os.pathsep.join(map(str, folders)))


@pytest.fixture
def place(bucket: str, tmp_path: Path) -> str:
    """A prefix of the bucket for checkpoints, as Spark calls it."""
    return f"s3a{bucket.removeprefix('s3')}/{tmp_path.name}/checkpoints"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def archive(kafka: LiveKafka, topic: str, tables: RemoteTables | Path, place: str) -> str:
    """Run the command; return what it says if it fails, which is one line."""
    topics = ("--kafka", kafka.servers, "--topics", topic)
    if isinstance(tables, RemoteTables) and tables.store.content(LOCK) is not None:
        # The lock of the process that was killed would be watched for 45 s.
        tables.store.put(LOCK, leases.FREE)
    done = run(*ARCHIVE, *topics, "--tables", str(tables), "--checkpoints", place)
    assert done.returncode in (0, 1), done.stderr
    said = [line for line in done.stderr.splitlines() if not re.match(r"WARN|\d\d/", line)]
    assert len(said) == done.returncode, done.stderr
    return "".join(said)


@pytest.mark.parametrize(
    ("point", "batches", "runs"),
    [
        pytest.param("before the commit", 2, 2, marks=pytest.mark.soak),
        pytest.param("between two tables", 2, 2, marks=pytest.mark.soak),
        ("after the commit", 3, 1),
    ],
)
@pytest.mark.usefixtures("jars")
def test_a_kill_and_a_restart(
    kafka: LiveKafka,
    remote: RemoteTables,
    place: str,
    tmp_path: Path,
    point: str,
    batches: int,
    runs: int,
) -> None:
    """What only a store can break. Files show what shows with any file system of Spark."""
    topic = f"{tmp_path.name}.messages"
    count = produce(kafka, topic)
    source = f"kafka://{kafka.servers}/{topic}"
    killed = killed_driver.run(point, source, str(remote), place)
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    assert numbers(remote) == list(range(batches * (RECORDS - 1)))
    for _ in range(runs):
        assert archive(kafka, topic, remote, place) == ""
        assert numbers(remote) == list(range(count))
    aside = DeltaTable(remote / "quarantine").to_pyarrow_table().to_pylist()
    assert len(aside) == len({row["src_pos"] for row in aside}) == BATCHES


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param(
            "no jars",
            r"no file system for it .*: `make jars` .*name build/jvm/s3a as well in MDSER",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "s3", r"No FileSystem for scheme .*Hadoop calls it s3a://", marks=pytest.mark.soak
        ),
        ("no credentials", r"Unable to load credentials .* \(AWS_ACCESS_KEY_ID\)"),
        ("wrong address", r"Connection refused"),
        pytest.param("no bucket", r"NoSuchBucket", marks=pytest.mark.soak),
    ],
)
@pytest.mark.usefixtures("jars")
def test_what_is_missing_is_one_line(
    kafka: LiveKafka,
    connector: list[Path],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    line: str,
) -> None:
    topic = f"{tmp_path.name}.messages"
    kafka.create(topic, partitions=1)
    if change == "no jars":
        monkeypatch.setenv(JARS_VARIABLE, str(connector[0].parent))
    elif change == "no credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    elif change == "wrong address":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    elif change == "no bucket":
        place = "s3a://no-such-bucket/c"
    else:
        place = place.replace("s3a:", "s3:")
    said = archive(kafka, topic, tmp_path / "tables", place)
    assert re.search(line, said), said


def test_hadoop_is_that_of_spark() -> None:
    """Parts of two releases of Hadoop do not fit together."""
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    (version,) = re.findall(r"<hadoop.version>(.*)</hadoop.version>", POM.read_text())
    assert client.name == f"hadoop-client-api-{version}.jar"
