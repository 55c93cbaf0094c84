"""Who is in sight, who is missed, who votes and who may coordinate, without a cluster around."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.membership import Membership
from mdserver.cluster.messages import Heartbeat, Hello, MembersListed
from mdserver.cluster.seeds import Seeds
from mdserver.cluster.settings import ClusterSettings
from mdserver.cluster.votes import VoteRecord
from mdserver.limits import (
    MEMBER_NAME_CHARS_MAX,
    MISSED_AFTER_SUSPICIONS,
    MISSED_NEW_AFTER_SUSPICIONS,
    MISSED_UNTIL_SUSPICIONS,
    NS_PER_S,
    PEER_FORGOTTEN_S,
)

ME, A, B, C = "me:1", "a:1", "b:1", "c:1"
SETTINGS = ClusterSettings(ME, (ME, A, B))
SUSPECT = SETTINGS.suspect
NOW = 1_000 * NS_PER_S


def membership(settings: ClusterSettings = SETTINGS) -> Membership:
    """What a member knows of others at its start."""
    return Membership(settings, Seeds(settings.me, settings.seeds))


def heartbeat(**said: Any) -> Heartbeat:
    """What a member says that is well and votes everywhere."""
    usual = {
        "ready": True,
        "admitted": True,
        "standing_known": True,
        "record_lost": False,
        "weight": 1,
        "promised": 0,
        "not_voting": [],
        "leads": [],
        "hears": [ME],
        "sees": [],
        "misses": [],
        "follows": True,
        "unverified": False,
    }
    return Heartbeat(**{**usual, **said})


def test_seeds_of_the_vote_file_are_known_though_no_list_has_them() -> None:
    votes = VoteRecord(ME, "", 1, number=3, listed=[A, B, C])
    found = Membership(SETTINGS, Seeds(ME, SETTINGS.seeds, votes))
    assert {*found.peers} == {A, B, C}
    assert not found.quorum(NOW)
    assert found.voting(0, NOW, here=False) == []
    found.relist(MembersListed((ME, A), {}))
    assert not found.stranger(C)


def members(*linked: str, **said: Any) -> Membership:
    """A member that heard these at `NOW`."""
    found = membership()
    for name in linked:
        found.up(name, NOW)
        found.hello(name, Hello(1, True, f"c-{name}", {}, ()))
        found.heartbeat(name, heartbeat(**said))
    return found


def test_a_member_is_in_sight_while_its_link_is_up_and_something_comes() -> None:
    found = members(A)
    assert found.alive(ME, NOW)
    assert found.alive(A, NOW)
    assert not found.alive(B, NOW)
    assert not found.alive("unheard-of:1", NOW)
    assert found.alive(A, NOW + SUSPECT - 1)
    assert not found.alive(A, NOW + SUSPECT)
    assert found.linked() == (A,), "it can still be spoken to"
    found.down(A)
    assert not found.alive(A, NOW)
    assert found.linked() == ()


def test_who_follows_all_groups_vouches_for_those_whom_it_sees() -> None:
    assert members(A, sees=[ME, B]).vouched([B], NOW)
    assert not members(A, sees=[ME, B]).vouched([C], NOW)
    assert not members(A, sees=[ME, B]).vouched([], NOW)
    assert not members(A, sees=[ME, B], follows=False).vouched([B], NOW)
    assert not members(A, sees=[ME, B]).vouched([B], NOW + SUSPECT), "it is out of sight"


def test_a_link_that_carries_one_way_only_is_none() -> None:
    found = members(A, hears=[B])
    assert found.hears(NOW) == [A]
    assert not found.alive(A, NOW), "it hears nothing of this member"


def test_with_the_link_goes_what_a_member_said_of_itself() -> None:
    found = members(A, weight=5, not_voting=[1])
    found.down(A)
    found.up(A, NOW)
    peer = found.peers[A]
    assert (peer.greeted, peer.ready, peer.weight, peer.not_voting) == (False, False, 1, None)
    assert peer.incarnation == 1, "who it was stays known"


def test_an_older_incarnation_is_refused_unless_it_lost_its_record() -> None:
    found = members(A)
    assert found.hello(A, Hello(3, True, "", {}, ()))
    assert not found.hello(A, Hello(2, True, "", {}, ()))
    assert found.hello(A, Hello(2, False, "", {}, ()))
    assert found.peers[A].newest == 3


def test_a_name_is_made_safe_to_print_and_not_too_long() -> None:
    found = members(A)
    found.hello(A, Hello(1, True, "", {}, (), name="\x1b[2J"))
    assert found.peers[A].name == "\\x1b[2J"
    found.hello(A, Hello(1, True, "", {}, (), name="x" * 1000))
    assert len(found.peers[A].name) <= MEMBER_NAME_CHARS_MAX + len("...")


def test_members_beyond_the_list_are_forgotten_and_configured_ones_are_not() -> None:
    found = members(A, C)
    assert not found.stranger(C)
    found.down(A)
    found.down(C)
    assert found.stranger(C)
    assert not found.stranger(A)
    found.forget_gone(NOW + PEER_FORGOTTEN_S * NS_PER_S - 1)
    assert C in found.peers
    found.forget_gone(NOW + PEER_FORGOTTEN_S * NS_PER_S)
    assert list(found.peers) == [A, B]


@pytest.mark.parametrize(("linked", "quorum"), [((), False), ((A,), True), ((C,), False)])
def test_a_majority_of_seeds_is_a_quorum(linked: tuple[str, ...], quorum: bool) -> None:
    settings = ClusterSettings(ME, (ME, A, B, C))
    found = membership(settings)
    for name in linked:
        found.up(name, NOW)
    assert settings.seeds == (ME, A, B)
    assert found.quorum(NOW) is quorum


def test_seeds_vote_in_the_groups_that_they_say() -> None:
    found = members(A, B, not_voting=[2])
    assert found.voting(0, NOW, here=True) == [ME, A, B]
    assert found.voting(2, NOW, here=True) == [ME]
    assert found.without_majority(4, [], NOW) == 1
    assert found.without_majority(4, [1, 2], NOW) == 1, "in group 1 the two others are a majority"
    found.down(B)
    assert found.voting(0, NOW, here=False) == [A]
    assert found.without_majority(4, [1], NOW) == 2


def test_a_member_that_says_nothing_of_its_groups_yet_votes_in_none() -> None:
    found = membership()
    found.up(A, NOW)
    assert found.alive(A, NOW)
    assert found.voting(0, NOW, here=True) == [ME]


def test_who_is_seen_by_others_only_is_missed_after_a_while_and_for_a_while() -> None:
    found = members(A, B)
    found.look(NOW)  # saw both
    found.down(B)
    since = NOW + SUSPECT

    def look(at: int, sees: list[str]) -> bool:
        found.peers[A].heard = at
        found.heartbeat(A, heartbeat(sees=sees, hears=[ME, B]))
        return found.look(at)

    assert not look(since, [B])
    assert not look(since + MISSED_AFTER_SUSPICIONS * SUSPECT - 1, [B])
    assert look(since + MISSED_AFTER_SUSPICIONS * SUSPECT, [B])
    assert found.misses == [B]
    at = since + MISSED_AFTER_SUSPICIONS * SUSPECT
    found.up(B, at)
    look(at + 1, [B])
    assert found.misses == [B], "it may come and go"
    found.peers[B].heard = at + MISSED_UNTIL_SUSPICIONS * SUSPECT
    look(at + MISSED_UNTIL_SUSPICIONS * SUSPECT, [B])
    assert found.misses == []


def test_a_member_that_just_started_is_missed_later() -> None:
    found = members(A)
    found.heartbeat(A, heartbeat(sees=[B]))
    found.look(NOW)
    assert MISSED_NEW_AFTER_SUSPICIONS > MISSED_AFTER_SUSPICIONS
    for suspicions, missed in (
        (MISSED_AFTER_SUSPICIONS, []),
        (MISSED_NEW_AFTER_SUSPICIONS, [B]),
    ):
        found.peers[A].heard = NOW + suspicions * SUSPECT
        found.look(NOW + suspicions * SUSPECT)
        assert found.misses == missed


def test_whom_nobody_sees_is_not_missed() -> None:
    found = members(A, B)
    found.look(NOW)
    found.down(B)
    for suspicions in range(1, 20):
        found.peers[A].heard = NOW + suspicions * SUSPECT
        found.look(NOW + suspicions * SUSPECT)
    assert found.misses == []


def test_members_share_groups_by_weight_once_they_serve() -> None:
    found = members(A, B, weight=2)
    assert found.weights(NOW) == {A: 2, B: 2}, "this member did not join yet"
    found.joined = True
    assert found.weights(NOW) == {ME: 1, A: 2, B: 2}
    found.heartbeat(A, heartbeat(ready=False))
    assert found.weights(NOW) == {ME: 1, B: 2}
    found.weight = 0
    assert found.weights(NOW) == {ME: 0, B: 2}


def test_who_misses_others_coordinates_nothing_while_somebody_misses_nobody() -> None:
    found = members(A, B)
    found.joined = True
    found.heartbeat(A, heartbeat(misses=[C]))
    assert found.weights(NOW) == {ME: 1, A: 0, B: 1}


def test_if_all_miss_somebody_one_coordinates_that_misses_fewest_seeds() -> None:
    found = members(A, B)
    found.heartbeat(A, heartbeat(misses=[ME]))
    found.heartbeat(B, heartbeat(misses=[C, "d:1"]))
    assert found.weights(NOW) == {A: 0, B: 1}


def test_that_others_are_missed_than_before_is_news() -> None:
    found = members(A)
    assert found.heartbeat(A, heartbeat(misses=[B]))
    assert not found.heartbeat(A, heartbeat(misses=[B]))
    assert found.heartbeat(A, heartbeat())


def test_a_start_is_known_by_what_it_says_itself() -> None:
    """A member that lost its record says a lower incarnation than before, of another start."""
    found = membership()
    found.up(A, NOW)
    assert found.hello(A, Hello(5, True, "c", {}, (), 77))
    assert (found.peers[A].incarnation, found.peers[A].start) == (5, 77)
    assert found.hello(A, Hello(1, False, "c", {}, (), 88))
    assert (found.peers[A].incarnation, found.peers[A].start) == (1, 88)
    assert not found.hello(A, Hello(4, True, "c", {}, (), 99))


def test_an_incarnation_on_which_nobody_relied_is_none_that_counts() -> None:
    """A seed lost its record twice, and nobody took it back in between."""
    found = membership()
    found.up(A, NOW)
    assert found.hello(A, Hello(9, False, "", {}, ()))
    assert found.hello(A, Hello(7, False, "", {}, ()))
    found.heartbeat(A, heartbeat(admitted=True))
    found.down(A)
    found.up(A, NOW)
    assert found.hello(A, Hello(7, True, "", {}, ()))
    assert not found.hello(A, Hello(6, True, "", {}, ()))


def test_a_member_that_is_dropped_from_the_list_is_forgotten_once_it_went() -> None:
    found = membership(ClusterSettings(ME, (ME, A, B, C)))
    found.up(C, NOW)
    found.relist(MembersListed((ME, A, B), {A: "a:2"}))
    assert (list(found.listed), found.moved) == ([ME, A, B], {A: "a:2"})
    later = NOW + PEER_FORGOTTEN_S * NS_PER_S
    found.forget_gone(later)
    assert list(found.peers) == [A, B, C], "there is a link to it"
    found.down(C)
    found.forget_gone(later - 1)
    assert list(found.peers) == [A, B, C]
    found.forget_gone(later)
    assert list(found.peers) == [A, B]


def test_a_member_is_known_as_soon_as_it_is_listed() -> None:
    found = membership()
    assert found.stranger(C)
    found.relist(MembersListed((ME, A, B, C), {}))
    assert not found.stranger(C)
    found.forget_gone(NOW)
    assert list(found.peers) == [A, B, C]


LISTS = st.lists(st.sampled_from((A, B, C, "d:1", "e:1")), unique=True)
EVENTS = st.one_of(
    st.tuples(st.just("list"), LISTS),
    st.tuples(st.just("up"), st.sampled_from((A, B, C, "d:1", "e:1"))),
    st.tuples(st.just("down"), st.sampled_from((A, B, C, "d:1", "e:1"))),
    st.tuples(st.just("wait"), st.integers(0, 2 * PEER_FORGOTTEN_S)),
)


@given(st.lists(EVENTS))
def test_lists_change_who_is_known_and_never_who_votes(events: list[tuple[str, Any]]) -> None:
    found, now = membership(ClusterSettings(ME, (ME, A, B, C), 3)), NOW
    for kind, what in events:
        if kind == "list":
            found.relist(MembersListed((*found.seeds.names, *what), {}))
        elif kind == "up":
            found.up(what, now)
        elif kind == "down" and what in found.peers:
            found.down(what)
        elif kind == "wait":
            now += what * NS_PER_S
            found.forget_gone(now)
        assert found.seeds.names == (ME, A, B)
        linked = {name for name, peer in found.peers.items() if peer.up}
        assert {A, B, *found.listed, *linked} - {ME} <= set(found.peers)
        assert ME not in found.peers
        found.quorum(now), found.weights(now), found.look(now)
    now += PEER_FORGOTTEN_S * NS_PER_S
    found.forget_gone(now)
    assert all(name in found.listed or peer.up for name, peer in found.peers.items())


def test_no_epoch_was_newer_once_a_majority_of_seeds_has_promised_none() -> None:
    found = members(A, promises=[3, 7])
    assert not found.none_newer(0, 3, None), "that is one of three"
    assert found.none_newer(0, 3, 3)
    assert found.none_newer(0, 3, 0)
    assert not found.none_newer(0, 3, 4), "this seed has promised a newer one"
    assert not found.none_newer(1, 6, 6), "the other one has"
    assert found.none_newer(1, 7, 6)
    found.up(B, NOW)
    found.heartbeat(B, heartbeat(promises=[2, 2]))
    assert found.none_newer(0, 3, None)


def test_what_a_seed_had_promised_when_it_said_so_first_counts() -> None:
    found = members(A, promises=[3])
    found.heartbeat(A, heartbeat(promises=[9]))
    found.down(A)
    found.up(A, NOW)
    found.heartbeat(A, heartbeat(promises=[9]))
    assert found.none_newer(0, 3, 3)


def test_promises_of_a_seed_on_which_nobody_relies_yet_say_nothing() -> None:
    found = members(A, promises=[0], admitted=False)
    assert not found.none_newer(0, 3, 3)
    found.heartbeat(A, heartbeat(promises=[5]))
    assert not found.none_newer(0, 3, 3), "it had lost its record, and promised before"
    assert found.none_newer(0, 5, 3)


def test_a_seed_says_what_it_promised_only_while_somebody_does_not_serve() -> None:
    found = members(A, promises=[])
    assert not found.none_newer(0, 3, 3), "it took this member for one that serves"
    assert found.all_serve
    found.heartbeat(A, heartbeat(ready=False))
    assert not found.all_serve
    found.down(A)
    assert found.all_serve, "members without a link are told nothing"


def test_a_seed_of_an_earlier_version_does_not_say_what_it_promised() -> None:
    assert members(A).none_newer(0, 3, 3)
