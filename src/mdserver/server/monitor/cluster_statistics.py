"""The statistics of all members, and their sums, at any member (`GET /cluster/statistics`).

Each member publishes its statistics once an interval (`mdserver.server.monitor.push`), and every
other member keeps the latest report. A request is answered from these reports, without asking other
members, so it neither waits for them nor loads them; `age_ms` says how old each report is. A member
whose report is missing for some intervals is listed with the reason, and is not in the sums.
"""

from collections import Counter
from typing import Any

import msgspec
from attrs import frozen

from mdserver import limits
from mdserver.cluster.node import Node
from mdserver.codec.http import Request
from mdserver.core.outputs import Announced
from mdserver.limits import NS_PER_MS, NS_PER_S
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.clock import Clock
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.monitor.pages import FORMATS, aligned
from mdserver.server.monitor.push import Report, Row
from mdserver.server.monitor.statistics_page import pairs

Number = int | float
SUMMED = (
    "sessions",
    "connections",
    "subscriptions",
    "slow_consumers",
    "waiting_publications",
    "coordinated_groups",
    "behind_entries",
)
"""The gauges that can be summed. The others count things of which every member has a copy."""
COLUMNS = ("sessions", "subscriptions", "coordinated_groups", "behind_entries")
RATES = ("messages_in", "messages_out", "bytes_in", "bytes_out")


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a member's report that is kept; members of other versions may report more."""

    node: str
    time: int
    interval_ms: int
    unready: str | None
    now: dict[str, Number]
    total: dict[str, Number]
    rates: dict[str, Number]
    refused: dict[str, Number]
    elections_won: Number


@frozen
class Heard:
    """A report, and when it came (ns)."""

    report: MemberReport
    at: int


class ClusterStatistics:
    """The latest report of each member; `heard` has those of the other members."""

    def __init__(self, node: Node, own: Report, clock: Clock) -> None:
        self._node = node
        self._own = own
        self._clock = clock
        self.heard: dict[str, Heard] = {}

    def take(self, announced: Announced) -> None:
        """Keep the report of another member; ignore one that is too large or malformed."""
        content = announced.publications[-1].content
        if announced.member not in self._node.members.peers:
            return
        if len(content) > limits.REPORT_BYTES_MAX:
            return
        try:
            report = msgspec.json.decode(content, type=MemberReport)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self.heard[announced.member] = Heard(report, self._clock())

    def document(self) -> Row:
        """Return the reports of the members in sight, their sums, and why others are away."""
        now = self._clock()
        node = self._node
        # The report of a member that was removed from the cluster is dropped.
        self.heard = {
            name: heard for name, heard in self.heard.items() if name in node.members.peers
        }
        own = msgspec.convert(self._own.latest, MemberReport)
        found = {self._own.member: Heard(own, own.time * NS_PER_MS), **self.heard}
        others = [*node.members.listed, *node.members.peers]
        away = {}
        for name in dict.fromkeys(others):
            reason = self._away(name, found.get(name), now)
            if reason is not None and name != self._own.member:
                away[name] = reason
                found.pop(name, None)
        rows = {
            name: {
                "age_ms": max(now - heard.at, 0) // NS_PER_MS,
                **msgspec.to_builtins(heard.report),
            }
            for name, heard in sorted(found.items())
        }
        return {
            "time": now // NS_PER_MS,
            "member": self._own.member,
            "members": rows,
            "away": away,
            "sum": sums([heard.report for heard in found.values()]),
        }

    def _away(self, name: str, heard: Heard | None, now: int) -> str | None:
        """Return why a member is not in the sums, None if it is in them."""
        if name not in self._node.outgoing.linked:
            return "There is no link to it."
        if heard is None:
            return "It has said nothing of itself yet: is PUSH in its `Monitor`?"
        silent = now - heard.at
        if silent > limits.PUSH_MISSED_MAX * max(heard.report.interval_ms, 1000) * NS_PER_MS:
            return f"It has said nothing of itself for {silent // NS_PER_S} s."
        return None


def sums(reports: list[MemberReport]) -> Row:
    """Return the sums over members, and how many there are."""
    refused: Counter[str] = Counter()
    for report in reports:
        refused.update({reason: int(count) for reason, count in report.refused.items()})
    return {
        "members": len(reports),
        "now": {name: sum(one.now.get(name, 0) for one in reports) for name in SUMMED},
        "total": _sum([one.total for one in reports]),
        "rates": {
            name: round(value, 3) for name, value in _sum([one.rates for one in reports]).items()
        },
        "refused": dict(sorted(refused.items())),
        "elections_won": sum(one.elections_won for one in reports),
    }


def _sum(counted: list[dict[str, Number]]) -> dict[str, Number]:
    names = dict.fromkeys(name for one in counted for name in one)
    return {name: sum(one.get(name, 0) for one in counted) for name in names}


class ClusterStatisticsPage:
    """`GET /cluster/statistics`: JSON, or `?format=text`."""

    def __init__(self, statistics: ClusterStatistics) -> None:
        self._statistics = statistics

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return the statistics of all members and their sums."""
        asked = Parameters(request, ("format",))
        asked.check()
        document = self._statistics.document()
        if asked.choice("format", FORMATS, False):
            return text_answer(text(document))
        return json_answer(document)


def text(document: dict[str, Any]) -> str:
    """Return the statistics of a cluster as text for people."""
    rows = [
        {
            "member": name,
            "node": one["node"],
            "age_ms": one["age_ms"],
            **{column: one["now"].get(column, 0) for column in COLUMNS},
            **{f"{rate}/s": round(one["rates"].get(rate, 0)) for rate in RATES},
        }
        for name, one in document["members"].items()
    ]
    total = document["sum"]
    lines = [aligned(rows)]
    lines += [f"away: {name}: {reason}" for name, reason in document["away"].items()]
    for title, values in (
        ("all of them now", total["now"]),
        ("a second", total["rates"]),
        ("since their starts", total["total"]),
        ("refused", total["refused"]),
    ):
        lines += ["", title, *pairs(values)]
    return "\n".join(lines) + "\n"
