"""The statistics as MBeans: the names and attributes under which JMX tools see a server.

Names are `mdserver:type=...`. The attributes have the names of the statistics in camel case
(`messages_in` is `MessagesIn`), except that reasons of refusals and close codes keep their form.
All attributes are read-only, and none is None, which has no Java type.
"""

from typing import Any

from mdserver import __version__
from mdserver.server.monitor.statistics import Statistics

Value = int | float | str | bool | None
Beans = dict[str, dict[str, Value]]
DOMAIN = "mdserver"
TYPES = {bool: "boolean", int: "long", float: "double", str: "java.lang.String"}


def mbeans(statistics: Statistics, unready: str | None) -> Beans:
    """Return the attributes of each MBean, by its name."""
    document = statistics.document()
    beans: Beans = {
        f"{DOMAIN}:type=Server": {
            "Node": document["node"],
            "Version": __version__,
            "Time": document["time"],
            "Ready": unready is None,
            "Unready": unready or "",
            "ElectionsWon": document["elections_won"],
        },
        f"{DOMAIN}:type=Now": camel(document["now"]),
        f"{DOMAIN}:type=Total": camel(document["total"]),
        f"{DOMAIN}:type=Refused": dict(document["refused"]),
        f"{DOMAIN}:type=Closed": dict(document["closed"]),
        f"{DOMAIN}:type=SlowConsumers": camel(document["slow_consumers"]),
    }
    if document["journal"] is not None:
        journal = document["journal"]
        beans[f"{DOMAIN}:type=Journal"] = camel({**journal, "trouble": journal["trouble"] or ""})
    if document["kafka"] is not None:
        beans |= kafka_beans(document["kafka"])
    for name, found in document["latency"].items():
        beans[f"{DOMAIN}:type=Latency,name={name}"] = camel(found)
    for indicator, windows in document["windows"].items():
        for window, found in windows.items():
            name = f"{DOMAIN}:type=Window,indicator={indicator},window={window}"
            beans[name] = camel(found)
    return beans


def kafka_beans(kafka: dict[str, Any]) -> Beans:
    """Return an MBean with the counts of Kafka, and one a topic."""
    counts = {name: value for name, value in kafka.items() if isinstance(value, int)}
    errors = {f"errors_{task}": count for task, count in kafka["errors"].items()}
    topics = {
        f"{DOMAIN}:type=KafkaTopic,name={topic}": camel(found)
        for topic, found in kafka["topics"].items()
    }
    return {f"{DOMAIN}:type=Kafka": camel(counts | errors), **topics}


def camel(values: dict[str, Any]) -> dict[str, Value]:
    """Return values under names in camel case: `p99.9_s` becomes `P99_9S`."""
    return {
        "".join(word[:1].upper() + word[1:] for word in name.split("_")).replace(".", "_"): value
        for name, value in values.items()
    }


def properties(name: str) -> dict[str, str]:
    """Return the keys and values in the name of an MBean; names here have no quoted values."""
    return dict(part.split("=", 1) for part in name.partition(":")[2].split(","))


def type_of(value: Value) -> str:
    """Return the Java type of an attribute."""
    return TYPES[type(value)]
