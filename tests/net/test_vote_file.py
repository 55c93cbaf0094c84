"""The vote file: one incarnation more at each start, whole or not there, damage is kept aside."""

from pathlib import Path

import pytest

from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.errors import StartError
from mdserver.net.votes import VoteFile

ME = "127.0.0.1:8901"


def test_the_incarnation_rises_at_each_start_and_promises_stay(tmp_path: Path) -> None:
    file = VoteFile(tmp_path / "votes", ME)
    record, problem = file.start(ME, "cluster", 2)
    assert (record.incarnation, record.admitted, problem) == (1, False, None)
    record.promised[1] = Vote(7, "other")
    record.known["other"] = 3
    file.write(record.encode())
    again, problem = VoteFile(tmp_path / "votes", ME).start(ME, "cluster", 2)
    assert (again.incarnation, again.promised, again.known) == (2, record.promised, {"other": 3})
    assert problem is None
    assert [path.name for path in (tmp_path / "votes").iterdir()] == [file.path.name]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged"),
        (b'{"member": "x"', "damaged"),
        (VoteRecord("other", "cluster", 1, True, [Vote(), Vote()]).encode(), "has member 'other'"),
        (VoteRecord(ME, "another", 1, True, [Vote(), Vote()]).encode(), "has cluster 'another'"),
        (VoteRecord(ME, "cluster", 1, True, [Vote()]).encode(), "has groups 1, expected 2"),
    ],
)
def test_a_file_that_cannot_be_used_is_kept_aside(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    file = VoteFile(tmp_path, ME)
    file.path.write_bytes(content)
    record, problem = file.start(ME, "cluster", 2)
    assert reason in str(problem)
    assert (record.incarnation, record.admitted) == (1, False)
    assert file.path.with_suffix(".damaged").read_bytes() == content


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartError, match="Cannot use the vote file"):
        VoteFile(tmp_path / "file" / "votes", ME).start(ME, "cluster", 2)


def test_members_of_one_host_do_not_share_a_file(tmp_path: Path) -> None:
    assert VoteFile(tmp_path, ME).path != VoteFile(tmp_path, "127.0.0.1:8902").path
