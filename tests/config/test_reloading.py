"""A reload takes what it can and names what it cannot."""

from mdserver.config import Config, LogLevel
from mdserver.config.reloading import reloaded


def test_reloadable_changes_are_taken_and_others_refused_by_name() -> None:
    old = Config(max_subjects=5)
    reload = reloaded(old, Config(max_subjects=6, node_name="b", log_level=LogLevel.DEBUG))
    assert reload.config == Config(max_subjects=5, log_level=LogLevel.DEBUG)
    assert reload.taken == ("LogLevel",)
    assert reload.refused == ("NodeName", "MaxSubjects")


def test_nothing_changed() -> None:
    reload = reloaded(Config(), Config())
    assert (reload.config, reload.taken, reload.refused) == (Config(), (), ())
