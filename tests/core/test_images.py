"""Images of members of earlier versions, which name no places."""

from mdserver.core.images import SubjectImage, placed
from mdserver.core.message import Entry, Publication


def entry(seq: int, place: int) -> Entry:
    return Entry(1, seq, Publication("/a/b", b"x"), place)


def test_a_place_that_is_unknown_is_no_earlier_than_the_right_one() -> None:
    image = SubjectImage("/a/b", 1, 3, 1, [entry(2, 0), entry(3, 0)], None)
    told = placed(image, 7)
    assert [(one.seq, one.place) for one in told.entries] == [(2, 7), (3, 7)]
    assert told.dropped == 7


def test_places_that_are_known_stay() -> None:
    image = SubjectImage("/a/b", 1, 3, 1, [entry(2, 4), entry(3, 6)], None, dropped=3)
    assert placed(image, 7) == image
    whole = SubjectImage("/a/b", 1, 1, 0, [entry(1, 4)], None)
    assert placed(whole, 7) == whole, "nothing of it was dropped"
