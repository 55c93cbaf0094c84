"""What a running member takes of another list of members."""

from pathlib import Path

import pytest
import structlog

from mdserver.config import Config, load
from mdserver.errors import ConfigError
from mdserver.server.member import Member, open_member

ME, SECOND, THIRD, ELSEWHERE, ANOTHER = (f"127.0.0.1:{port}" for port in range(1, 6))


def config_of(folder: Path, members: tuple[str, ...], **settings: str) -> Config:
    named = {
        "Entitlement": "None",
        "ClusterMembers": ", ".join(members),
        "ClusterMemberListen": ME,
        "ClusterPassword": "sixteen or more characters",
        "ClusterMemberCoordinationFolder": str(folder),
        **settings,
    }
    return load(overrides=[f"{name}={value}" for name, value in named.items()]).config


def opened(config: Config) -> Member:
    member = open_member(config)
    assert member is not None
    if member.file is not None:
        member.file.close()
    return member


def test_a_cluster_of_one_takes_other_members_only_after_a_restart(tmp_path: Path) -> None:
    one_seed = {"ClusterSeedMemberCount": "1"}
    member = opened(config_of(tmp_path, (ME,), **one_seed))
    member.check_list(config_of(tmp_path, (ME,), **one_seed))
    with pytest.raises(ConfigError, match="a cluster of one member takes others only after a rest"):
        member.check_list(config_of(tmp_path, (ME, SECOND), **one_seed))


def test_a_member_of_more_takes_others_and_drops_them(tmp_path: Path) -> None:
    one_seed = {"ClusterSeedMemberCount": "1"}
    member = opened(config_of(tmp_path, (ME, SECOND), **one_seed))
    member.check_list(config_of(tmp_path, (ME, SECOND, THIRD), **one_seed))
    member.check_list(config_of(tmp_path, (ME,), **one_seed))


def test_another_address_of_this_member_itself_needs_a_restart(tmp_path: Path) -> None:
    here, there = (ME, SECOND, THIRD), (f"{ME}@{ELSEWHERE}", SECOND, THIRD)
    for start, later in ((here, there), (there, here)):
        member = opened(config_of(tmp_path, start))
        assert member.binds_as_listed(config_of(tmp_path, start))
        assert member.binds_as_listed(config_of(tmp_path, (*start[:2], f"{THIRD}@{ANOTHER}")))
        assert not member.binds_as_listed(config_of(tmp_path, later))
    bound = {"ClusterMemberBind": "127.0.0.1:9"}
    member = opened(config_of(tmp_path, here, **bound))
    assert member.binds_as_listed(config_of(tmp_path, there, **bound))


def test_the_seeds_of_the_vote_file_prevail_and_the_start_says_so(tmp_path: Path) -> None:
    config = config_of(tmp_path, (ME, SECOND, THIRD))
    with structlog.testing.capture_logs() as lines:
        member = open_member(config)
        assert member is not None
        assert member.file is not None
        member.begin()
    assert lines == [], "nobody has changed the seeds"
    assert member.votes_here
    member.votes.number, member.votes.listed = 3, [SECOND, THIRD, ANOTHER]
    member.file.write(member.votes.encode())
    member.file.close()
    with structlog.testing.capture_logs() as lines:
        member = open_member(config)
        assert member is not None
        member.begin()
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("info", "seeds by order")
    assert (line["number"], line["seeds"]) == (3, [SECOND, THIRD, ANOTHER])
    assert line["listed"] == [ME, SECOND, THIRD]
    assert not member.votes_here
    member.check_list(config)
    assert member.file is not None
    member.file.close()
