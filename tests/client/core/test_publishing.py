"""Publications: numbers, results, repeats; exactly once against a small model of the server."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.client.core.values import Numbering
from mdserver.core.commands import Publish
from mdserver.core.events import StatusName
from mdserver.core.message import Qos
from mdserver.errors import LocalProtocolError

GROUPS = 4


def group(subject: str) -> int:
    return zlib.crc32(subject.encode()) % GROUPS


def publish(it: Any, subject: str = "/a/b", content: str = "x", **keys: Any) -> int:
    publication, outputs = it.core.publish(Publish(subject=subject, content=content, **keys))
    it.take(outputs)
    return int(publication)


def published(it: Any) -> list[tuple[int, int | None]]:
    return [(c["id"], c.get("number")) for c in it.spoken() if c["op"] == "publish"]


def answer(it: Any, publication: int, status: str = "PUBLISH_OK", **keys: Any) -> None:
    it.hear({"op": "status", "status": status, "id": publication} | keys)


def test_numbers_count_within_a_group(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect(groups=GROUPS)
    subjects = ["/a/1", "/a/2", "/a/3", "/a/4", "/a/5", "/a/6"]
    it.spoken()
    for subject in subjects:
        publish(it, subject)
    seen: dict[int, int] = {}
    for subject, (_, number) in zip(subjects, published(it), strict=True):
        seen[group(subject)] = seen.get(group(subject), 0) + 1
        assert number == seen[group(subject)]
    assert len(seen) > 1


def test_a_result_carries_the_position(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    publication = publish(it, closure="c")
    it.told()
    answer(it, publication, epoch=2, seq=9, closure="c", subject="/a/b")
    result = it.results[publication]
    assert (result.status, result.epoch, result.seq) == (StatusName.PUBLISH_OK, 2, 9)
    assert it.notices[-1].closure == "c"
    assert it.notices[-1].position.seq == 9
    assert it.told() == ["PUBLISH_OK"]
    assert it.core.publications_waiting == 0


def test_without_a_publisher_nothing_is_numbered(stage: Any) -> None:
    it = stage()
    it.connect()
    first = publish(it)
    assert published(it) == [(first, None)]
    it.lose()
    it.wait("attempt")
    it.greet()
    assert published(it) == [(first, None)], "at least once"
    answer(it, first, "PUBLISH_FAILED", certain=False, reason="time-out")
    assert it.results[first].certain is False


def test_standard_messages_are_sent_at_most_once(stage: Any) -> None:
    it = stage(publisher="p")
    early = publish(it, qos=Qos.STANDARD)
    it.connect()
    assert published(it) == [(early, None)]
    it.lose()
    assert it.results[early].status is StatusName.PUBLISH_FAILED
    assert it.results[early].certain is False
    it.wait("attempt")
    it.greet()
    assert published(it) == []


def test_what_has_no_result_is_sent_again_with_its_number(stage: Any) -> None:
    it = stage(publisher="p")
    first = publish(it)
    it.connect()
    second, third = publish(it), publish(it)
    assert published(it) == [(first, 1), (second, 2), (third, 3)]
    answer(it, first)
    it.lose()
    fourth = publish(it)
    it.wait("attempt")
    it.greet()
    assert published(it) == [(second, 2), (third, 3), (fourth, 4)]
    answer(it, second, duplicate=True)
    assert it.results[second].duplicate is True


IDENTITY = {"publisher": "~1/p", "publisher_key": "k1"}


def test_the_identity_is_shown_at_the_next_connection(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect(**IDENTITY)
    first = it.spoken()[0]
    assert (first["publisher"], "publisher_key" in first) == ("p", False)
    assert it.core.numbering == Numbering(4, {}, "~1/p", "k1")
    it.lose()
    it.wait("attempt")
    it.greet(**IDENTITY)
    again = it.spoken()[0]
    assert (again["publisher"], again["publisher_key"]) == ("~1/p", "k1")


@pytest.mark.parametrize("history", ["h1", "h2"])
def test_another_identity_begins_at_one(stage: Any, history: str) -> None:
    it = stage(publisher="p")
    it.connect(**IDENTITY)
    answer(it, publish(it))
    unsure = publish(it)
    it.lose()
    unsent = publish(it)
    it.wait("attempt")
    it.spoken()
    it.greet(history=history, publisher="~2/p", publisher_key="k2")
    if history == "h1":
        # It may be there, and the server would not know it again.
        assert it.results[unsure].certain is False
        assert published(it) == [(unsent, 1)]
    else:
        assert published(it) == [(unsure, 1), (unsent, 2)]
    assert it.core.numbering == Numbering(4, {zlib.crc32(b"/a/b") % 4: 0}, "~2/p", "k2")


def test_a_run_goes_on_under_the_identity_of_an_earlier_one(stage: Any) -> None:
    kept = Numbering(GROUPS, {group("/a/b"): 7}, **IDENTITY)
    for named in ({}, {"publisher": "another"}):
        it = stage(numbering=kept, **named)
        it.connect(groups=GROUPS, **IDENTITY)
        [connect] = it.spoken()
        assert (connect["publisher"], connect["publisher_key"]) == ("~1/p", "k1")
        assert published_number(it) == 8
        it = stage(numbering=kept, **named)
        it.connect(groups=GROUPS, publisher="~2/p", publisher_key="k2")
        it.spoken()
        assert published_number(it) == 1
    it = stage(publisher="~1/p", publisher_key="k1")
    it.connect(groups=GROUPS, **IDENTITY)
    assert it.spoken()[0]["publisher_key"] == "k1"


def published_number(it: Any) -> int | None:
    publish(it)
    [(_, number)] = published(it)
    return number


@pytest.mark.parametrize(
    ("status", "keys"),
    [
        ("PUBLISH_DENIED", {}),
        ("MESSAGE_SIZE_LIMIT_EXCEEDED", {}),
        ("PUBLISH_FAILED", {"certain": True}),
    ],
)
def test_a_refused_number_is_given_to_the_next(
    stage: Any, status: str, keys: dict[str, Any]
) -> None:
    it = stage(publisher="p")
    it.connect()
    first, second, third = publish(it), publish(it), publish(it)
    it.spoken()
    answer(it, first, status, reason="no", **keys)
    fourth = publish(it)
    assert published(it) == [], "held until all in flight is answered"
    answer(it, second, "PUBLISH_FAILED", certain=True, expected=1)
    answer(it, third, "PUBLISH_FAILED", certain=True, expected=1)
    assert published(it) == [(second, 1), (third, 2), (fourth, 3)]
    assert it.results[first].status.name == status
    assert it.results[first].reason == "no"
    assert it.results[first].certain is True
    assert second not in it.results


def test_a_command_that_was_not_understood_fails_its_publication(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    first = publish(it, "nonsense")
    it.hear({"op": "error", "code": "invalid-subject", "reason": "no slash", "id": first})
    assert it.results[first].status is StatusName.PUBLISH_FAILED
    assert it.results[first].reason == "no slash"
    it.spoken()
    second = publish(it, "nonsense")
    assert published(it) == [(second, 1)]


def test_what_nobody_knows_keeps_its_number_and_is_repeated(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    first, second = publish(it), publish(it)
    it.spoken()
    answer(it, first, "PUBLISH_FAILED", certain=False)
    answer(it, second)
    assert published(it) == []
    it.wait("publish")
    assert published(it) == [(first, 1)]
    answer(it, first, "PUBLISH_FAILED", certain=True, reason="no quorum")
    assert first not in it.results, "it says nothing of the first attempt"
    it.wait("publish")
    answer(it, first)
    assert it.results[first].status is StatusName.PUBLISH_OK
    it.spoken()
    third = publish(it)
    assert published(it) == [(third, 3)]


def test_a_publisher_that_was_forgotten_counts_from_one(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    first = publish(it)
    answer(it, first)
    it.spoken()
    second, third = publish(it), publish(it)
    assert published(it) == [(second, 2), (third, 3)]
    for publication in (second, third):
        answer(it, publication, "PUBLISH_FAILED", certain=True, expected=1)
    assert published(it) == [(second, 1), (third, 2)]


def test_gaps_without_end_do_not_spin(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    first = publish(it)
    answer(it, first, "PUBLISH_FAILED", certain=True, expected=1)
    answer(it, first, "PUBLISH_FAILED", certain=True, expected=1)
    it.spoken()
    assert 0.25 <= it.wait("publish") <= 0.5
    assert published(it) == [(first, 1)]


def test_a_message_too_large_is_refused_without_being_sent(stage: Any) -> None:
    it = stage(publisher="p")
    early = publish(it, content="x" * 1001)
    fine = publish(it, content="x" * 1000)
    it.connect(message_bytes_max=1000)
    late = publish(it, content="é" * 499, fields={"é": "1"})
    assert published(it) == [(fine, 1)]
    for publication, size in ((early, 1001), (late, 1001)):
        result = it.results[publication]
        assert result.status is StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED
        assert f"{size} bytes" in result.reason
        assert result.certain is True


def test_only_so_many_wait_for_a_result(stage: Any) -> None:
    it = stage(publisher="p", publications_max=3)
    for _ in range(3):
        publish(it)
    with pytest.raises(LocalProtocolError, match="wait for one"):
        publish(it)


def test_disconnecting_fails_what_has_no_result(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    sent = publish(it)
    it.lose()
    unsent = publish(it)
    it.take(it.core.disconnect())
    assert (it.results[sent].certain, it.results[unsent].certain) == (False, True)
    it.connect()
    it.spoken()
    later = publish(it)
    assert published(it) == [(later, 2)], "number 1 may be taken"
    answer(it, later, "PUBLISH_FAILED", certain=True, expected=1)
    assert published(it) == [(later, 1)]


def test_a_stopped_client_takes_no_publications(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect()
    it.lose(4101)
    publication = publish(it)
    assert it.results[publication].status is StatusName.PUBLISH_FAILED
    assert it.results[publication].certain is True


def test_another_cluster_with_other_groups_is_numbered_anew(stage: Any) -> None:
    it = stage(publisher="p")
    it.connect(groups=4)
    first = publish(it)
    answer(it, first)
    second = publish(it)
    it.lose()
    it.wait("attempt")
    it.spoken()
    it.greet(groups=8, history="h2")
    assert published(it) == [(second, 1)]


class ModelServer:
    """The dedupe rules of the protocol, for one publisher; knows what it took, in order."""

    def __init__(self) -> None:
        self.taken: dict[int, list[str]] = {}

    def handle(self, command: dict[str, Any], fate: str) -> dict[str, Any]:
        """The answer; `fate` says what else happens to the publication."""
        status = {"op": "status", "id": command["id"], "subject": command["subject"]}
        if fate in NOT_TAKEN:
            return status | NOT_TAKEN[fate]
        answer = self.number(command)
        if fate == "lost after":
            answer = NOT_TAKEN["lost before"]
        return status | answer

    def number(self, command: dict[str, Any]) -> dict[str, Any]:
        log = self.taken.setdefault(group(command["subject"]), [])
        number = command["number"]
        if number > len(log) + 1:
            return {"status": "PUBLISH_FAILED", "certain": True, "expected": len(log) + 1}
        duplicate = number <= len(log)
        if not duplicate:
            log.append(command["content"])
        return {"status": "PUBLISH_OK", "duplicate": duplicate, "epoch": 1, "seq": number}


NOT_TAKEN: dict[str, dict[str, Any]] = {
    "denied": {"status": "PUBLISH_DENIED", "reason": "no"},
    "refused": {"status": "PUBLISH_FAILED", "certain": True, "reason": "busy"},
    "lost before": {"status": "PUBLISH_FAILED", "certain": False},
}
FATES = ["ok"] * 6 + ["lost after", *NOT_TAKEN]


class Run:
    """A client, the model server, and what is on the way between them."""

    def __init__(self, it: Any) -> None:
        self.it = it
        self.server = ModelServer()
        self.wire: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.contents: dict[int, str] = {}
        it.connect(groups=GROUPS)

    def publish(self, subject: str) -> None:
        content = f"message {len(self.contents)}"
        self.contents[publish(self.it, subject, content)] = content

    def serve(self, fate: str) -> None:
        self.wire += [c for c in self.it.spoken() if c["op"] == "publish"]
        if self.wire:
            self.answers.append(self.server.handle(self.wire.pop(0), fate))

    def hear(self, count: int) -> None:
        for event in self.answers[:count]:
            self.it.hear(event)
        del self.answers[:count]

    def lose(self, _: None) -> None:
        self.wire, self.answers = [], []
        self.it.lose()
        self.it.spoken()
        self.it.wait("attempt")
        self.it.greet(groups=GROUPS)

    def finish(self) -> None:
        """All is well from now on, so everything must come to its result."""
        for _ in range(500):
            if not self.it.core.publications_waiting:
                return
            self.serve("ok")
            self.hear(5)
            if "publish" in self.it.timers:
                self.it.wait("publish")
        pytest.fail("some publications never get a result")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["/a/1", "/a/2", "/a/3"])),
        st.tuples(st.just("serve"), st.sampled_from(FATES)),
        st.tuples(st.just("hear"), st.integers(1, 5)),
        st.tuples(st.just("lose"), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_exactly_once_and_in_order(stage: Callable[..., Any], steps: list[tuple[str, Any]]) -> None:
    run = Run(stage(publisher="p"))
    for step, value in steps:
        getattr(run, step)(value)
    run.finish()
    results = run.it.results
    taken = [content for log in run.server.taken.values() for content in log]
    assert set(results) == set(run.contents), "each publication has its result"
    assert len(taken) == len(set(taken)), "none is taken twice"
    for publication, content in run.contents.items():
        if results[publication].status is StatusName.PUBLISH_OK:
            assert content in taken
        elif results[publication].certain:
            assert content not in taken
    for log in run.server.taken.values():
        assert log == sorted(log, key=lambda content: int(content.split()[1]))
