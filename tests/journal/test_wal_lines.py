"""Large entries in portions: between those of others, and a crash at any line."""

import random
from collections.abc import Iterator
from itertools import islice

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.cluster.wal import AnyWalEntry, Checkpoint, WalBegun, WalImage, WalLog
from mdserver.journal import wal_lines
from mdserver.journal.wal_lines import Portion, WalAssembly, WalLines, array_of, entry_of, pieces_of
from simulation.cluster import WAL
from tests.cluster.test_wal_replay import GROUPS, Single, running

PIECES = st.lists(st.binary(max_size=40), max_size=30)


@given(PIECES, st.integers(1, 50))
def test_portions_are_the_same_bytes_in_bounded_parts(pieces: list[bytes], size: int) -> None:
    parts = list(wal_lines.portions(pieces, size))
    assert b"".join(parts) == b"".join(pieces)
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts)


def image_of(single: Single, group: int) -> WalImage:
    """Return a checkpoint of a group, which the disk has forgotten again."""
    single.step(Checkpoint((group,)))
    (image,) = single.requested[-1].entries
    assert isinstance(image, WalImage)
    single.write()
    single.wal.pop()
    return image


def test_an_image_is_read_as_the_entry_that_it_stands_for() -> None:
    single = running()
    for number in range(6):
        single.publish(1, f"/s/{number % 3}", f"{number}")
    single.write()
    for group in range(GROUPS):
        image = image_of(single, group)
        piecewise = b"".join(pieces_of(image))
        assert msgspec.msgpack.decode(piecewise) == msgspec.msgpack.decode(
            msgspec.msgpack.encode(image)
        )
        held = msgspec.msgpack.decode(piecewise, type=AnyWalEntry)
        assert isinstance(held, WalLog)
    assert array_of(3) == b"\xdd\0\0\0\3"


@given(st.integers(0, 2**32), st.integers(1, 64), st.booleans())
@settings(deadline=None)
def test_what_is_left_after_a_crash_at_any_line_follows(
    seed: int, portion_bytes: int, crashed: bool
) -> None:
    """Portions of checkpoints stand between the entries of what goes on, and may never be whole."""
    rng = random.Random(seed)
    single, large = running(), WalLines(portion_bytes)
    lines: list[bytes] = []
    pictures: list[Iterator[bytes]] = []
    wanted = rng.sample(range(GROUPS), GROUPS)
    first = 0

    def write() -> None:
        for record in single.wal:
            lines.extend(large.lines(WAL.decode(record)))
        single.wal.clear()

    write()
    for number in range(40):
        single.publish(1, f"/s/{rng.randrange(6)}", f"{number}")
        single.write()
        write()
        if wanted and rng.random() < 0.2:
            first = first or len(lines)
            picture = large.lines(image_of(single, wanted.pop()))
            lines.append(next(picture))  # it shows how things are at this place
            pictures.append(picture)
        for picture in rng.sample(pictures, len(pictures)):
            lines.extend(islice(picture, rng.randrange(3)))
    if crashed:
        del lines[rng.randrange(len(lines)) :]
        Single(assembled(lines))  # does not raise RecordsError
        return
    pictures += [large.lines(image_of(single, group)) for group in wanted]
    for picture in pictures:
        lines.extend(picture)
    again = Single(assembled(lines[first:]))
    again.write()
    assert again.held() == single.held()


def assembled(lines: list[bytes]) -> list[bytes]:
    assembly = WalAssembly()
    for line in lines:
        assembly.take(entry_of(line))
    return [msgspec.msgpack.encode(entry) for entry in assembly.entries]


def test_portions_of_a_process_that_is_gone_mean_nothing() -> None:
    first, second = (WalBegun("m", "", 1, incarnation, "", False) for incarnation in (1, 2))
    assembly = WalAssembly()
    assembly.take(first)
    assembly.take(Portion(1, b"x", True, False))
    assembly.take(second)
    assembly.take(Portion(1, b"y", False, True))
    assert assembly.entries == [first, second]
