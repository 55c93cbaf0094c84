"""The measures of the house count what they say."""

from pathlib import Path

import pytest

from tests.house import __main__ as house
from tests.house import sources, way


@pytest.mark.slow
def test_a_way_begins_and_ends_at_a_socket_and_is_the_same_each_time() -> None:
    """What timers add to some of the ways is in none of the figures."""
    one, other = way.measured(), way.measured()
    assert one.within("cluster") == other.within("cluster")
    assert "cluster/node.py:Node.step" in one.calls
    assert "core/broker.py:Broker.received" in one.calls
    assert one.calls[-1].endswith("Outbox.flush")
    assert set(one.within("cluster").modules) < set(one.modules)


def test_moves_are_calls_that_go_to_another_module() -> None:
    found = way.Way(("a/x.py:f", "a/x.py:g", "b/y.py:f", "a/x.py:f"))
    assert found.modules == ["a/x.py", "b/y.py"]
    assert found.moves == ["a/x.py -> b/y.py", "b/y.py -> a/x.py"]
    assert found.within("a").moves == []


def test_a_group_has_its_state_in_the_containers_that_grow_with_the_groups() -> None:
    assert "Node.groups" in sources.group_state()


def test_a_test_of_a_name_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "src" / "product"
    for name in ("one", "two", "three"):
        package.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text("class Same: ...\n" if name != "one" else "")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").touch()
    (tmp_path / "tests" / "test_two_processes.py").touch()
    (tmp_path / "tests" / "test_threesome.py").touch()
    monkeypatch.setattr(sources, "PACKAGE", package)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    assert sources.untested() == ["three.py"]
    assert sources.doubled_names() == {"Same": ["three.py", "two.py"]}


def test_a_figure_beyond_its_bound_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = house.bounds(house.PAGE.read_text(encoding="utf-8"))
    kept = [house.Measure(bound.bound) for bound in bounds]
    monkeypatch.setattr(house, "measure", lambda: kept)
    assert house.main([]) == 0
    for beyond, bound in enumerate(bounds):
        worse = bound.bound + (-0.1 if house.AT_LEAST in bound.name else 1)
        measures = [*kept[:beyond], house.Measure(worse), *kept[beyond + 1 :]]
        monkeypatch.setattr(house, "measure", lambda measures=measures: measures)
        assert house.main([]) == 1
