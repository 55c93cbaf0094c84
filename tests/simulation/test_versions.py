"""Members of two versions in one run: each speaks by its own code, and what it says is taken."""

from typing import Any

import msgspec
import pytest

from mdserver.cluster.messages import Ack, AckItem, Heartbeat, Hello, LedGroup
from mdserver.cluster.node import Node
from mdserver.cluster.votes import Vote, VoteRecord, read
from mdserver.codec.frames import FrameReader
from mdserver.codec.peer import MESSAGE
from mdserver.core.inputs import TimerDue
from mdserver.core.message import Entry, Publication
from mdserver.errors import RemoteProtocolError
from simulation.chaos import releases
from simulation.profiles import upgrade, upgrade_to_the_next
from simulation.run import run
from simulation.versions import UNPACKED, longer, named, shake_hands

TERMS = (4, ["m0", "m1", "m2"], "Guaranteed")
MESSAGES = (
    Hello(1, True, "c:1", {"m1": 2}, ["m2"], 7, "one"),
    Heartbeat(
        *(True, True, True, False, 1, 5, [], [LedGroup(0, 5, 9, 8, 2)], ["m1"], [], []),
        list_number=2,
        seeds=["m0", "m1"],
        next_seeds=["m0"],
        takes_part=True,
    ),
    Ack(3, [AckItem(0, 5, 9), AckItem(1, 6, 0)]),
)
needs_history = pytest.mark.skipif(
    releases.missing() is not None, reason=f"no other release: {releases.missing()}"
)


def frames(data: bytes) -> list[Any]:
    return FrameReader(frozenset((MESSAGE,))).feed(data)


@needs_history
def test_the_release_before_runs_its_own_code_beside_this_one() -> None:
    before = named("before")

    assert before.node.step.__code__.co_filename.startswith(str(UNPACKED))
    assert before.node is not Node
    assert before.own(TimerDue) is not TimerDue
    assert named("this").node is Node


@needs_history
def test_values_pass_between_releases_with_the_fields_that_both_know() -> None:
    before = named("before")
    entry = before.rooms["cluster.messages"].Entry(3, 1, publication("before"), 1)

    assert before.own_value(TimerDue(("a", 1))).timer == ("a", 1)
    assert before.entries([entry]) == [Entry(3, 1, Publication("/s", b"a"), 1)]


def publication(version: str) -> Any:
    return named(version).rooms["core.inputs"].Publication("/s", b"a")


@pytest.mark.parametrize("pair", [("this", "next"), ("next", "this")])
def test_what_a_later_version_says_more_is_left_out(pair: tuple[str, str]) -> None:
    sender, receiver = map(named, pair)

    for message in MESSAGES:
        assert receiver.messages(frames(sender.frame(message))) == [message]


def test_a_later_version_says_one_thing_more_at_the_end_of_each_structure() -> None:
    said = msgspec.msgpack.decode(msgspec.msgpack.encode(longer(MESSAGES[2])))

    assert said == [10, 3, [[0, 5, 9, "later"], [1, 6, 0, "later"]], "later"]


def test_a_record_that_a_later_version_wrote_is_read() -> None:
    record = VoteRecord("m1", "cluster", 2, True, [Vote(5, "m0")], {"m0": 1})

    written = named("next").record(record.encode())

    assert b"later" in written
    assert read(written) == record


@pytest.mark.parametrize(
    "pair",
    [
        ("this", "next"),
        ("next", "this"),
        pytest.param(("before", "this"), marks=needs_history),
        pytest.param(("this", "before"), marks=needs_history),
    ],
)
def test_members_of_two_versions_open_a_link(pair: tuple[str, str]) -> None:
    dialer, listener = map(named, pair)

    shake_hands(("m0", dialer), ("m1", listener), TERMS)

    with pytest.raises(RemoteProtocolError, match="both members are called m0"):
        shake_hands(("m0", named("next")), ("m0", named("next")), TERMS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "profile", [pytest.param(upgrade, marks=needs_history), upgrade_to_the_next]
)
def test_an_upgrade_amid_faults_loses_nothing(profile: Any) -> None:
    covered = set()
    for seed in (1, 2, 3):
        result = run(profile(seed))[0]
        assert result.problems == ()
        covered |= set(result.coverage)

    assert {"upgraded", "downgraded", "a link between two versions"} <= covered


@needs_history
def test_two_runs_of_two_versions_are_the_same() -> None:
    assert run(upgrade(3))[0].trace_hash == run(upgrade(3))[0].trace_hash
