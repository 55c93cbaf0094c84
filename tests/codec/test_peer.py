"""The handshake of a peer link: both know the password, and agree on what must agree."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdserver.cluster.messages import Ack, AckItem, HandOver
from mdserver.codec.frames import frame
from mdserver.codec.peer import (
    GREETING,
    MESSAGE,
    PART,
    PROOF,
    Greeting,
    Handshake,
    MessageAssembler,
    RefusedError,
    Side,
    Terms,
    message_frame,
    messages,
    refusal,
)
from mdserver.codec.peer import TERMS as TERMS_KIND
from mdserver.errors import RemoteProtocolError

A = Greeting("a:1", b"a" * 32)
B = Greeting("b:1", b"b" * 32)
TERMS = Terms(8, ["a:1", "b:1"], "Guaranteed")


def meet(
    dialer: Greeting = A,
    listener: Greeting = B,
    passwords: tuple[str, str] = ("p", "p"),
    terms: Terms = TERMS,
) -> tuple[Handshake, Handshake]:
    """Both sides, as far as they get with each other."""
    left = Handshake(Side.DIALER, dialer, TERMS, passwords[0])
    right = Handshake(Side.LISTENER, listener, terms, passwords[1])
    to_right, to_left = left.begin(), right.begin()
    while to_right or to_left:
        answer_left = left.feed(to_left) if to_left else b""
        answer_right = right.feed(to_right) if to_right else b""
        to_right, to_left = answer_left, answer_right
    return left, right


def test_members_that_know_the_password_meet() -> None:
    left, right = meet()
    assert (left.done, left.peer, right.done, right.peer) == (True, "b:1", True, "a:1")


class LaterGreeting(Greeting, frozen=True):
    """The greeting of a version that says more in it."""

    later: str = "unknown before"


@pytest.mark.parametrize("later_dials", [True, False])
def test_a_greeting_may_have_fields_that_the_other_side_does_not_know(later_dials: bool) -> None:
    later = LaterGreeting("c:1", b"c" * 32)

    left, right = meet(dialer=later) if later_dials else meet(listener=later)

    assert (left.done, right.done) == (True, True)


def test_another_password_is_refused_by_the_listener_first() -> None:
    with pytest.raises(RemoteProtocolError, match="ClusterPassword differs"):
        meet(passwords=("p", "q"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"groups": 9}, "ClusterSubjectGroups is 9 at b:1 and 8 at a:1"),
        ({"seeds": ["b:1"]}, "list of seeds"),
        ({"mode": "Standard"}, "ClusterDeliveryMode is 'Standard' at b:1"),
        ({"protocol": 9}, "version of the peer protocol"),
        ({"member": "a:1"}, "both members are called a:1"),
        ({"nonce": b"short"}, "a nonce has 32 bytes"),
        ({"member": "b:1\n" + 300 * "x"}, "a member's name is its address"),
        ({"member": ""}, "a member's name is its address"),
    ],
)
def test_what_has_to_agree_is_named(changed: dict[str, object], reason: str) -> None:
    greeting, terms = (
        msgspec.structs.replace(
            each, **{name: value for name, value in changed.items() if hasattr(each, name)}
        )
        for each in (B, TERMS)
    )
    with pytest.raises(RemoteProtocolError, match=reason):
        meet(listener=greeting, terms=terms)


def test_who_has_proved_nothing_learns_no_terms() -> None:
    for side in Side:
        first = Handshake(side, A, TERMS, "p")
        said = first.begin() + first.feed(Handshake(Side.LISTENER, B, TERMS, "q").begin())
        assert b"b:1" not in said
        assert b"Guaranteed" not in said
        refused = refusal(RemoteProtocolError("ClusterSubjectGroups is 9 at b:1"), proven=False)
        assert refused[-7:] == b"refused"


def test_a_dialer_whose_proof_is_refused_knows_why() -> None:
    left, right = Handshake(Side.DIALER, A, TERMS, "p"), Handshake(Side.LISTENER, B, TERMS, "q")
    left.feed(right.begin())
    with pytest.raises(RefusedError, match="ClusterPassword differs"):
        left.feed(refusal(RemoteProtocolError("whatever it is"), proven=False))


def test_a_member_that_is_not_the_one_called_is_refused() -> None:
    left = Handshake(Side.DIALER, A, TERMS, "p", "c:1")
    with pytest.raises(RemoteProtocolError, match="c:1 was called, and b:1 answered"):
        left.feed(Handshake(Side.LISTENER, B, TERMS, "p").begin())


def test_the_refusal_reaches_the_other_side_with_its_reason() -> None:
    left = Handshake(Side.DIALER, A, TERMS, "p")
    told = refusal(RemoteProtocolError("no room"), proven=True)
    with pytest.raises(RefusedError, match="no room"):
        left.feed(told)


def test_a_proof_is_of_no_use_on_another_link() -> None:
    left, right = Handshake(Side.DIALER, A, TERMS, "p"), Handshake(Side.LISTENER, B, TERMS, "p")
    proof = left.feed(right.begin())
    other = Handshake(Side.LISTENER, msgspec.structs.replace(B, nonce=b"c" * 32), TERMS, "p")
    with pytest.raises(RemoteProtocolError, match="ClusterPassword"):
        other.feed(left.begin() + proof)


def test_a_sides_own_proof_cannot_be_sent_back_to_it() -> None:
    left, right = Handshake(Side.DIALER, A, TERMS, "p"), Handshake(Side.LISTENER, B, TERMS, "p")
    proof = left.feed(right.begin())
    with pytest.raises(RemoteProtocolError, match="ClusterPassword"):
        left.feed(proof)


def test_the_password_and_its_hash_are_never_sent() -> None:
    left = Handshake(Side.DIALER, A, TERMS, "the password")
    right = Handshake(Side.LISTENER, B, TERMS, "the password")
    sent = left.begin() + right.begin() + left.feed(right.begin())
    assert b"password" not in sent


def test_a_proof_is_bound_to_the_encrypted_connection_under_it() -> None:
    """Somebody between two members has two TLS connections, and their bindings differ."""
    left = Handshake(Side.DIALER, A, TERMS, "p", binding=b"left of it")
    right = Handshake(Side.LISTENER, B, TERMS, "p", binding=b"right of it")
    right.feed(left.begin())
    with pytest.raises(RemoteProtocolError, match="or somebody stands between them"):
        right.feed(left.feed(right.begin()))


def test_a_plain_member_knows_an_encrypted_one() -> None:
    with pytest.raises(RemoteProtocolError, match="ClusterMemberKeyStore is not set at a:1"):
        Handshake(Side.LISTENER, A, TERMS, "p").feed(b"\x16\x03\x01\x02\x00\x01")


def test_messages_may_follow_the_last_proof_in_the_same_read() -> None:
    left, right = Handshake(Side.DIALER, A, TERMS, "p"), Handshake(Side.LISTENER, B, TERMS, "p")
    proof = right.feed(left.begin() + left.feed(right.begin()))
    terms = left.feed(proof + message_frame(HandOver([4])))
    assert messages(left.early) == [HandOver([4])]
    assert (right.proven, right.done) == (True, False)
    right.feed(terms + message_frame(HandOver([5])))
    assert messages(right.early) == [HandOver([5])]


def test_messages_before_the_handshake_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="out of place"):
        Handshake(Side.LISTENER, B, TERMS, "p").feed(message_frame(HandOver([4])))


def test_a_stranger_cannot_make_a_member_keep_much() -> None:
    handshake = Handshake(Side.LISTENER, B, TERMS, "p")
    with pytest.raises(RemoteProtocolError, match="too long"):
        handshake.feed(frame(MESSAGE, b"x" * 100_000)[:60_000])
    with pytest.raises(RemoteProtocolError, match="too long"):
        Handshake(Side.LISTENER, B, TERMS, "p").feed(frame(GREETING, b"x" * 60_000))


def test_a_greeting_that_is_nested_deeply_is_refused() -> None:
    nested = b"\x81\xa4name" + b"\x91" * 15_000 + b"\xc0"
    with pytest.raises(RemoteProtocolError, match="a greeting cannot be understood"):
        Handshake(Side.LISTENER, B, TERMS, "p").feed(frame(GREETING, nested))


def test_a_message_survives_its_frame() -> None:
    message = Ack(3, [AckItem(1, 2, 300)])
    left, right = meet()
    assert messages(left.reader.feed(message_frame(message))) == [message]
    assert not right.early


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_a_protocol_error(data: bytes) -> None:
    for payload in (data, frame(GREETING, data), frame(PROOF, data)):
        handshake = Handshake(Side.LISTENER, B, TERMS, "p")
        with suppress(RemoteProtocolError):
            handshake.feed(payload)
        assert not handshake.done
    with pytest.raises(RemoteProtocolError):
        messages([(MESSAGE, data + b"\xc1")])


@given(st.integers(1, 40), st.integers(1, 7))
def test_a_message_that_is_larger_than_a_frame_goes_in_parts(bytes_max: int, pieces: int) -> None:
    """Whatever its size and however the bytes arrive; what comes behind it is whole as well."""
    sent = [HandOver(list(range(70))), HandOver([4])]
    data = b"".join(message_frame(message, bytes_max) for message in sent)
    reader, together = meet()[0].reader, MessageAssembler()
    size = -(-len(data) // pieces)
    found = []
    for at in range(0, len(data), size):
        frames = reader.feed(data[at : at + size])
        assert all(len(payload) <= bytes_max for _, payload in frames)
        found += together.take(frames)
    assert found == sent


def test_parts_that_never_end_are_refused() -> None:
    together = MessageAssembler(bytes_max=10)
    assert together.take([(PART, b"x" * 6)]) == []
    with pytest.raises(RemoteProtocolError, match="longer than 10 bytes"):
        together.take([(PART, b"x" * 6)])


def test_terms_of_a_member_that_proved_nothing_are_not_looked_at() -> None:
    left = Handshake(Side.DIALER, A, TERMS, "p")
    right = Handshake(Side.LISTENER, B, TERMS, "p")
    right.feed(left.begin())
    with pytest.raises(RemoteProtocolError, match="out of place"):
        right.feed(frame(TERMS_KIND, msgspec.json.encode(TERMS)))


def test_a_second_proof_is_out_of_place() -> None:
    left = Handshake(Side.DIALER, A, TERMS, "p")
    right = Handshake(Side.LISTENER, B, TERMS, "p")
    greeting = right.begin()
    right.feed(left.begin())
    proof = left.feed(greeting)
    right.feed(proof)
    assert right.proven
    assert not right.done
    with pytest.raises(RemoteProtocolError, match="out of place"):
        right.feed(proof)
