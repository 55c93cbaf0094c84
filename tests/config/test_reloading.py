"""A reload takes what it can and names what it cannot."""

from mdserver.config import Config, LogLevel
from mdserver.config.reloading import reloaded
from mdserver.config.values import Address, MemberPlace


def test_reloadable_changes_are_taken_and_others_refused_by_name() -> None:
    old = Config(max_subjects=5)
    reload = reloaded(old, Config(max_subjects=6, node_name="b", log_level=LogLevel.DEBUG))
    assert reload.config == Config(max_subjects=5, log_level=LogLevel.DEBUG)
    assert reload.taken == ("LogLevel",)
    assert reload.refused == ("NodeName", "MaxSubjects")


def test_nothing_changed() -> None:
    reload = reloaded(Config(), Config())
    assert (reload.config, reload.taken, reload.refused) == (Config(), (), ())


def test_a_running_server_joins_no_cluster_and_leaves_none() -> None:
    there, elsewhere = Address("a", 1), Address("b", 1)
    alone = Config()
    moved = Config(cluster_members=(MemberPlace(there, elsewhere),), cluster_seed_member_count=1)
    member = Config(cluster_members=(MemberPlace(there, there),))
    names = ("ClusterMembers", "ClusterSeedMemberCount")
    for old, new, taken in ((alone, moved, ()), (moved, alone, ()), (member, moved, names)):
        reload = reloaded(old, new)
        assert reload.config == (new if taken else old)
        assert (reload.taken, reload.refused) == (taken, () if taken else names)
