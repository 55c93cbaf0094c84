"""What once broke servers, or might, is sent to a live one again; the fuzzer notices failures."""

import random
from collections.abc import Iterator

import pytest
import trio

from tests.fuzz.inputs import KINDS, Inputs
from tests.fuzz.kept import corpus
from tests.fuzz.target import Target, Unwell, target


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("fuzzed")) as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_stays_well_whatever_it_is_sent(one: Target, kind: str) -> None:
    inputs = [known for known in corpus() if known.kind == kind]
    assert len(inputs) >= 4
    await one.play(inputs)
    await one.check()


async def test_new_inputs_leave_a_server_well(one: Target) -> None:
    fresh = Inputs(random.Random(20_240_229), corpus())
    await one.play([fresh.next() for _ in range(60)])
    await one.check()


async def test_an_error_in_the_log_is_a_failure(one: Target) -> None:
    with (one.folder / "mdserver.log").open("a") as log:
        log.write('{"level":"error","event":"session failed"}\n')
    with pytest.raises(Unwell, match="session failed"):
        await one.check()
    await one.check()


def test_a_seed_gives_the_same_inputs_again() -> None:
    first, again = (Inputs(random.Random(3), corpus()) for _ in range(2))
    made = [first.next() for _ in range(50)]
    assert made == [again.next() for _ in range(50)]
    assert {one.kind for one in made} == set(KINDS)


@pytest.mark.slow
def test_a_server_that_ended_is_a_failure(tmp_path_factory: pytest.TempPathFactory) -> None:
    with target(tmp_path_factory.mktemp("ended")) as running:
        running.server.process.kill()
        running.server.process.wait()
        with pytest.raises(Unwell, match="the server ended with -9"):
            trio.run(running.check)
