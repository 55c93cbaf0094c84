"""Seeds that change while the cluster runs: orders, what each member does, and what is refused."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from attrs import evolve

from mdserver.cluster import votes
from mdserver.cluster.acceptor import Standing
from mdserver.cluster.guards import Guard
from mdserver.cluster.messages import (
    Heartbeat,
    Hello,
    LedGroup,
    PeerReceived,
    Prepare,
    PrepareItem,
    SeedOrder,
    SyncItem,
    SyncRequest,
    SyncRequestItem,
    TakePart,
)
from mdserver.cluster.node import Node
from mdserver.cluster.relisting import ORDER_PATIENCE, Relisting
from mdserver.core.events import Delivery
from mdserver.limits import NS_PER_MS, NS_PER_S
from simulation.cluster import Cluster
from tests.cluster.started import acked, started

THREE = ("m1:1", "m2:1", "m3:1")
FOUR = (*THREE, "m4:1")
FIVE = (*FOUR, "m5:1")


def cluster_of(count: int, seeds: int = 3, groups: int = 4) -> Cluster:
    """A cluster of so many members that serves, and whose list of seeds is settled."""
    cluster = started(count, groups=groups, seed_count=seeds)
    names = cluster.names[:seeds]
    cluster.until(lambda: settled(cluster, 1, names))
    return cluster


def readmit(cluster: Cluster, asked: str, member: str) -> None:
    """Give an operator's word once the member says that it is LOST, and wait until it votes."""
    cluster.until(lambda: cluster.operate(asked, "readmit", member).refused is None)
    cluster.until(lambda: all(one.votes for one in cluster.statistics(member).groups))


def settled(cluster: Cluster, number: int, names: tuple[str, ...]) -> bool:
    """Whether every member that runs goes by this list, and it is settled."""
    found = [cluster.statistics(name) for name in cluster.members]
    return all(
        (one.list_number, one.seeds, one.next_seeds, one.settled) == (number, names, (), True)
        for one in found
    )


def change(cluster: Cluster, action: str, member: str, number: int, names: tuple[str, ...]) -> None:
    """Give an order, and wait until it is carried out."""
    reply = cluster.operate("m1:1" if "m1:1" in cluster.members else "m2:1", action, member)
    assert reply.refused is None, reply.refused
    cluster.until(lambda: settled(cluster, number, names))
    cluster.until(cluster.ready)


def test_three_seeds_become_five_and_three_again() -> None:
    cluster = cluster_of(5)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    change(cluster, "add-seed", "m5:1", 3, FIVE)
    for name in ("m4:1", "m5:1"):
        assert cluster.statistics(name).not_voting == []
        assert all(group.votes for group in cluster.statistics(name).groups)
    change(cluster, "remove-seed", "m1:1", 4, FIVE[1:])
    change(cluster, "remove-seed", "m2:1", 5, FIVE[2:])
    assert all(group.standing is None for group in cluster.statistics("m1:1").groups)


def test_publications_go_on_while_seeds_change() -> None:
    cluster = cluster_of(5)
    cluster.open("m5:1", 1, "p")
    for number, member in ((2, "m4:1"), (3, "m5:1")):
        assert cluster.operate("m2:1", "add-seed", member).refused is None
        for turn in range(40):
            cluster.publish("m5:1", 1, f"/s/{turn % 7}", f"{number}-{turn}")
            cluster.run(20 * NS_PER_S // 1000)
        cluster.until(lambda n=number: cluster.statistics("m1:1").list_number == n)
        cluster.until(lambda n=number: settled(cluster, n, FIVE[: n + 2]))
        cluster.until(lambda n=number: len(acked(cluster, "m5:1")) == 40 * (n - 1))


def test_a_new_seed_holds_the_logs_before_its_list_is_named() -> None:
    cluster = cluster_of(4)
    named: list[bool] = []
    cluster.operate("m1:1", "add-seed", "m4:1")

    def begun() -> bool:
        if cluster.statistics("m1:1").next_seeds:
            named.append(all(one.votes for one in cluster.statistics("m4:1").groups))
        return cluster.statistics("m1:1").list_number == 2

    cluster.until(begun)
    assert named
    assert all(named)


def test_two_of_four_seeds_may_not_be_away_but_each_of_them_may() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    for name in FOUR:
        cluster.kill(name)
        cluster.until(cluster.ready)
        cluster.start(name)
        cluster.until(cluster.ready)
        cluster.until(lambda: settled(cluster, 2, FOUR))


def test_a_seed_that_is_gone_is_removed_and_its_file_says_no_more_later() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    cluster.kill("m1:1")
    cluster.until(cluster.ready)
    change(cluster, "remove-seed", "m1:1", 3, FOUR[1:])
    cluster.start("m1:1")
    cluster.until(cluster.ready)
    cluster.until(lambda: settled(cluster, 3, FOUR[1:]))
    assert all(one.standing is None for one in cluster.statistics("m1:1").groups)


def test_a_seed_that_is_gone_is_replaced_by_a_new_one() -> None:
    """The new one never hears the one that is gone say that it named no list."""
    cluster = cluster_of(4)
    cluster.kill("m3:1")
    cluster.until(cluster.ready)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    assert votes.read(cluster.disks["m4:1"].votes or b"").may_name
    change(cluster, "remove-seed", "m3:1", 3, ("m1:1", "m2:1", "m4:1"))


def test_a_new_seed_that_lost_its_file_names_nothing_before_every_seed_was_heard() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    cluster.kill("m4:1")
    cluster.lose_votes("m4:1")
    cluster.cut.add(("m3:1", "m4:1"))
    cluster.start("m4:1")
    readmit(cluster, "m1:1", "m4:1")
    assert not cluster.members["m4:1"].running.seeds.may_name
    cluster.heal()
    cluster.until(lambda: cluster.members["m4:1"].running.seeds.may_name)


def test_members_start_with_the_list_of_their_files() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    change(cluster, "remove-seed", "m1:1", 3, FOUR[1:])
    for name in FOUR:
        cluster.kill(name)
    cluster.start(*FOUR)
    assert {cluster.statistics(name).seeds for name in FOUR} == {FOUR[1:]}
    cluster.until(cluster.ready, limit=60 * NS_PER_S)
    cluster.until(lambda: settled(cluster, 3, FOUR[1:]))


def test_a_seed_that_lost_its_file_learns_the_list_and_waits_for_the_word() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    for name in ("m4:1", "m2:1"):  # one that the first list lacks, and one that it has
        cluster.kill(name)
        cluster.lose_votes(name)
        cluster.start(name)
        readmit(cluster, "m1:1", name)
        cluster.until(lambda: settled(cluster, 2, FOUR))


def test_after_a_loss_nothing_is_named_before_every_seed_was_heard() -> None:
    cluster = cluster_of(4)
    cluster.kill("m3:1")
    cluster.lose_votes("m3:1")
    cluster.cut.add(("m2:1", "m3:1"))
    cluster.start("m3:1")
    readmit(cluster, "m1:1", "m3:1")
    assert cluster.operate("m1:1", "add-seed", "m4:1").refused is None
    cluster.until(lambda: cluster.statistics("m3:1").list_number == 2)
    assert cluster.members["m3:1"].running.refused[Guard.NEXT_UNSURE]
    cluster.heal()
    cluster.until(lambda: settled(cluster, 2, FOUR))


def test_an_older_copy_of_a_file_does_not_say_that_nothing_was_named() -> None:
    cluster = cluster_of(4)
    older = cluster.disks["m3:1"].copy()
    cluster.kill("m3:1")
    cluster.start("m3:1")
    cluster.until(cluster.ready)
    cluster.kill("m3:1")
    cluster.disks["m3:1"] = older
    cluster.cut.add(("m2:1", "m3:1"))
    cluster.start("m3:1")
    cluster.until(lambda: cluster.statistics("m3:1").groups[0].standing is Standing.LOST)
    assert not cluster.members["m3:1"].running.seeds.may_name


def test_who_begins_a_change_says_why_it_cannot() -> None:
    """It lost its record, and a seed that it cannot hear may have named a list with it."""
    cluster = cluster_of(6, seeds=5)
    cluster.kill("m5:1")
    cluster.kill("m1:1")
    cluster.lose_votes("m1:1")
    cluster.start("m1:1")
    cluster.until(lambda: cluster.statistics("m1:1").groups[0].standing is Standing.LOST)
    cluster.until(lambda: cluster.members["m2:1"].running.relisting.beginner() == "m2:1")
    readmit(cluster, "m2:1", "m1:1")
    assert cluster.operate("m2:1", "add-seed", "m6:1").refused is None
    cluster.run(ORDER_PATIENCE + NS_PER_S)
    assert "seeds order given up" in cluster.members["m1:1"].logs
    hindrance = cluster.members["m1:1"].running.relisting.hinders((*FIVE, "m6:1"))
    assert "m1:1 lost its vote record" in (hindrance or "")


def test_half_of_the_seeds_name_nothing() -> None:
    cluster = cluster_of(4, seeds=4)
    for one in ("m1:1", "m2:1"):
        for other in ("m3:1", "m4:1"):
            cluster.cut.add((one, other))
            cluster.disconnect(one, other)
    cluster.run(3 * NS_PER_S)
    for asked, member in (("m1:1", "m3:1"), ("m3:1", "m1:1")):
        refused = cluster.operate(asked, "remove-seed", member).refused or ""
        assert "only 2 of 4 seeds vote in group 0" in refused


def test_one_seed_at_a_time_begins() -> None:
    """An order that came to another seed waits there, and names nothing beside the first one."""
    cluster = cluster_of(5)
    cluster.feed("m2:1", PeerReceived("m4:1", [SeedOrder("m4:1", votes=True)]))
    cluster.run(3 * NS_PER_S)
    assert settled(cluster, 1, THREE)
    change(cluster, "add-seed", "m5:1", 2, (*THREE, "m5:1"))


def test_a_seed_that_was_not_seen_since_a_start_hinders_no_change_after_the_first() -> None:
    cluster = cluster_of(5, seeds=3)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    cluster.kill("m4:1")
    for name in ("m2:1", "m3:1"):
        cluster.kill(name)
        cluster.start(name)
        cluster.until(cluster.ready)
    change(cluster, "remove-seed", "m4:1", 3, THREE)


def test_a_cluster_of_removed_seeds_does_not_replace_what_the_present_list_holds() -> None:
    """Seeds that were left out begin anew when all their disks are emptied, by the first list."""
    cluster = cluster_of(4)
    node = cluster.members["m4:1"].running
    group = node.groups[0]
    assert group.list_number == 1
    group.list_number = 2  # as if a later list had been settled
    led = LedGroup(0, group.log.epoch + 5, 100, 100, 1)
    assert group.transfer.compare("m1:1", led) is None
    assert node.refused[Guard.LOG_OLDER_LIST] == 1


def test_who_lost_its_file_and_is_no_seed_any_more_serves_after_an_invitation_to_nothing() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    cluster.kill("m3:1")
    cluster.lose_votes("m3:1")
    cluster.start("m3:1")
    cluster.until(lambda: cluster.statistics("m3:1").groups[0].standing is Standing.LOST)
    assert cluster.operate("m1:1", "remove-seed", "m3:1").refused is None
    cluster.feed("m3:1", PeerReceived("m1:1", [TakePart()]))
    three = ("m1:1", "m2:1", "m4:1")
    cluster.until(lambda: settled(cluster, 3, three))
    cluster.feed("m3:1", PeerReceived("m1:1", [TakePart()]))
    cluster.run(ORDER_PATIENCE)
    cluster.until(cluster.ready)


def removed_without_its_file(member: str) -> Cluster:
    """A cluster in which a seed was removed, lost its file after that, and was started again."""
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    change(cluster, "remove-seed", member, 3, tuple(name for name in FOUR if name != member))
    cluster.kill(member)
    cluster.lose_votes(member)
    cluster.start(member)
    return cluster


@pytest.mark.parametrize("member", ["m3:1", "m4:1"])  # of the first list, and of a later one
def test_a_removed_seed_that_lost_its_file_becomes_a_seed_again(member: str) -> None:
    cluster = removed_without_its_file(member)
    cluster.until(cluster.ready)
    names = (*(name for name in FOUR if name != member), member)
    change(cluster, "add-seed", member, 4, names)
    assert cluster.statistics(member).incarnation >= votes.RESTARTS_MAX
    assert votes.read(cluster.disks[member].votes or b"").may_name
    for other in FOUR:
        cluster.disconnect("m1:1" if other != "m1:1" else "m2:1", other)
        cluster.run(NS_PER_S)
        assert not cluster.statistics(member).record_lost
    cluster.kill(member)
    cluster.start(member)
    cluster.until(cluster.ready)
    cluster.until(lambda: settled(cluster, 4, names))


def test_a_new_seed_that_is_to_write_its_log_says_that_it_does_not_yet() -> None:
    cluster = cluster_of(4)
    node = cluster.members["m4:1"].running
    node.relisting._settings = evolve(node.settings, wants_wal=True)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    assert "log not written" in cluster.members["m4:1"].logs
    for asked in ("m1:1", "m4:1"):
        rows = cluster.operate(asked, "status").answer["members"]
        assert [row["address"] for row in rows if row["unwritten"]] == ["m4:1"]
    change(cluster, "remove-seed", "m4:1", 3, THREE)
    cluster.until(lambda: not node.relisting.unwritten)


def test_what_clients_published_through_such_a_seed_is_taken_once() -> None:
    cluster = removed_without_its_file("m4:1")
    cluster.until(cluster.ready)
    cluster.open("m1:1", 1)
    cluster.subscribe("m1:1", 1, "/s/0")
    cluster.open("m4:1", 1)
    assert cluster.operate("m1:1", "add-seed", "m4:1").refused is None
    published = 0
    while not settled(cluster, 4, FOUR):
        published += 1
        assert published < 5_000
        cluster.publish("m4:1", 1, "/s/0", str(published))
        cluster.run(NS_PER_MS)
    cluster.run(15 * NS_PER_S)
    inbox = cluster.members["m1:1"].inboxes[1]
    came = Counter(got.entry.publication.content for got in inbox if isinstance(got, Delivery))
    assert came == Counter(b"%d" % number for number in range(1, published + 1))


def test_a_removed_seed_without_its_file_that_coordinates_everything_becomes_a_seed() -> None:
    cluster = removed_without_its_file("m4:1")
    cluster.until(cluster.ready)
    for name in THREE:
        cluster.operate(name, "drain", name, force=True)
    cluster.until(lambda: all(cluster.coordinator(group) == "m4:1" for group in range(4)))
    change(cluster, "add-seed", "m4:1", 4, FOUR)
    assert cluster.statistics("m4:1").incarnation >= votes.RESTARTS_MAX


def test_who_is_still_lost_by_an_older_list_becomes_a_seed_again() -> None:
    """It is invited before it has learned that it is no seed."""
    cluster = removed_without_its_file("m3:1")
    cluster.until(lambda: cluster.statistics("m3:1").groups[0].standing is Standing.LOST)
    cluster.feed("m1:1", PeerReceived("m2:1", [SeedOrder("m3:1", votes=True)]))
    cluster.until(lambda: settled(cluster, 4, ("m1:1", "m2:1", "m4:1", "m3:1")))


def forgotten() -> tuple[Cluster, Node]:
    """A member that was a seed, lost its file, and is about to be a seed again; 3 seeds are left.

    Time stands still from here on.
    """
    cluster = removed_without_its_file("m4:1")
    cluster.until(cluster.ready)
    node = cluster.members["m4:1"].running
    cluster.feed("m4:1", PeerReceived("m1:1", [TakePart()]))
    assert node.relisting.forgot
    assert node.relisting.may_join()
    return cluster, node


@pytest.mark.parametrize(
    ("told", "value"),
    [("list_number", 4), ("next_seeds", FOUR), ("may_name", False), ("list_number", 0)],
)
def test_who_forgot_begins_anew_only_if_no_newer_list_can_have_it(told: str, value: Any) -> None:
    _, node = forgotten()
    setattr(node.members.peers["m1:1"], told, value)
    assert node.relisting.may_join(), "the other two make no majority with one that is silent"
    setattr(node.members.peers["m2:1"], told, value)
    assert not node.relisting.may_join()


def test_who_forgot_begins_anew_only_once_the_list_without_it_is_settled() -> None:
    _, node = forgotten()
    node.groups[0].list_number = 2
    assert not node.relisting.may_join()


def test_who_forgot_is_given_the_log_by_no_list_that_has_it() -> None:
    cluster, _ = forgotten()
    leader = next(name for name in THREE if name == cluster.coordinator(0))
    group = cluster.members[leader].running.groups[0]
    assert group.coordinator is not None
    known = {"m4:1": 3}

    def given(*, anew: bool) -> bool:
        item = SyncRequestItem(0, 0, group.history, 0, True)
        request = SyncRequest(votes.RESTARTS_MAX, False, False, [item], anew)
        cluster.members[leader].running.storage.votes.known.update(known)
        return isinstance(group.transfer.give("m4:1", item, request), SyncItem)

    assert not given(anew=False)
    assert given(anew=True)
    listed = group.coordinator.seeds
    group.coordinator.seeds = FOUR
    assert not given(anew=True), "the epoch may rest on a promise that it forgot"
    group.coordinator.seeds = listed
    group.seeds.names = FOUR
    assert not given(anew=True), "it may have promised by the newer list"
    assert cluster.members[leader].running.refused[Guard.REGISTER_LOST] == 3


def test_a_seed_of_the_list_in_force_that_lost_its_file_waits_for_the_word() -> None:
    """An invitation is no word: it may have promised by the list that it has not heard of yet."""
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    cluster.kill("m4:1")
    cluster.lose_votes("m4:1")
    cluster.start("m4:1")
    cluster.feed("m4:1", PeerReceived("m1:1", [TakePart()]))
    cluster.run(5 * NS_PER_S)
    assert cluster.statistics("m4:1").groups[0].standing is Standing.LOST


# Refusals


@pytest.mark.parametrize(
    ("action", "member", "reason"),
    [
        ("add-seed", "m1:1", "m1:1 is a seed already; the seeds are m1:1, m2:1, m3:1"),
        ("remove-seed", "m4:1", "m4:1 is no seed"),
        ("remove-seed", "m1:1", "there would be 2 seeds; 3 are the least"),
        ("add-seed", "m9:1", "there is no member m9:1"),
    ],
)
def test_orders_that_make_no_sense_are_refused(action: str, member: str, reason: str) -> None:
    cluster = cluster_of(4)
    for asked in ("m1:1", "m4:1"):
        assert reason in (cluster.operate(asked, action, member).refused or "")
    assert cluster.statistics("m1:1").list_number == 1


def test_members_that_are_away_or_lack_something_become_no_seeds() -> None:
    cluster = cluster_of(5)
    cluster.partition("m5:1")
    cluster.run(3 * NS_PER_S)
    assert "m5:1 is not in sight" in (cluster.operate("m1:1", "add-seed", "m5:1").refused or "")
    assert "no seed is in sight of m5:1" in (
        cluster.operate("m5:1", "add-seed", "m4:1").refused or ""
    )
    cluster.heal()
    cluster.until(cluster.ready)
    cluster.members["m1:1"].running.members.peers["m4:1"].ready = False
    assert "m4:1 does not serve yet" in (cluster.operate("m1:1", "add-seed", "m4:1").refused or "")


def test_a_list_that_would_lack_a_majority_is_refused() -> None:
    cluster = cluster_of(5, seeds=5)
    cluster.kill("m4:1")
    cluster.kill("m5:1")
    cluster.until(cluster.ready)
    refused = cluster.operate("m1:1", "remove-seed", "m1:1").refused or ""
    assert "only 2 of 4 seeds would vote in group 0" in refused


def test_one_change_at_a_time() -> None:
    cluster = cluster_of(5)
    assert cluster.operate("m1:1", "add-seed", "m4:1").refused is None
    cluster.until(lambda: bool(cluster.statistics("m1:1").next_seeds))
    refused = cluster.operate("m1:1", "add-seed", "m5:1").refused or ""
    assert "the change to list 2 of the seeds is under way" in refused
    cluster.until(lambda: cluster.statistics("m1:1").list_number == 2)
    refused = cluster.operate("m1:1", "add-seed", "m5:1").refused or ""
    assert "not settled" in refused or "under way" in refused
    cluster.until(lambda: settled(cluster, 2, FOUR))


def test_an_order_that_comes_to_nothing_ends() -> None:
    cluster = cluster_of(4)
    cluster.feed("m1:1", PeerReceived("m2:1", [SeedOrder("m4:1", True)]))
    cluster.kill("m4:1")
    cluster.run(ORDER_PATIENCE + NS_PER_S)
    assert "seeds order given up" in cluster.members["m1:1"].logs
    cluster.start("m4:1")
    cluster.run(3 * NS_PER_S)
    assert settled(cluster, 1, THREE)


def test_a_second_order_is_not_taken_while_one_is_carried_out() -> None:
    cluster = cluster_of(5)
    cluster.feed("m1:1", PeerReceived("m2:1", [SeedOrder("m4:1", True), SeedOrder("m5:1", True)]))
    assert "seeds order given up" in cluster.members["m1:1"].logs
    cluster.until(lambda: settled(cluster, 2, FOUR))


def test_nobody_votes_in_standard_mode() -> None:
    cluster = started(4, guaranteed=False)
    refused = cluster.operate("m1:1", "add-seed", "m4:1").refused or ""
    assert "nobody votes in Standard mode" in refused
    assert "seeds" not in cluster.operate("m1:1", "status").answer


# Rules


def prepare(cluster: Cluster, number: int) -> dict[Guard, int]:
    """Have a candidate by this list ask m2 for its promise; return what m2 refused."""
    group = cluster.members["m2:1"].running.groups[0]
    item = PrepareItem(0, group.log.epoch + 100, 0, group.history)
    cluster.feed("m2:1", PeerReceived("m1:1", [Prepare([item], {}, False, False, number)]))
    assert group.promised_epoch < item.epoch
    return cluster.members["m2:1"].running.refused


def test_a_seed_promises_nothing_by_another_list_than_the_one_it_noted() -> None:
    cluster = cluster_of(4)
    assert prepare(cluster, 2)[Guard.VOTE_NEWER_LIST] == 1
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    assert prepare(cluster, 1)[Guard.VOTE_OLDER_LIST] == 1


def heartbeat_of(cluster: Cluster, name: str) -> Heartbeat:
    return cluster.members[name].running._pulse()


def test_two_lists_of_one_number_end_the_link_and_are_an_error() -> None:
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    other = msgspec.structs.replace(heartbeat_of(cluster, "m2:1"), seeds=THREE[:2])
    outputs = cluster.feed("m1:1", PeerReceived("m2:1", [other]))
    assert "list 2 of the seeds is" in str(outputs)
    assert "seeds contradict" in cluster.members["m1:1"].logs
    assert cluster.members["m1:1"].running.refused[Guard.LISTS_CONTRADICT] == 1
    assert cluster.statistics("m1:1").seeds == FOUR


def test_what_is_not_settled_is_not_followed_and_what_was_named_is_not_replaced() -> None:
    cluster = cluster_of(5)
    node = cluster.members["m2:1"].running
    told = msgspec.structs.replace(heartbeat_of(cluster, "m1:1"), next_seeds=FOUR)
    cluster.feed("m2:1", PeerReceived("m1:1", [told]))
    node.groups[0].list_number = 0
    node.relisting.look()
    assert node.refused[Guard.NEXT_UNSETTLED] == 1
    assert node.seeds.next == ()
    node.groups[0].list_number = 1
    node.relisting.look()
    assert node.seeds.next == FOUR
    other = msgspec.structs.replace(told, next_seeds=(*THREE, "m5:1"))
    cluster.feed("m2:1", PeerReceived("m1:1", [other]))
    node.relisting.look()
    assert node.refused[Guard.NEXT_NAMED] == 1
    assert node.seeds.next == FOUR


def test_a_name_is_told_only_once_it_is_on_the_disk() -> None:
    cluster = cluster_of(4)
    cluster.disk_delays["m1:1"] = NS_PER_S // 2
    assert cluster.operate("m1:1", "add-seed", "m4:1").refused is None
    cluster.until(lambda: bool(cluster.statistics("m1:1").next_seeds))
    assert heartbeat_of(cluster, "m1:1").next_seeds == ()
    assert votes.read(cluster.disks["m1:1"].votes or b"").next == []
    cluster.until(lambda: heartbeat_of(cluster, "m1:1").next_seeds == FOUR)
    assert votes.read(cluster.disks["m1:1"].votes or b"").next == list(FOUR)


def test_a_member_of_an_earlier_version_keeps_changes_away_and_is_refused_after_one() -> None:
    cluster = cluster_of(4)
    node = cluster.members["m1:1"].running
    node.members.peers["m3:1"].relists = False
    refused = cluster.operate("m1:1", "add-seed", "m4:1").refused or ""
    assert "knows no changes of seeds" in refused
    node.members.peers["m3:1"].relists = True
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    hello = Hello(node.members.peers["m3:1"].incarnation, True, "", {}, forgets=True)
    assert "does not know that the seeds changed" in str(
        cluster.feed("m1:1", PeerReceived("m3:1", [hello]))
    )


def test_only_seeds_invite() -> None:
    cluster = cluster_of(5)
    cluster.feed("m4:1", PeerReceived("m5:1", [TakePart()]))
    cluster.run(NS_PER_S)
    assert cluster.statistics("m4:1").groups[0].standing is None
    cluster.feed("m4:1", PeerReceived("m1:1", [TakePart()]))
    cluster.until(lambda: cluster.statistics("m4:1").groups[0].standing is Standing.NORMAL)
    assert isinstance(cluster.members["m4:1"].running.relisting, Relisting)


def test_a_seed_is_not_taken_back_by_a_list_that_it_has_not_noted() -> None:
    """It may have noted that list before it lost its record, and would promise by an older one."""
    cluster = cluster_of(4)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    name = "m2:1" if cluster.coordinator(0) != "m2:1" else "m3:1"
    node = cluster.members[name].running
    leader = cluster.coordinator(0)
    assert leader is not None
    coordinator = cluster.members[leader].running.groups[0].coordinator
    assert coordinator is not None
    group = node.groups[0]
    assert group.acceptor is not None
    group.acceptor.standing = Standing.RECOVERING
    node.seeds.number = 1
    start = node.storage.votes.incarnation
    item = cluster.members[leader].running.groups[0].transfer.synced(coordinator, 0, start)
    assert not group.transfer.takes(leader, item)
    assert node.refused[Guard.LOG_NEWER_LIST] == 1
    node.seeds.number = 2
    assert group.transfer.takes(leader, item)


def test_the_files_of_a_new_cluster_say_that_nothing_was_named() -> None:
    """A seed whose log outlives a restart may start again while another seed is gone for ever."""
    cluster = cluster_of(4)
    for name in THREE:
        assert votes.read(cluster.disks[name].votes or b"").may_name


def test_a_seed_that_has_just_noted_its_list_promises_nothing_yet() -> None:
    cluster = cluster_of(5)
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    node = cluster.members["m5:1"].running
    heard = msgspec.structs.replace(heartbeat_of(cluster, "m1:1"), list_number=3, seeds=FIVE)
    item = PrepareItem(0, 1000, 0, node.groups[0].history)
    asked = Prepare([item], {}, False, False, 3)
    cluster.feed("m5:1", PeerReceived("m1:1", [heard, asked]))
    assert node.seeds.names == FIVE
    assert node.groups[0].acceptor is None
    assert node.refused[Guard.PREPARE_NOT_VOTING] == 1
    assert node.groups.not_voting == [0, 1, 2, 3]
    assert "recovering" in (node.unready() or "")


def test_a_new_seed_that_coordinates_everything_is_one_that_others_rely_on() -> None:
    """Otherwise a new link, on which others name its incarnation, would look like a loss."""
    cluster = cluster_of(4)
    for name in THREE:
        cluster.operate(name, "drain", name, force=True)
    cluster.until(lambda: all(cluster.coordinator(group) == "m4:1" for group in range(4)))
    change(cluster, "add-seed", "m4:1", 2, FOUR)
    assert cluster.statistics("m4:1").admitted
    assert votes.read(cluster.disks["m4:1"].votes or b"").admitted
    cluster.disconnect("m1:1", "m4:1")
    cluster.connect("m1:1", "m4:1")
    cluster.run(NS_PER_S)
    assert not cluster.statistics("m4:1").record_lost
    assert settled(cluster, 2, FOUR)
