from mdserver.bench.encodings import ENCODINGS
from mdserver.bench.stamps import Arrivals, stamped
from mdserver.bench.verify import ReceivedStream

SIZE = 64
SUBJECT = "/a/b"


def stream(number: int, encoding: str = "json") -> ReceivedStream:
    return ReceivedStream(number, ENCODINGS[encoding].client(), lambda _: None)


def message(seq: int, text: str, encoding: str = "json") -> bytes:
    return ENCODINGS[encoding].message(SUBJECT, seq, text)


def test_the_times_at_which_messages_were_to_be_sent_are_told_for_each_subscriber() -> None:
    for encoding in ENCODINGS:
        told: list[tuple[int, ...]] = []
        arrivals = Arrivals(SIZE, told.append)
        streams = [stream(number, encoding) for number in range(3)]
        for seq in (1, 2, 3):
            chunk = message(seq, stamped(seq, 1000 + seq, SIZE), encoding)
            assert [arrivals.received(each, chunk) for each in streams] == [1, 1, 1]
        assert told == [(1001,)] * 3 + [(1002,)] * 3 + [(1003,)] * 3
        assert (arrivals.lost, arrivals.repeated, arrivals.altered) == (0, 0, 0)


def test_several_messages_of_one_read_have_their_own_times() -> None:
    told: list[tuple[int, ...]] = []
    arrivals = Arrivals(SIZE, told.append)
    chunk = b"".join(message(seq, stamped(seq, seq * 7, SIZE)) for seq in (1, 2, 3))
    assert arrivals.received(stream(0), chunk) == 3
    assert told == [(7, 14, 21)]


def test_a_gap_a_repetition_and_another_content_are_noticed() -> None:
    arrivals = Arrivals(SIZE, lambda _: None)
    one = stream(0)
    for seq, text in ((1, stamped(1, 5, SIZE)), (4, stamped(4, 5, SIZE)), (4, stamped(4, 5, SIZE))):
        arrivals.received(one, message(seq, text))
    assert (arrivals.lost, arrivals.repeated, arrivals.altered) == (2, 1, 0)
    for text in (stamped(6, 5, SIZE), "short", "", stamped(5, 5, SIZE + 1)):
        arrivals.received(one, message(one.position + 1, text))
    assert arrivals.altered == 4


def test_a_new_connection_decodes_its_first_message_even_if_the_bytes_are_known() -> None:
    arrivals = Arrivals(SIZE, lambda _: None)
    first = stream(0, "binary")
    for seq in (1, 2):
        arrivals.received(first, message(seq, stamped(seq, 5, SIZE), "binary"))
    again = stream(1, "binary")
    again.position = 0
    assert arrivals.received(again, message(1, stamped(1, 5, SIZE), "binary")) == 1
    assert again.epoch == 1
    assert arrivals.received(again, message(2, stamped(2, 5, SIZE), "binary")) == 1
