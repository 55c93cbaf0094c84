"""The pictures of the design's page: the way of one message, and the states of a group."""

import enum
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mdserver.bench.processes import free_ports
from mdserver.cluster import acceptor, coordinator
from tests.house import cluster_way, way

PAGE = Path(__file__).parents[2] / "docs/design.md"
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDER = re.compile(r"((?:[a-z]+/)+) +([a-z_.][a-z_. py]*\.py)")


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def drawn(picture: int = 0) -> list[str]:
    """The modules of a picture of the way, in order; the second is of what a cluster adds."""
    rows = FOLDER.findall(BLOCK.findall(section("The way of one message"))[picture])
    return [folder + name for folder, names in rows for name in names.split()]


@pytest.mark.slow
def test_a_publication_meets_the_modules_of_the_picture() -> None:
    modules = drawn()
    assert len(modules) == len(set(modules)), "a module is drawn twice"
    assert set(way.measured().modules) == set(modules)


@pytest.mark.slow
def test_in_a_cluster_of_one_it_meets_the_links_as_well(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    measured = way.measured(
        f"ClusterMembers={address}",
        f"ClusterMemberListen={address}",
        "ClusterPassword=sixteen or more characters",
        f"ClusterMemberCoordinationFolder={tmp_path}",
    )
    assert set(measured.modules) - set(drawn()) == {"server/peers/table.py"}
    assert set(drawn()) <= set(measured.modules)


@pytest.mark.slow
def test_in_a_cluster_of_three_it_meets_the_modules_of_both_pictures() -> None:
    assert not set(drawn()) & set(drawn(1)), "a module is drawn twice"
    shortcut = {"cluster/single.py"}  # of a single server
    assert set(cluster_way.measured()) == {*drawn(), *drawn(1)} - shortcut


@pytest.mark.parametrize(
    ("picture", "table"), [(1, acceptor.TRANSITIONS), (2, coordinator.TRANSITIONS)]
)
def test_the_states_of_a_group_are_those_of_its_tables(
    picture: int, table: Mapping[tuple[enum.Enum, enum.Enum], enum.Enum]
) -> None:
    text = BLOCK.findall(section("The states of a group"))[picture]
    states: set[Any] = {state for (old, _), new in table.items() for state in (old, new)}
    moves = {event.value for (old, event), new in table.items() if old is not new}
    assert {state.name for state in states} == set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", text))
    assert moves <= set(re.findall(r"[a-z]+(?:-[a-z]+)*", text))
