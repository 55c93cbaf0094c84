"""What is said of commands that cannot be understood: which key, and what would be right."""

import msgspec
import pytest

from mdserver.codec.reading import EXPECTED, OPS, CommandReader, Unknown, ill_formed, mistakes_in
from mdserver.core.commands import Malformed, Ping, Publish
from mdserver.errors import RemoteProtocolError
from mdserver.limits import HINTS_MAX, MALFORMED_MAX

READER = CommandReader(msgspec.json.Decoder, lambda ping: ping)


def sender(mistakes: int = 0) -> Unknown:
    before = Unknown()
    before.mistakes = mistakes
    return before


def explained(text: bytes, mistakes: int = 0) -> Malformed:
    (found,) = READER.read_all([text], sender(mistakes))
    assert isinstance(found, Malformed)
    return found


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"[]", "wrong-type", "object with string keys"),
        (b"{}", "missing-key", "`op`"),
        (b'{"op": 1}', "wrong-type", "`op` must be a string"),
        (b'{"op": "Subscribe"}', "unknown-op", 'the nearest is "subscribe"'),
        (b'{"op": "subscribe"}', "missing-key", "`subjects`"),
        (b'{"op": "subscribe", "subjects": "/a/b"}', "wrong-type", "a list of at most"),
        (b'{"op": "ping", "id": [1]}', "wrong-type", "`id` must be"),
        (b'{"op": "publish", "subject": "/a/b"}', "missing-key", "`content`"),
        (
            b'{"op": "publish", "subject": "/a/b", "content": "x", "content_base64": "eA=="}',
            "invalid-value",
            "not both",
        ),
        (b'{"op": "connect", "keepalive_ms": -1}', "invalid-value", "from 0 to 2147483647"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(text: bytes, code: str, words: str) -> None:
    found = explained(text)
    assert found.code == code
    assert words in found.reason
    assert found.reason.endswith(".")


def test_an_answer_carries_the_id_of_the_command_if_that_can_be_read() -> None:
    assert explained(b'{"op": "publish", "id": 7}').id == 7
    assert explained(b'{"op": "nothing", "id": "n"}').id == "n"


def test_after_a_few_mistakes_nothing_is_searched_for_and_after_many_the_session_ends() -> None:
    assert "nearest" not in explained(b'{"op": "Subscribe"}', HINTS_MAX).reason
    wrong = [b'{"op": "x"}']
    assert len(READER.read_all(wrong * MALFORMED_MAX, sender())) == MALFORMED_MAX
    with pytest.raises(RemoteProtocolError, match="cannot be understood"):
        READER.read_all(wrong * (MALFORMED_MAX + 1), sender())
    with pytest.raises(RemoteProtocolError):
        READER.read_all(wrong, sender(MALFORMED_MAX))


def test_every_key_of_every_command_has_a_sentence_of_what_is_expected() -> None:
    keys = {field.encode_name for kind in OPS.values() for field in msgspec.structs.fields(kind)}
    assert keys | {"op"} == set(EXPECTED)


def test_a_publication_has_one_of_the_two_kinds_of_content() -> None:
    sound = Publish(subject="/a/b", content="")
    both = msgspec.structs.replace(sound, content_base64=b"")
    neither = msgspec.structs.replace(sound, content=None)
    parts = [msgspec.json.encode(command) for command in (sound, both, neither)]
    assert [type(one) for one in READER.read_all(parts, sender())] == [
        Publish,
        Malformed,
        Malformed,
    ]


def test_mistakes_are_counted_among_sound_commands() -> None:
    someone = sender(3)
    parts = [b'{"op": "ping"}', b"{}", b'{"op": "publish", "subject": "/a/b"}', b'{"op": "ping"}']
    assert mistakes_in(READER.read_all(parts, someone)) == 2
    assert someone.mistakes == 5
    assert mistakes_in([Ping(), Malformed("c", "r"), Ping(), Malformed("c", "r")]) == 2


def test_bytes_that_are_not_of_the_encoding_are_told_so_in_one_line() -> None:
    for error in (
        RecursionError(),
        UnicodeDecodeError("utf-8", b"", 0, 1, "x"),
        ValueError("a\nb"),
    ):
        said = str(ill_formed(error, "JSON"))
        assert "JSON" in said
        assert "\n" not in said
