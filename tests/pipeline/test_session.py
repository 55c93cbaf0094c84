"""The settings of Spark that jobs have by default."""

import math
from pathlib import Path

import pytest

from mdserver.limits import JOURNAL_SEGMENT_BYTES_MAX
from mdserver.pipeline.common import session

pytestmark = pytest.mark.pipeline


def test_the_tasks_of_a_full_segment_are_two_of_nearly_the_same_size() -> None:
    """Three segments on two processors would otherwise take as long as four."""
    tasks = math.ceil(JOURNAL_SEGMENT_BYTES_MAX / session.TASK_BYTES)
    assert tasks == 2
    assert JOURNAL_SEGMENT_BYTES_MAX - session.TASK_BYTES > 0.75 * session.TASK_BYTES
    assert session.SETTINGS["spark.sql.files.maxPartitionBytes"] == str(session.TASK_BYTES)


@pytest.mark.parametrize(
    ("job", "environment", "given", "collector"),
    [
        ("archive", "", {}, True),
        ("archive", "-Xmx2g", {}, True),
        ("archive", "-XX:+UseG1GC", {}, False),
        ("archive", "", {"spark.driver.defaultJavaOptions": "-XX:+UseZGC -Xss1m"}, False),
        ("derive", "", {}, False),
    ],
)
def test_a_collector_is_chosen_unless_the_user_chose_one(
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    environment: str,
    given: dict[str, str],
    collector: bool,
) -> None:
    """A JVM with two collectors does not start."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", environment)
    assert (session.COLLECTOR in session._java_options(job, given)) == collector


def test_jars_of_the_command_line_do_not_replace_those_of_the_source() -> None:
    jars = [Path("a.jar"), Path("b.jar")]
    assert session._with_jars(jars, {}) == {"spark.jars": "a.jar,b.jar"}
    given = {"spark.jars": "c.jar", "spark.x": "1"}
    assert session._with_jars(jars, given) == {"spark.jars": "a.jar,b.jar,c.jar", "spark.x": "1"}


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("job", ["archive", "derive", "audit", "rollup"])
def test_a_stream_has_few_partitions_and_a_batch_those_of_its_cluster(
    job: str, embedded: bool
) -> None:
    found = session.settings_of(job, embedded=embedded)
    streams = job in {"archive", "derive"}
    assert found["spark.sql.adaptive.enabled"] == ("false" if streams else "true")
    partitions = "2" if streams else "16" if embedded else None
    assert found.get("spark.sql.shuffle.partitions") == partitions
    # On a cluster it is the cluster that says whether there is a page of a job.
    assert found.get("spark.ui.enabled") == ("false" if embedded else None)
