"""What the monitors show of Kafka, if it is the log: counts, and the lag of each topic.

A topic may have hundreds of partitions, and each time series and each message has its price. So
everything but `/statistics` shows the lag of a topic: the sum over its partitions, and the largest
of one, which tells one partition that stands still from all of them being a little behind.
"""

from collections.abc import Mapping
from typing import Any

from mdserver.limits import KAFKA_TOPICS_SHOWN_MAX

Counts = Mapping[str, Any]
OTHERS = "(others)"
"""Stands for the topics beyond the number that is shown; no topic of Kafka can have this name."""


def lag_by_topic(lag: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the lag of each topic, by its name, from that of each partition (`topic/number`)."""
    found: dict[str, dict[str, int]] = {}
    names = dict.fromkeys(sorted(one.rpartition("/")[0] for one in lag))
    shown = set(list(names)[:KAFKA_TOPICS_SHOWN_MAX])
    for partition, behind in sorted(lag.items()):
        name = partition.rpartition("/")[0]
        topic = found.setdefault(
            name if name in shown else OTHERS, {"partitions": 0, "lag": 0, "lag_max": 0}
        )
        topic["partitions"] += 1
        topic["lag"] += behind
        topic["lag_max"] = max(topic["lag_max"], behind)
    return found


def summary(counts: Counts) -> dict[str, Any]:
    """Return the counts of the engine, with the lag of each topic instead of each partition."""
    kept = {name: value for name, value in counts.items() if name != "lag"}
    return {**kept, "topics": lag_by_topic(counts["lag"])}
