"""`GET /statistics` of the monitor: all statistics, for programs and for people."""

from typing import Any

from mdserver.codec.http import Request
from mdserver.server.clients.exchange import Answer, Exchange
from mdserver.server.http.answers import Parameters, json_answer, text_answer
from mdserver.server.monitor.pages import FORMATS, aligned
from mdserver.server.monitor.statistics import Statistics

SHOWN = ("maximum", "average", "deviation")


class StatisticsPage:
    """The current statistics: JSON, or `?format=text`."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    async def __call__(self, request: Request, _exchange: Exchange) -> Answer:
        """Return all statistics; the values of windows without samples are zero."""
        parameters = Parameters(request, ("format",))
        parameters.check()
        document = self._statistics.document()
        if parameters.choice("format", FORMATS, False):
            return text_answer(text(document))
        return json_answer(document)


def text(document: dict[str, Any]) -> str:
    """Return a document of statistics as text for people."""
    lines = [f"{document['node']} now", *pairs(document["now"])]
    windows = document["windows"]
    width = max(map(len, windows)) + 2
    head = "".join(name.rjust(14) for name in SHOWN)
    for indicator, found in windows.items():
        unit = "" if indicator == "sessions" else " a second"
        lines += ["", f"{indicator}{unit}, over the last", "".ljust(width) + head]
        for window, one in found.items():
            if one["seconds"]:
                row = "".join(f"{one[name]:>14,.1f}" for name in SHOWN)
                lines.append(f"  {window.ljust(width - 2)}{row}")
    for title, values in (
        ("since the start", document["total"]),
        ("refused", document["refused"]),
        ("sessions that the server ended, by close code", document["closed"]),
        ("slow consumers", document["slow_consumers"]),
    ):
        lines += ["", title, *pairs(values)]
    if document["journal"] is not None:
        lines += ["", "journal", *(f"  {name}  {one}" for name, one in document["journal"].items())]
    if document["kafka"] is not None:
        lines += ["", "kafka", *kafka_lines(document["kafka"])]
    lines += ["", "latency in seconds"]
    for name, one in document["latency"].items():
        shown = "  ".join(f"{key} {value:g}" for key, value in one.items())
        lines.append(f"  {name.ljust(24)}{shown}")
    return "\n".join(lines) + "\n"


def kafka_lines(kafka: dict[str, Any]) -> list[str]:
    """Return the counts of Kafka, and a line a topic; partitions are in JSON alone."""
    counts = {name: value for name, value in kafka.items() if isinstance(value, int)}
    errors = {f"errors ({task})": count for task, count in kafka["errors"].items()}
    topics = [{"topic": name, **found} for name, found in kafka["topics"].items()]
    return [*pairs(counts | errors), *aligned(topics).splitlines()]


def pairs(values: dict[str, Any]) -> list[str]:
    """Return names and numbers in two columns."""
    width = max(map(len, values), default=0) + 2
    return [f"  {name.ljust(width)}{value:>16,}" for name, value in values.items()]
