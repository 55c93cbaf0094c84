import pytest

from mdserver.bench import floor as floor_bench
from mdserver.bench.connections import Connections
from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.opening import plain
from mdserver.bench.processes import BenchError
from mdserver.bench.target import local
from mdserver.bench.verify import Verifier, content

pytestmark = pytest.mark.skipif(floor_bench.compiler() is None, reason="no C compiler")

SUBSCRIBERS = 20
SIZE = 128


def test_every_subscriber_of_the_floor_gets_every_message() -> None:
    encoding = ENCODINGS["json"]
    verifier = Verifier(SIZE)
    with (
        floor_bench.floor(SUBSCRIBERS) as floor,
        Connections(local(floor.port), encoding.client, verifier) as subscribers,
    ):
        subscribers.open(SUBSCRIBERS, plain)
        floor.wait_for_subscribers()
        for first in (1, 11):
            numbers = range(first, first + 10)
            floor.publish([encoding.message("/a/b", n, content(n, SIZE)) for n in numbers])
            assert subscribers.receive(10 * SUBSCRIBERS, 10.0) == 0
        assert [stream.position for stream in subscribers.streams] == [20] * SUBSCRIBERS
    assert not verifier.faults


def test_what_a_broadcaster_loses_and_swaps_is_found() -> None:
    encoding = ENCODINGS["binary"]
    verifier = Verifier(SIZE)
    with (
        floor_bench.floor(SUBSCRIBERS) as floor,
        Connections(local(floor.port), encoding.client, verifier) as subscribers,
    ):
        subscribers.open(SUBSCRIBERS, plain)
        floor.wait_for_subscribers()
        for numbers in ((1, 2), (4, 5), (7, 6, 8)):
            floor.publish([encoding.message("/a/b", n, content(n, SIZE)) for n in numbers])
        assert subscribers.receive(8 * SUBSCRIBERS, 10.0) == 0
        assert [stream.position for stream in subscribers.streams] == [8] * SUBSCRIBERS
    assert verifier.lost == 2 * SUBSCRIBERS
    assert verifier.repeated == SUBSCRIBERS
    assert verifier.altered == 0


def test_without_a_compiler_the_advice_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchError, match="--no-floor"), floor_bench.floor(1):
        pass
