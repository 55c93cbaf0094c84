import pytest

from mdserver.bench import cache, cluster, compared, connect, fanout, publish
from mdserver.bench import floor as floor_bench
from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.processes import BenchError


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_a_fan_out_of_a_real_server_arrives_whole(encoding: str, told: list[str]) -> None:
    load = fanout.FanoutLoad(
        ENCODINGS[encoding],
        subscribers=20,
        seconds=0.2,
        with_floor=floor_bench.compiler() is not None,
    )
    one, burst = fanout.measure(load, told.append)
    assert (one.lost, one.repeated, one.altered) == (0, 0, 0)
    assert one.count >= 20 * fanout.TURNS
    assert one.count % 20 == 0
    assert burst.count % (20 * 20) == 0
    assert one.p50_ms is not None
    assert one.floor_per_s is None or one.ratio == one.per_s / one.floor_per_s
    assert told[0] == "20 subscribers connect"


@pytest.mark.slow
def test_a_fan_out_keeps_to_the_rate_that_is_asked_for(told: list[str]) -> None:
    with_floor = floor_bench.compiler() is not None
    load = fanout.FanoutLoad(
        ENCODINGS["json"], 3, bursts=(1,), seconds=1.0, rate=20, with_floor=with_floor
    )
    (row,) = fanout.measure(load, told.append)
    assert 0 < row.count <= 3 * (20 + fanout.TURNS)
    assert (row.floor_p99_ms is not None) == with_floor


@pytest.mark.slow
def test_a_low_rate_makes_no_turn_longer(told: list[str]) -> None:
    load = fanout.FanoutLoad(
        ENCODINGS["json"], 3, bursts=(1,), seconds=1.0, rate=0.1, with_floor=False
    )
    (row,) = fanout.measure(load, told.append)
    assert row.count == 3 * fanout.TURNS
    assert row.seconds < 10  # each turn has a fifth of a second; until the next burst it is ten


@pytest.mark.slow
def test_who_never_reads_costs_the_others_nothing(told: list[str]) -> None:
    load = fanout.FanoutLoad(ENCODINGS["json"], subscribers=10, seconds=0.5, bursts=(5,))
    calm, disturbed = compared.stalled(load, 2, told.append)
    assert (calm.mode, disturbed.mode) == ("bursts of 5, 0 never read", "bursts of 5, 2 never read")
    for row in (calm, disturbed):
        assert (row.lost, row.repeated, row.altered) == (0, 0, 0)
        assert row.count % 50 == 0
    assert disturbed.kib_each is not None


@pytest.mark.slow
def test_a_fan_out_over_tls_is_compared_with_one_without(told: list[str]) -> None:
    load = fanout.FanoutLoad(ENCODINGS["binary"], subscribers=10, seconds=0.5, bursts=(1,))
    plain, encrypted = compared.encrypted(load, told.append)
    assert (plain.mode, encrypted.mode) == ("one at a time, plain", "one at a time, TLS")
    assert (encrypted.lost, encrypted.repeated, encrypted.altered) == (0, 0, 0)
    assert encrypted.count % 10 == 0
    assert encrypted.floor_per_s == plain.per_s


@pytest.mark.slow
def test_a_server_that_is_watched_is_compared_with_one_that_is_not(told: list[str]) -> None:
    load = fanout.FanoutLoad(ENCODINGS["binary"], subscribers=10, seconds=0.5, bursts=(1,))
    without, watched = compared.monitored(load, told.append)
    assert (without.mode, watched.mode) == ("one at a time, no monitor", "one at a time, monitored")
    assert (watched.lost, watched.repeated, watched.altered) == (0, 0, 0)
    assert watched.count % 10 == 0
    assert watched.floor_per_s == without.per_s


@pytest.mark.slow
def test_publications_are_counted_when_they_are_acknowledged(told: list[str]) -> None:
    load = publish.PublishLoad(ENCODINGS["json"], count=230, window=100, batch=20)
    rows = publish.measure(load, told.append)
    assert [row.count for row in rows] == [230, 230]
    assert [row.mode for row in rows] == ["a WebSocket message each", "20 a WebSocket message"]


def test_a_refused_publication_ends_the_measurement(told: list[str]) -> None:
    load = publish.PublishLoad(ENCODINGS["json"], count=10, settings=("Entitlement=Basic",))
    with pytest.raises(BenchError, match="PUBLISH_DENIED"):
        publish.measure(load, told.append)


@pytest.mark.slow
def test_connections_over_tls_are_made_anew_and_resumed(told: list[str]) -> None:
    load = connect.ConnectLoad(ENCODINGS["binary"], 30, window=7)
    full, resumed = connect.encrypted(load, "connect", told.append)
    assert (full.mode, resumed.mode) == ("7 at a time, TLS", "7 at a time, TLS resumed")
    assert full.count == resumed.count == 30
    assert full.kib_each is not None
    assert full.kib_each > 0


def test_connections_are_subscribed_when_they_count(told: list[str]) -> None:
    row = connect.measure(
        connect.ConnectLoad(ENCODINGS["binary"], 30, window=7), "connect", told.append
    )
    assert row.count == 30
    assert row.kib_each is not None


@pytest.mark.slow
def test_the_cache_is_measured_by_subject_and_by_message(told: list[str]) -> None:
    subjects, messages = cache.measure(cache.CacheLoad(ENCODINGS["json"], 200, 300), told.append)
    assert (subjects.count, messages.count) == (200, 300)
    assert messages.resident_kib is not None


@pytest.mark.slow
def test_a_cluster_takes_publications_again_after_a_kill(told: list[str]) -> None:
    load = cluster.ClusterLoad(
        ENCODINGS["binary"], count=300, one_by_one=20, kills=1, window=50, batch=10
    )
    rows = cluster.measure(load, told.append)
    assert [(row.mode, row.count) for row in rows] == [
        ("one at a time", 20),
        ("1 publisher", 300),
        ("a publisher at each member", 300),
        ("a member killed", 1),
    ]
    assert all(row.ratio and row.floor_per_s for row in rows[:-1])
    assert told[-1] == "kill 1 of 1"
