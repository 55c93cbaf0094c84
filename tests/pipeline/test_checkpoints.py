"""A checkpoint belongs to one source; another one has to be meant."""

from pathlib import Path

import pytest

from mdserver.pipeline.common import checkpoints
from mdserver.pipeline.common.requirements import PipelineError

FIRST = {"the Kafka cluster": "c", "topic a.messages": "t1"}


def test_a_source_and_its_successor(tmp_path: Path) -> None:
    first = checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    assert first == checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    again = FIRST | {"topic a.messages": "t2"}
    with pytest.raises(PipelineError, match=r"^topic a.messages is not .* was t1 and is t2. To go"):
        checkpoints.opened(tmp_path, "messages", again, new=False)
    second = checkpoints.opened(tmp_path, "messages", again, new=True)
    assert second.job != first.job
    assert second.folder(tmp_path) != first.folder(tmp_path)
    assert second == checkpoints.opened(tmp_path, "messages", again, new=False)


def test_a_further_topic_is_remembered_and_a_missing_one_told(tmp_path: Path) -> None:
    more = FIRST | {"topic b.messages": "t9"}
    checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    assert checkpoints.opened(tmp_path, "messages", more, new=False).number == 1
    with pytest.raises(PipelineError, match=r"topic b.messages .* was t9 and is missing"):
        checkpoints.opened(tmp_path, "messages", FIRST, new=False)


def test_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    made = checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    made.folder(tmp_path).rmdir()
    with pytest.raises(PipelineError, match=r"messages-1 is gone, .*: restore it"):
        checkpoints.opened(tmp_path, "messages", FIRST, new=False)


def test_streams_do_not_share(tmp_path: Path) -> None:
    one = checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    other = checkpoints.opened(tmp_path, "stats", {"the journal": "/j"}, new=False)
    assert (one.job, other.job) == ("archive-messages-1", "archive-stats-1")


def test_alone(tmp_path: Path) -> None:
    with (
        checkpoints.alone(tmp_path, "archive"),
        checkpoints.alone(tmp_path, "other"),
        pytest.raises(PipelineError, match=r"another archive job"),
        checkpoints.alone(tmp_path, "archive"),
    ):
        raise AssertionError
    with checkpoints.alone(tmp_path, "archive"):
        pass
