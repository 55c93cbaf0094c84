"""Seeds whose disks are put back to an earlier state: nothing is dropped without a word."""

from collections.abc import Iterable

import pytest

from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster, Disk

SUBJECT = "/a/b"


class Copies:
    """A cluster that records, and copies of its disks."""

    def __init__(self, count: int = 3, seed: int = 1) -> None:
        self.cluster = Cluster(count, groups=2, seed=seed, writes_wal=True, acks_wait_for_wal=True)
        self.cluster.start()
        self.cluster.until(self.cluster.ready, limit=1000 * S)
        self.kept: dict[str, Disk] = {}
        self.session = 0

    def publish(self, name: str, *contents: str) -> None:
        """Publish at a member, and wait until all is acknowledged."""
        self.session += 1
        self.cluster.open(name, self.session)
        statuses = self.cluster.members[name].statuses
        before = len(statuses)
        for content in contents:
            self.cluster.publish(name, self.session, SUBJECT, content)
        self.cluster.until(lambda: len(statuses) == before + len(contents))
        self.cluster.run(S)

    def back_up(self) -> None:
        cluster = self.cluster
        self.kept = {name: cluster.disks[name].copy() for name in cluster.names}

    def kill_all(self) -> None:
        for name in list(self.cluster.members):
            self.cluster.kill(name)

    def restore(self, names: Iterable[str], *, votes: bool = True, logs: bool = True) -> None:
        for name in names:
            disk, copied = self.cluster.disks[name], self.kept[name].copy()
            if votes:
                disk.votes = copied.votes
            if logs:
                disk.wal = copied.wal

    def texts(self, name: str) -> list[str]:
        group = self.cluster.group(SUBJECT)
        images = self.cluster.members[name].node.broker.export_group(group).subjects
        return [
            entry.publication.content.decode()
            for image in images
            if image.subject == SUBJECT
            for entry in image.entries
        ]

    def history(self, name: str) -> str:
        return self.cluster.members[name].node.group_statistics(self.cluster.group(SUBJECT)).history

    def standings(self) -> set[str]:
        return {
            group.standing.value
            for member in self.cluster.members.values()
            for group in member.node.statistics().groups
            if group.standing is not None
        }


@pytest.mark.parametrize("seed", range(8))
def test_two_seeds_put_back_to_a_moment_of_their_last_run_take_it_from_the_third(seed: int) -> None:
    copies = Copies(seed=seed)
    cluster, names = copies.cluster, copies.cluster.names
    good = names[seed % 3]
    copies.publish(good, "old")
    copies.back_up()
    copies.publish(good, *[f"new {index}" for index in range(5)])
    history, held = copies.history(good), copies.texts(good)
    copies.kill_all()
    copies.restore(name for name in names if name != good)
    others = [name for name in names if name != good]
    cluster.start(*others)
    cluster.run((seed % 4) * 500 * MS)
    cluster.start(good)
    cluster.until(cluster.ready)
    cluster.run(S)
    assert {tuple(copies.texts(name)) for name in names} == {tuple(held)}
    assert {copies.history(name) for name in names} == {history}


@pytest.mark.parametrize("more", [0, 3, 30])
def test_where_the_third_comes_too_late_clients_are_told_of_a_new_history(more: int) -> None:
    copies = Copies()
    cluster, names = copies.cluster, copies.cluster.names
    copies.publish(names[0], "old")
    copies.back_up()
    copies.publish(names[0], *[f"new {index}" for index in range(5)])
    history = copies.history(names[0])
    copies.kill_all()
    copies.restore(names[:2])
    cluster.start(*names[:2])
    cluster.until(lambda: cluster.ready(*names[:2]))
    assert copies.history(names[0]) == history, "nobody there can know"
    status = cluster.operate(names[0], "status").answer
    assert (status["history"], status["histories"]) == (history, {history: [0, 1]})
    if more:
        copies.publish(names[1], *[f"other {index}" for index in range(more)])
    cluster.start(names[2])
    cluster.until(
        lambda: len({copies.history(name) for name in names} - {history}) == 1 and cluster.ready()
    )
    (again,) = {copies.history(name) for name in names}
    group = cluster.group(SUBJECT)
    for name in names:
        status = cluster.operate(name, "status").answer
        assert status["history"] is None
        assert status["histories"] == {history: [1 - group], again: [group]}
    copies.publish(names[2], "after")
    (texts,) = {tuple(copies.texts(name)) for name in names}
    assert texts[: 1 + more] == ("old", *[f"other {index}" for index in range(more)])
    assert texts[-1] == "after"
    assert len(set(texts)) == len(texts)
    assert any(
        "acknowledged messages are missing" in member.logs for member in cluster.members.values()
    )


def test_seeds_put_back_to_an_earlier_start_wait_for_an_operator() -> None:
    copies = Copies()
    cluster, names = copies.cluster, copies.cluster.names
    copies.publish(names[2], "old")
    copies.back_up()
    copies.kill_all()
    cluster.start()
    cluster.until(cluster.ready)
    copies.publish(names[2], "new")
    history = copies.history(names[2])
    copies.kill_all()
    copies.restore(names[:2])
    cluster.start()
    cluster.run(20 * S)
    assert copies.standings() == {"lost", "normal"}
    assert not any(cluster.ready(name) for name in names)
    answer = cluster.operate(names[2], "cold-start", force=True)
    assert answer.refused is None
    cluster.until(cluster.ready, limit=60 * S)
    assert {tuple(copies.texts(name)) for name in names} == {("old", "new")}
    assert history not in {copies.history(name) for name in names}


@pytest.mark.parametrize("seed", range(6))
def test_one_seed_put_back_while_the_others_go_on_is_found_out(seed: int) -> None:
    """The coordinator knows what the seed acked before it started again."""
    copies = Copies(seed=seed)
    cluster, names = copies.cluster, copies.cluster.names
    copies.publish(names[0], "old")
    copies.back_up()
    copies.publish(names[0], "new")
    coordinator = cluster.coordinator(cluster.group(SUBJECT))
    stale = next(name for name in names if name != coordinator)
    cluster.kill(stale)
    copies.restore([stale])
    cluster.start(stale)
    cluster.run(5 * S)
    assert cluster.statistics(stale).record_lost
    assert cluster.operate(stale, "readmit", stale).refused is None
    cluster.until(cluster.ready)
    assert {tuple(copies.texts(name)) for name in names} == {("old", "new")}


def test_a_seed_whose_incarnation_others_told_of_first_is_not_taken_for_a_copy() -> None:
    """Its number goes with the start that it was heard of from, not with the one before."""
    copies = Copies()
    cluster, (one, _, again) = copies.cluster, copies.cluster.names
    votes = cluster.members[one].node.storage.votes
    cluster.kill(again)
    cluster.start(again)
    cluster.until(lambda: again in votes.starts and cluster.ready())
    cluster.kill(again)
    cluster.members[one].node.storage.note({again: 3})  # as a Sync or Promise would tell it
    cluster.start(again)
    cluster.until(cluster.ready)
    cluster.run(S)
    cluster.disconnect(one, again)
    cluster.run(100 * MS)
    cluster.connect(one, again)
    cluster.run(2 * S)
    assert copies.standings() == {"normal"}
    assert cluster.ready()


def all_put_back(*, apart: bool) -> Copies:
    """All seeds begin with copies; the fourth member, which does not vote, holds two more."""
    copies = Copies(4)
    cluster, names = copies.cluster, copies.cluster.names
    copies.publish(names[0], "old")
    copies.back_up()
    copies.publish(names[0], "new 1", "new 2")
    assert copies.texts(names[3]) == ["old", "new 1", "new 2"]
    if apart:
        cluster.partition(names[3])
    for name in names[:3]:
        cluster.kill(name)
    copies.restore(names[:3])
    cluster.start(*names[:3])
    return copies


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_member_that_does_not_vote_and_holds_more_has_all_told_of_a_new_history(
    more: int,
) -> None:
    """What it delivered is not replaced in silence."""
    copies = all_put_back(apart=True)
    cluster, names = copies.cluster, copies.cluster.names
    history = copies.history(names[3])
    cluster.until(lambda: cluster.ready(*names[:3]))
    later = [f"later {index}" for index in range(more)]
    if later:
        copies.publish(names[0], *later)
    cluster.heal()
    cluster.until(lambda: cluster.ready() and history not in map(copies.history, names))
    copies.publish(names[0], "after")
    assert {tuple(copies.texts(name)) for name in names} == {("old", *later, "after")}
    assert any(
        "acknowledged messages are missing" in member.logs for member in cluster.members.values()
    )


@pytest.mark.parametrize("readmitted", [False, True])
def test_all_seeds_that_wait_for_an_operator_start_by_order(readmitted: bool) -> None:
    """A coordinator that does not vote knew what they acked: all of them are LOST."""
    copies = all_put_back(apart=False)
    cluster, names = copies.cluster, copies.cluster.names
    history = copies.history(names[3])
    cluster.run(20 * S)
    assert copies.standings() == {"lost"}
    assert "is no seed" in str(cluster.operate(names[3], "cold-start", force=True).refused)
    if readmitted:
        for name in names[:3]:
            assert cluster.operate(names[3], "readmit", name).refused is None
    else:
        assert cluster.operate(names[1], "cold-start", force=True).refused is None
    cluster.until(cluster.ready, limit=60 * S)
    copies.publish(names[3], "after")
    assert {tuple(copies.texts(name)) for name in names} == {("old", "after")}
    assert history not in {copies.history(name) for name in names}


@pytest.mark.parametrize("after_loss", [False, True])
def test_a_copy_is_found_out_by_who_was_told_of_the_later_start_by_others(
    *, after_loss: bool
) -> None:
    """Of all that heard of the later start, only one is left that had it from a third."""
    copies = all_put_back(apart=False) if after_loss else Copies()
    cluster, (one, two, again) = copies.cluster, copies.cluster.names[:3]
    if after_loss:
        cluster.run(20 * S)
        assert cluster.operate(one, "cold-start", force=True).refused is None
        cluster.until(cluster.ready, limit=60 * S)
    copies.publish(one, "old")
    cluster.run(2 * S)
    copies.back_up()
    later = cluster.statistics(again).incarnation + 1
    cluster.kill(again)
    for name in cluster.members:
        if name != two:
            cluster.members[name].node.storage.note({again: later})  # as a Sync would tell it
    cluster.run(100 * MS)
    cluster.start(again)
    cluster.until(cluster.ready)
    copies.publish(two, "new")
    cluster.kill(two)
    cluster.kill(again)
    copies.restore([again])
    cluster.start(again)
    cluster.run(5 * S)
    assert cluster.statistics(again).record_lost
