"""Publications: numbers, results, repeats; exactly once against a small model of the server."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdserver.core.commands import Publish
from mdserver.core.events import StatusName
from mdserver.core.publishers import counted

GROUPS = 4


def group(subject: str) -> int:
    return zlib.crc32(subject.encode()) % GROUPS


def publish(it: Any, subject: str = "/a/b", content: str = "x", **keys: Any) -> int:
    publication, outputs = it.core.publish(Publish(subject=subject, content=content, **keys))
    it.take(outputs)
    return int(publication)


class ModelServer:
    """The dedupe rules of the protocol, for one publisher; knows what it took, in order."""

    def __init__(self) -> None:
        self.taken: dict[int, list[str]] = {}
        self.counts: dict[tuple[int, str], int] = {}

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
        name, number = counted("", command["number"])
        series = (group(command["subject"]), name)
        last = self.counts.setdefault(series, 0)
        if number > last + 1:
            expected = command["number"] - number + last + 1
            return {"status": "PUBLISH_FAILED", "certain": True, "expected": expected}
        duplicate = number <= last
        if not duplicate:
            log.append(command["content"])
            self.counts[series] = number
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
