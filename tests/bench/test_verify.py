import pytest

from mdserver.bench import wire
from mdserver.bench.encodings import ENCODINGS, Encoding
from mdserver.bench.verify import FAULTS_KEPT, ReceivedStream, Verifier, content
from mdserver.errors import RemoteProtocolError

SIZE = 32


@pytest.fixture(params=sorted(ENCODINGS))
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return ENCODINGS[request.param]


@pytest.fixture
def verifier() -> Verifier:
    return Verifier(SIZE)


def stream(encoding: Encoding, subscriber: int = 0) -> ReceivedStream:
    return ReceivedStream(subscriber, encoding.client(), lambda _: None)


def messages(encoding: Encoding, *numbers: int) -> bytes:
    return b"".join([encoding.message("/a/b", n, content(n, SIZE)) for n in numbers])


def test_messages_in_order_advance_a_stream(encoding: Encoding, verifier: Verifier) -> None:
    reader = stream(encoding)
    assert verifier.received(reader, messages(encoding, 1, 2)) == 2
    assert verifier.received(reader, messages(encoding, 3)) == 1
    assert reader.position == 3
    assert not verifier.faults
    assert verifier.missing([reader], 3) == 0


def test_a_read_may_end_anywhere(encoding: Encoding, verifier: Verifier) -> None:
    whole = messages(encoding, 1, 2, 3)
    for subscriber, cut in enumerate(range(len(whole) + 1)):
        reader = stream(encoding, subscriber)
        verifier.received(reader, whole[:cut])
        verifier.received(reader, whole[cut:])
        assert reader.position == 3
    assert not verifier.faults


@pytest.mark.parametrize(
    ("numbers", "lost_repeated_position"),
    [
        ((1, 3, 4), (1, 0, 4)),
        ((1, 2, 2, 3), (0, 1, 3)),
        ((1, 3, 2, 4), (1, 1, 4)),
        ((1, 3), (1, 0, 3)),
        ((1, 9), (7, 0, 9)),
    ],
)
@pytest.mark.parametrize("followers", [0, 2])
def test_loss_repetition_and_disorder_are_seen_at_every_subscriber(
    encoding: Encoding,
    verifier: Verifier,
    numbers: tuple[int, ...],
    lost_repeated_position: tuple[int, int, int],
    followers: int,
) -> None:
    lost, repeated, position = lost_repeated_position
    readers = [stream(encoding, subscriber) for subscriber in range(1 + followers)]
    for reader in readers:
        for number in numbers:
            verifier.received(reader, messages(encoding, number))
        assert reader.position == position
    assert verifier.lost == lost * len(readers)
    assert verifier.repeated == repeated * len(readers)
    assert verifier.faults[0].subscriber == 0


def test_one_subscriber_who_misses_what_others_have_is_found(
    encoding: Encoding, verifier: Verifier
) -> None:
    complete, lossy = stream(encoding, 0), stream(encoding, 1)
    for number in (1, 2, 3, 4):
        verifier.received(complete, messages(encoding, number))
        if number != 3:
            verifier.received(lossy, messages(encoding, number))
    assert (verifier.lost, verifier.repeated, verifier.altered) == (1, 0, 0)
    assert str(verifier.faults[0]) == "lost: subscriber 1 expected message 3, got 4"


def test_altered_content_is_found_although_the_position_is_right(
    encoding: Encoding, verifier: Verifier
) -> None:
    readers = [stream(encoding, subscriber) for subscriber in range(2)]
    wrong = encoding.message("/a/b", 2, content(3, SIZE))
    for reader in readers:
        verifier.received(reader, messages(encoding, 1))
        assert verifier.received(reader, wrong) == 1
    assert verifier.altered == 2
    assert verifier.lost == 0


def test_what_never_came_is_lost(encoding: Encoding, verifier: Verifier) -> None:
    reader = stream(encoding)
    verifier.received(reader, messages(encoding, 1, 2))
    assert verifier.missing([reader], 5) == 3
    assert verifier.lost == 3


def test_faults_are_all_counted_but_only_the_first_described(
    encoding: Encoding, verifier: Verifier
) -> None:
    reader = stream(encoding)
    verifier.received(reader, messages(encoding, *range(1, 200, 2)))
    assert verifier.lost == 99
    assert len(verifier.faults) == FAULTS_KEPT


def test_a_close_is_an_error_with_its_reason(encoding: Encoding, verifier: Verifier) -> None:
    close = wire.server_frame((4001).to_bytes(2, "big") + b"too slow", wire.OPCODE_CLOSE)
    with pytest.raises(RemoteProtocolError, match="4001: too slow"):
        verifier.received(stream(encoding), messages(encoding, 1) + close)


def test_a_ping_is_answered(encoding: Encoding, verifier: Verifier) -> None:
    answers: list[bytes] = []
    reader = ReceivedStream(0, encoding.client(), answers.append)
    assert verifier.received(reader, wire.server_frame(b"now", wire.OPCODE_PING)) == 0
    assert len(answers) == 1
    assert answers[0][0] & 0x0F == wire.OPCODE_PONG
