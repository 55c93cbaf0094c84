"""Scenarios of a cluster: text files of what happens, and of what its clients see of it.

A line that starts in the first column is an input, the indented ones below it are all that it
brings, in order. `#` begins a comment, an empty line is one too. History ids are named h1, h2, ...
and epochs e1, e2, ... as they come up; epoch 0 is 0.

    cluster MODE COUNT [NAME=VALUE...]           before anything else; started, and at rest
    run 2s                                       let time go by; every input takes 50 ms besides
    start M / kill M                             M is m1, m2, ...; what it held in memory is gone
    partition M / heal                           M loses its links, all are there again
    cut M N / join M N / lose M N                a link breaks, is back, swallows what M sends to N
    open M 1 [PUBLISHER]                         session 1 at M, connected
    M 1 > OP [SUBJECT...] [KEY=VALUE...]         its command, as in tests/core/scenario.py
    operate M ACTION [N]                         an operator's command
    coordinators SUBJECT...                      who coordinates them, as each member sees it
    ready                                        who serves no clients, and why
    cached SUBJECT...                            the last content of them at each member

    M 1 < UPDATE /a/b e1,3 "content"             what a session gets
"""

import re
import shlex
from collections.abc import Iterator

from mdserver.limits import NS_PER_MS as MS
from simulation.cluster import Cluster, Member
from tests.core.scenario import read_command, seconds, show

PAUSE = 50 * MS
HISTORY = re.compile(r"\b[0-9a-f]{16}(?:[0-9a-f]{12})?\b")
EPOCH = re.compile(
    r"(?<= )[1-9][0-9]*(?=,[0-9]+ \")|(?<=epoch=)[1-9][0-9]*|(?<=h[0-9]:)[1-9][0-9]*(?=,)"
)


class Play:
    """One scenario on its way."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.histories: dict[str, str] = {}
        self.epochs: dict[str, str] = {}
        self.read: dict[Member, int] = {}

    def input(self, line: str) -> Iterator[str]:
        words = [self.unnamed(word) for word in shlex.split(line)]
        if len(words) > 3 and words[2] == ">":
            command = read_command(words[3], words[4:])
            self.cluster.say(f"{words[0]}:1", int(words[1]), command)
            answer: list[str] = []
        else:
            answer = getattr(self, "do_" + words[0])(*words[1:]) or []
        self.cluster.run(PAUSE)
        yield from answer
        yield from self.told()

    def told(self) -> Iterator[str]:
        """What sessions got since the last time, member by member."""
        for name, member in self.cluster.members.items():
            read = self.read.get(member, 0)
            self.read[member] = len(member.said)
            for output in member.said[read:]:
                for line in show(output):
                    yield self.named(f"{short(name)} {line}")

    def named(self, line: str) -> str:
        def history(found: re.Match[str]) -> str:
            return self.histories.setdefault(found[0], f"h{len(self.histories) + 1}")

        def epoch(found: re.Match[str]) -> str:
            return self.epochs.setdefault(found[0], f"e{len(self.epochs) + 1}")

        return EPOCH.sub(epoch, HISTORY.sub(history, line))

    def unnamed(self, word: str) -> str:
        for given, name in (*self.histories.items(), *self.epochs.items()):
            word = re.sub(rf"(?<=[@:]){name}\b", given, word)
        return word

    def do_cluster(self, mode: str, count: str, *words: str) -> None:
        settings = {name: int(value) for name, _, value in (w.partition("=") for w in words)}
        self.cluster = Cluster(int(count), guaranteed=mode == "guaranteed", **settings)
        self.cluster.start()
        self.cluster.until(self.cluster.ready)
        self.cluster.run(seconds("3s"))

    def do_run(self, duration: str) -> None:
        self.cluster.run(seconds(duration))

    def do_start(self, *names: str) -> None:
        self.cluster.start(*[f"{name}:1" for name in names])

    def do_kill(self, name: str) -> None:
        self.cluster.kill(f"{name}:1")

    def do_partition(self, name: str) -> None:
        self.cluster.partition(f"{name}:1")

    def do_heal(self) -> None:
        self.cluster.heal()

    def do_cut(self, first: str, second: str) -> None:
        self.cluster.disconnect(f"{first}:1", f"{second}:1")

    def do_join(self, first: str, second: str) -> None:
        self.cluster.connect(f"{first}:1", f"{second}:1")

    def do_lose(self, source: str, target: str) -> None:
        self.cluster.loss.add((f"{source}:1", f"{target}:1"))

    def do_open(self, name: str, session: str, publisher: str | None = None) -> None:
        self.cluster.open(f"{name}:1", int(session), publisher)

    def do_operate(self, name: str, action: str, member: str = "") -> list[str]:
        answer = self.cluster.operate(f"{name}:1", action, f"{member}:1" if member else "")
        return [] if answer.refused is None else [f"refused: {answer.refused}"]

    def do_ready(self) -> list[str]:
        reasons = [(name, member.node.unready()) for name, member in self.cluster.members.items()]
        return [f"{short(name)}: {reason}" for name, reason in reasons if reason is not None]

    def do_coordinators(self, *subjects: str) -> list[str]:
        lines: list[str] = []
        for subject in subjects:
            group = self.cluster.group(subject)
            seen: dict[str, list[str]] = {}
            for name, member in self.cluster.members.items():
                view = member.node.group_statistics(group)
                who = short(view.coordinator) if view.active else "nobody"
                seen.setdefault(who, []).append(short(name))
            told = [f"{who} for {' '.join(names)}" for who, names in seen.items()]
            lines.append(f"{subject}: {', '.join(told)}")
        return lines

    def do_cached(self, *subjects: str) -> list[str]:
        lines: list[str] = []
        for subject in subjects:
            for name, member in self.cluster.members.items():
                for image in member.node.broker.export_group(self.cluster.group(subject)).subjects:
                    if image.subject == subject and image.snapshot is not None:
                        content = image.snapshot.publication.content.decode()
                        lines.append(f"{short(name)}: {subject} {content} {image.seq}")
        return lines


def short(name: str) -> str:
    """A member's name without its port."""
    return name.removesuffix(":1")
