import pytest

from mdserver.bench.clients import Crowd
from mdserver.bench.crowds import shares
from mdserver.bench.target import Running, local


@pytest.mark.parametrize(("count", "processes"), [(10, 1), (10, 3), (3, 8), (1, 1), (1000, 7)])
def test_each_client_is_in_one_process_and_none_is_idle(count: int, processes: int) -> None:
    crowd = Crowd(Running(local(1)), "json", 5, count, ("/a/b",), 64)
    parts = shares(crowd, processes)
    numbers = [number for part in parts for number in range(part.first, part.first + part.count)]
    assert numbers == list(range(5, 5 + count))
    sizes = [part.count for part in parts]
    assert len(sizes) == min(count, processes)
    assert max(sizes) - min(sizes) <= 1
