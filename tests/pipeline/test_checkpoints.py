"""A checkpoint belongs to one source; another one has to be meant."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import astuple

from mdserver.pipeline.common import checkpoints
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.spark_folders import LocalFolders

FIRST = {"the Kafka cluster": "c", "topic a.messages": "t1"}


def test_a_source_and_its_successor(tmp_path: Path) -> None:
    first = checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    assert first == checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    again = FIRST | {"topic a.messages": "t2"}
    with pytest.raises(PipelineError, match=r"^topic a.messages is not .* was t1 and is t2. To go"):
        checkpoints.opened(tmp_path, "messages", again, new=False)
    second = checkpoints.opened(tmp_path, "messages", again, new=True)
    assert second.job != first.job
    assert second.folder != first.folder
    assert second == checkpoints.opened(tmp_path, "messages", again, new=False)


def test_a_further_topic_is_remembered_and_a_missing_one_told(tmp_path: Path) -> None:
    more = FIRST | {"topic b.messages": "t9"}
    checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    assert checkpoints.opened(tmp_path, "messages", more, new=False).number == 1
    with pytest.raises(PipelineError, match=r"topic b.messages .* was t9 and is missing"):
        checkpoints.opened(tmp_path, "messages", FIRST, new=False)


def test_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    folders = LocalFolders(tmp_path / "spark")
    made = checkpoints.opened(tmp_path, "messages", FIRST, new=False, spark=folders)
    (tmp_path / "spark" / made.folder).rmdir()
    with pytest.raises(PipelineError, match=r"messages-1-\w+ is gone, .*: restore it"):
        checkpoints.opened(tmp_path, "messages", FIRST, new=False, spark=folders)


def test_a_folder_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    """It had no token in its name, and was always beside the tables."""
    folders = LocalFolders(tmp_path / "_checkpoints")
    folders.make("messages-1")
    of_it = {"stream": "messages", "number": 1, "source": FIRST}
    (tmp_path / "_checkpoints" / "messages.json").write_bytes(msgspec.json.encode(of_it))
    found = checkpoints.opened(tmp_path, "messages", FIRST, new=False, spark=folders)
    assert (found.folder, found.number) == ("messages-1", 1)


def test_tables_share_no_folder_of_spark(tmp_path: Path) -> None:
    """Else the second archive would go on where the first one is, with empty tables."""
    folders = LocalFolders(tmp_path / "spark")
    found = {
        checkpoints.opened(tmp_path / name, "messages", FIRST, new=False, spark=folders).folder
        for name in ("one", "other")
    }
    assert {path.name for path in (tmp_path / "spark").iterdir()} == found
    assert len(found) == 2


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


def test_how_far_topics_are_archived(tmp_path: Path) -> None:
    """Of each member the newest source that has it counts: the others are not read any more."""
    first = checkpoints.opened(tmp_path, "messages", FIRST, new=False)
    of_first = {("n1", "a", 0): 7, ("n1", "a", 1): 3, ("n3", "a", 0): 9}
    first.note_reached(tmp_path, of_first)
    for _ in range(9):
        second = checkpoints.opened(tmp_path, "messages", FIRST, new=True)
    assert checkpoints.topics_reached(tmp_path, "messages") == of_first
    assert second.reached(tmp_path) == {}
    second.note_reached(tmp_path, {("n1", "b", 0): 5, ("n2", "a", 0): 4})
    of_second = {("n1", "b", 0): 5, ("n2", "a", 0): 4}
    assert second.reached(tmp_path) == of_second
    found = checkpoints.topics_reached(tmp_path, "messages")
    assert found == of_second | {("n3", "a", 0): 9}
    assert checkpoints.topics_reached(tmp_path, "stats") == {}
    (tmp_path / checkpoints.FOLDER / "messages-1.reached").write_text("[[1")
    assert checkpoints.topics_reached(tmp_path, "messages") == of_second


def test_topics_whose_partitions_changed(tmp_path: Path) -> None:
    """Those of the first batch are no change; of another source or a further topic they are."""
    first = checkpoints.opened(tmp_path, "messages", FIRST, new=False)

    def noted(
        source: checkpoints.StreamCheckpoint, counts: dict[str, int], us: int
    ) -> dict[str, Any]:
        source.note_partitions(tmp_path, counts, us)
        changed = checkpoints.topics_changed(tmp_path, "messages")
        return {topic: astuple(each) for topic, each in changed.items()}

    assert noted(first, {"a": 2}, 1) == {}
    first.note_reached(tmp_path, {("n1", "a", 0): 7})
    assert noted(first, {"a": 2}, 2) == {}
    assert noted(first, {"a": 3}, 3) == {"a": (3, 3, 2)}
    assert noted(first, {"a": 3, "b": 1}, 4) == {"a": (3, 3, 2), "b": (1, 4, 3)}
    second = checkpoints.opened(tmp_path, "messages", FIRST, new=True)
    # Nothing more is read from the topics of before.
    of_both = {"a": (3, 3, 2), "b": (1, 4, 3), "c": (2, 5, 0)}
    assert noted(second, {"c": 2}, 5) == of_both
    assert noted(second, {"c": 2}, 6) == of_both
    assert noted(second, {"c": 4}, 7)["c"] == (4, 7, 2)
    assert checkpoints.topics_changed(tmp_path, "stats") == {}
    for file in (tmp_path / checkpoints.FOLDER).glob("*.partitions"):
        file.write_text("[[1")
    assert noted(first, {"a": 3}, 8) == {"a": (3, 8, 3)}


def test_partitions_of_a_source_that_an_earlier_release_read(tmp_path: Path) -> None:
    """It noted none; those with which the source began are no change if they are still there."""

    def noted(first: dict[str, int]) -> dict[str, Any]:
        source = checkpoints.opened(tmp_path, "messages", FIRST, new=False)
        source.note_reached(tmp_path, {("n1", "a", 0): 7})
        for file in (tmp_path / checkpoints.FOLDER).glob("*.partitions"):
            file.unlink()
        source.note_partitions(tmp_path, {"a": 3, "b": 1}, 5, lambda: first)
        assert source.reached(tmp_path) == {("n1", "a", 0): 7}
        changed = checkpoints.topics_changed(tmp_path, "messages")
        source.note_partitions(tmp_path, {"a": 3, "b": 1}, 9, dict)
        assert checkpoints.topics_changed(tmp_path, "messages") == changed
        return {topic: astuple(each) for topic, each in changed.items()}

    assert noted({"a": 3, "b": 1}) == {}
    assert noted({"a": 2, "b": 1}) == {"a": (3, 5, 2)}
    assert noted({"a": 3}) == {"b": (1, 5, 3)}
    # Each of the partitions may be an old one.
    assert noted({}) == {"a": (3, 5, 3), "b": (1, 5, 1)}
