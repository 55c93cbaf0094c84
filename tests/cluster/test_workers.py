"""The workers of members: they have what their member has committed, and publish through it."""

from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest

from mdserver.cluster.messages import PeerReceived, Prepare
from mdserver.core.events import Delivery, Move, Reset, Status, StatusName
from mdserver.core.inputs import Trouble
from mdserver.core.message import Qos
from mdserver.limits import NS_PER_MS as MS
from mdserver.limits import NS_PER_S as S
from simulation.cluster import Cluster

MODES: dict[str, dict[str, Any]] = {
    "guaranteed": {},
    "standard": {"guaranteed": False},
    "written down": {"writes_wal": True, "acks_wait_for_wal": True},
}


def served(cluster: Cluster, *workers: str) -> bool:
    """Whether these workers serve clients."""
    return all(
        cluster.members[name].running.members.joined and cluster.ready(name) for name in workers
    )


def started(count: int = 3, **settings: Any) -> tuple[Cluster, list[str]]:
    """A cluster whose members have two workers each, all of which serve."""
    cluster = Cluster(count, workers=True, **settings)
    cluster.start()
    names = [cluster.start_worker(member) for member in cluster.names for _ in range(2)]
    cluster.until(partial(served, cluster, *names))
    return cluster, names


def got(cluster: Cluster, name: str, session: int = 1) -> list[str]:
    """What a session got, in its order."""
    inbox = cluster.members[name].inboxes.get(session, [])
    return [one.entry.publication.content.decode() for one in inbox if isinstance(one, Delivery)]


def positions(cluster: Cluster, name: str, subject: str) -> list[tuple[int, int, bytes]]:
    """The messages of a subject that the session 1 of a worker got, with their positions."""
    return [
        (one.entry.epoch, one.entry.seq, one.entry.publication.content)
        for one in cluster.members[name].inboxes.get(1, [])
        if isinstance(one, Delivery) and one.entry.publication.subject == subject
    ]


def image(cluster: Cluster, name: str) -> list[bytes]:
    """What a member or worker has in its cache."""
    broker = cluster.members[name].running.broker
    return [msgspec.msgpack.encode(broker.export_group(group)) for group in range(cluster.groups)]


def told(cluster: Cluster, name: str) -> list[Status]:
    """What the clients of a worker were told of their publications."""
    kinds = (StatusName.PUBLISH_OK, StatusName.PUBLISH_FAILED)
    return [one for one in cluster.members[name].statuses if one.status in kinds]


def taken(cluster: Cluster, *names: str) -> int:
    """How many publications of the clients of these workers are acknowledged."""
    return sum(one.status is StatusName.PUBLISH_OK for name in names for one in told(cluster, name))


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_with_nothing_to_do_says_nothing(mode: str) -> None:
    """Its member watches its process, and reads no sign of life."""
    cluster, workers = started(1, **MODES[mode])
    said: list[str] = []
    sent = cluster.sent

    def noted(sender: str, receivers: tuple[str, ...], message: Any) -> None:
        said.append(sender)
        sent(sender, receivers, message)

    cluster.sent = noted  # type: ignore[method-assign]
    cluster.run(5 * S)

    assert Counter(said).keys() & set(workers) == set()


@pytest.mark.parametrize(
    ("count", "mode"), [(1, "guaranteed"), (1, "written down"), *((3, mode) for mode in MODES)]
)
def test_all_workers_get_what_any_of_them_publishes(count: int, mode: str) -> None:
    cluster, names = started(count, **MODES[mode])
    for name in names:
        cluster.open(name, 1, f"p-{name}")
        cluster.subscribe(name, 1, "/s/*")
    cluster.run(S)
    for number, name in enumerate(names):
        for repeat in range(10):
            cluster.publish(name, 1, f"/s/{repeat % 3}", f"{number}-{repeat}")
    every = {f"{number}-{repeat}" for number in range(len(names)) for repeat in range(10)}
    cluster.until(lambda: taken(cluster, *names) == len(every))
    cluster.run(S)
    for name in names:
        assert len(got(cluster, name)) == len(every)
        assert set(got(cluster, name)) == every
        assert len(told(cluster, name)) == 10
    for subject in ("/s/0", "/s/1", "/s/2"):
        first = positions(cluster, names[0], subject)
        assert [seq for _, seq, _ in first] == list(range(1, len(first) + 1))
        assert all(positions(cluster, name, subject) == first for name in names)


def test_publications_at_most_once_reach_every_worker_once() -> None:
    cluster, names = started()
    for name in names:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, "/s/a")
    cluster.run(S)
    for name in names:
        cluster.publish(name, 1, "/s/a", name, qos=Qos.STANDARD)
    cluster.run(S)
    for name in names:
        assert Counter(got(cluster, name)) == Counter(names)


def test_a_repeat_at_another_worker_or_member_is_taken_once() -> None:
    cluster, names = started()
    for name in names:
        cluster.open(name, 1, "one")
        cluster.subscribe(name, 1, "/s/a")
        cluster.publish(name, 1, "/s/a", "same", number=1)
    cluster.until(lambda: taken(cluster, *names) == len(names))
    cluster.run(S)
    statuses = [status for name in names for status in told(cluster, name)]
    assert len({(status.epoch, status.seq) for status in statuses}) == 1
    assert sum(not status.duplicate for status in statuses) == 1
    assert all(got(cluster, name) == ["same"] for name in names)


def test_what_a_worker_forwarded_before_it_died_is_taken_once_and_answers_nobody_else() -> None:
    cluster, names = started()
    worker = names[0]
    cluster.open(worker, 1, "one")
    cluster.publish(worker, 1, "/s/a", "first", number=1)
    cluster.run(2 * MS)  # in which it reaches the member
    assert cluster.members["m1:1"].running.pending.size_bytes > 0
    cluster.kill(worker)
    assert cluster.start_worker("m1:1") == worker, "its name is used again"
    cluster.until(partial(served, cluster, worker))
    cluster.open(worker, 2, "other")
    cluster.subscribe(worker, 2, "/s/a")
    cluster.publish(worker, 2, "/s/a", "other", number=1)
    cluster.open(names[1], 1, "one")
    cluster.publish(names[1], 1, "/s/a", "first", number=1)
    cluster.until(lambda: taken(cluster, *names) == 2)
    cluster.run(S)
    (result,) = told(cluster, worker)
    assert result.id == "other"
    assert sorted(positions(cluster, worker, "/s/a")) == []
    assert sorted(got(cluster, worker, 2)) == ["first", "other"]


@pytest.mark.parametrize("mode", MODES)
def test_workers_go_on_when_another_member_coordinates(mode: str) -> None:
    cluster, names = started(**MODES[mode])
    subject = cluster.subject_of("m1:1")
    others = names[2:]
    for name in others:
        cluster.open(name, 1, f"p-{name}")
        cluster.subscribe(name, 1, subject)
    for number in range(1, 6):
        for name in others:
            cluster.publish(name, 1, subject, f"{name} {number}", number=number)
    cluster.run(2 * MS)
    cluster.kill("m1:1")
    for number in range(6, 11):
        for name in others:
            cluster.publish(name, 1, subject, f"{name} {number}", number=number)
    cluster.until(lambda: len([s for name in others for s in told(cluster, name)]) == 40)
    cluster.run(2 * S)
    if mode == "standard":
        return  # what only its coordinator had is lost with it
    assert taken(cluster, *others) == 40
    first = positions(cluster, others[0], subject)
    assert [seq for _, seq, _ in first] == list(range(1, 41))
    assert all(positions(cluster, name, subject) == first for name in others)


def test_the_clients_of_the_workers_of_a_member_without_a_majority_move_to_others() -> None:
    cluster, names = started()
    cluster.open(names[0], 1)
    cluster.partition("m1:1")
    cluster.until(lambda: bool(cluster.members[names[0]].closed))
    (move,) = [one.event for one in cluster.members[names[0]].events if isinstance(one.event, Move)]
    assert move.reason == "no-quorum"
    assert move.servers is not None
    assert sorted(move.servers) == ["c-m2:1", "c-m3:1"]
    reason = cluster.members["m1:1"].running.unready()
    assert reason is not None
    assert cluster.members[names[0]].running.unready() == reason
    assert cluster.ready(*names[2:])
    cluster.heal()
    cluster.until(partial(served, cluster, *names))


def test_a_worker_knows_where_clients_go_when_its_member_is_drained() -> None:
    cluster, names = started()
    cluster.operate("m1:1", "drain", "", force=True)
    cluster.until(lambda: cluster.members[names[0]].running.service.drained() is not None)
    assert sorted(cluster.members[names[0]].running.service.elsewhere()) == ["c-m2:1", "c-m3:1"]
    assert cluster.members[names[2]].running.service.drained() is None
    cluster.operate("m1:1", "undrain")
    cluster.until(lambda: cluster.members[names[0]].running.service.drained() is None)


def test_a_worker_that_starts_later_has_the_cache_and_the_history() -> None:
    cluster, names = started(log_kept=2)
    cluster.open(names[0], 1, "one")
    for number in range(1, 41):
        cluster.publish(names[0], 1, f"/s/{number % 3}", f"{number}")
    cluster.until(lambda: taken(cluster, names[0]) == 40)
    name = cluster.start_worker("m2:1")
    cluster.until(partial(served, cluster, name))
    cluster.open(name, 1)
    cluster.subscribe(name, 1, "/s/*")
    cluster.run(S)
    assert sorted(got(cluster, name)) == ["38", "39", "40"]
    histories = {member.running.history for member in cluster.members.values()}
    assert len(histories) == 1


def resets(cluster: Cluster, name: str, session: int = 1) -> int:
    """How many resets a session got."""
    events = cluster.members[name].events
    return sum(isinstance(one.event, Reset) and one.session == session for one in events)


def test_clients_of_workers_get_as_few_resets_as_those_of_members() -> None:
    cluster, names = started(groups=32, guaranteed=False)
    watched = ["m3:1", *names[4:]]
    for name in watched:
        cluster.open(name, 1)
        cluster.subscribe(name, 1, "/s/*")
    cluster.open(names[0], 2)
    cluster.open("m3:1", 2)
    cluster.partition("m3:1")
    cluster.run(5 * S)
    for number in range(100):
        cluster.publish("m3:1", 2, f"/s/{number}", "there")
        cluster.publish(names[0], 2, f"/s/{number}", "here")
    cluster.run(5 * S)
    cluster.heal()
    cluster.run(10 * S)
    for name in names[4:]:
        assert image(cluster, name) == image(cluster, "m3:1")
        # One more for the cut: the member goes on under another history id in one go, and the
        # groups that it gives its workers then take two messages.
        assert 1 < resets(cluster, name) <= resets(cluster, "m3:1") + 1


@pytest.mark.parametrize("mode", ["guaranteed", "standard"])
def test_a_new_history_reaches_the_clients_of_workers(mode: str) -> None:
    cluster, names = started(**MODES[mode])
    worker = names[4]  # of the third member
    for name in ("m3:1", worker):
        cluster.open(name, 1, f"one-{name}")
        cluster.subscribe(name, 1, "/s/*")
    cluster.publish(worker, 1, "/s/a", "before", number=1)
    cluster.until(lambda: taken(cluster, worker) == 1)
    before = cluster.members[worker].running.history
    if mode == "guaranteed":
        for name in cluster.names[:2]:
            cluster.kill(name)
            cluster.lose_votes(name)
        cluster.start(*cluster.names[:2])
        cluster.run(5 * S)
        cluster.operate("m3:1", "cold-start", force=True)
    else:
        for name in cluster.names[:2]:
            cluster.kill(name)
    third = cluster.members["m3:1"]
    cluster.until(lambda: cluster.ready("m3:1") and third.running.history != before)
    cluster.until(partial(served, cluster, worker))
    cluster.run(2 * S)
    assert cluster.members[worker].running.history == third.running.history
    if mode == "standard":  # in the other one its session ended with the majority
        assert resets(cluster, worker) == resets(cluster, "m3:1") > 0
    cluster.open(worker, 2, "two")
    cluster.publish(worker, 2, "/s/a", "after", number=1)
    cluster.until(lambda: taken(cluster, worker) == 2)
    for name in ("m3:1", cluster.workers_of("m3:1")[1]):
        assert image(cluster, name) == image(cluster, worker)


def test_what_a_full_disk_takes_back_is_refused_for_certain_at_the_worker() -> None:
    cluster, names = started(1, writes_wal=True, acks_wait_for_wal=True)
    cluster.disk_delays["m1:1"] = 10 * S
    cluster.open(names[0], 1, "one")
    cluster.subscribe(names[0], 1, "/s/a")
    cluster.publish(names[0], 1, "/s/a", "never", number=1)
    cluster.run(S)
    cluster.feed("m1:1", Trouble("the disk is full", refusing=True, withdrawn=True))
    cluster.until(lambda: bool(told(cluster, names[0])))
    (result,) = told(cluster, names[0])
    assert (result.status, result.reason) == (StatusName.PUBLISH_FAILED, "the disk is full")
    assert result.certain is not False
    cluster.open(names[1], 1)
    cluster.publish(names[1], 1, "/s/a", "refused")
    cluster.run(S)
    assert [one.reason for one in told(cluster, names[1])] == ["the disk is full"]
    cluster.feed("m1:1", Trouble(None, refusing=False))
    cluster.disk_delays.clear()
    cluster.run(S)
    cluster.publish(names[1], 1, "/s/a", "taken")
    cluster.until(lambda: taken(cluster, names[1]) == 1)
    cluster.run(S)
    assert got(cluster, names[0]) == ["taken"]


def test_a_worker_that_says_what_no_worker_says_loses_its_link() -> None:
    cluster, names = started(1)
    outputs = cluster.feed("m1:1", PeerReceived(names[0], [Prepare([], {}, False)]))
    assert [getattr(output, "reason", "") for output in outputs] == [
        "Prepare is nothing that a worker says"
    ]


def test_other_members_hear_nothing_of_workers() -> None:
    cluster, names = started()
    cluster.run(5 * S)
    for name in cluster.names:
        members = cluster.members[name].running.members
        assert sorted(members.peers) == sorted(set(cluster.names) - {name})
        assert not members.misses
    assert cluster.ready()
    for name in names:
        assert list(cluster.members[name].running.members.peers) == [name.partition("/")[0]]
