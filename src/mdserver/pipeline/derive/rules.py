"""The rules file of the job `derive`: which subjects to watch, when to publish, and where.

A rule watches the subjects that match `from` and publishes to `to`. `{0}`, `{1}`... in `to`,
`group` and `message` stand for the segments of the subject that came in. docs/rules.md has an
example of every kind. Mistakes are reported with file and line, before Spark starts: the file is
read as YAML nodes, which know their lines, and not as values.
"""

import graphlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from attrs import field, frozen

from mdserver.core.subjects import Pattern, parse_interest, segments_of, validate_subject
from mdserver.errors import InvalidSubjectError
from mdserver.pipeline.common.requirements import PipelineError

PLACEHOLDER = re.compile(r"\{(\w+)\}")
RULES_MAX = 1_000
FUNCTIONS = ("avg", "count", "max", "min", "rate")


@frozen
class Rule:
    """One rule of the file.

    `subject` is the text of `from`, and `pattern` is None if that is a plain subject. `value` names
    the field that holds the value; "content" stands for the content itself. Without a `group` each
    subject is a group by itself. `options` holds the keys of the kind, checked and with their
    types.
    """

    name: str
    kind: str
    pattern: Pattern | None
    subject: str
    to: str
    value: str
    group: str | None
    message: str | None
    options: Mapping[str, Any] = field(factory=dict)

    def watches(self, subject: str) -> bool:
        """Return whether the rule is about this subject."""
        if self.pattern is None:
            return subject == self.subject
        return self.pattern.matches(segments_of(subject))

    @property
    def stateless(self) -> bool:
        """Whether each message is judged by itself."""
        return self.kind == "last" or (self.kind == "threshold" and self.options["clear"] is None)

    def target(self, subject: str) -> str:
        """Return the subject to which the rule publishes for a message of this subject."""
        return fill(self.to, subject, {})

    def group_of(self, subject: str) -> str:
        """Return the name of the group to which this subject belongs."""
        return subject if self.group is None else fill(self.group, subject, {})


class _MistakeError(Exception):
    """A mistake in the file, with its line, counted from 1."""

    def __init__(self, node: yaml.Node, text: str) -> None:
        super().__init__(text)
        self.line = node.start_mark.line + 1


def fill(template: str, subject: str, values: Mapping[str, str]) -> str:
    """Return the template with segments and values in place of their names.

    A segment that the subject lacks, and a value that is not given, are replaced by nothing.
    """
    segments = segments_of(subject)

    def of(match: re.Match[str]) -> str:
        name = match[1]
        if name.isdigit():
            return segments[int(name)] if int(name) < len(segments) else ""
        return values.get(name, "")

    return PLACEHOLDER.sub(of, template)


def load(path: Path) -> list[Rule]:
    """Return the rules of a file. Raises PipelineError with file and line of the first mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from error
    try:
        return _rules(yaml.compose(text, Loader=yaml.SafeLoader))
    except _MistakeError as mistake:
        raise PipelineError(f"{path}:{mistake.line}: {mistake}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PipelineError(f"{path}:{line}: {error.problem}") from None


def _rules(root: yaml.Node | None) -> list[Rule]:
    """Return the rules of a file's root node, checked one by one and then together."""
    if root is None:
        raise PipelineError("the rules file is empty: it needs a list `rules`")
    top = _mapping(root)
    listed = top.get("rules")
    if listed is None or set(top) != {"rules"}:
        raise _MistakeError(root, "the file holds one key, `rules`: a list of rules")
    if not isinstance(listed, yaml.SequenceNode) or not listed.value:
        raise _MistakeError(listed, "`rules` is a list with at least one rule")
    if len(listed.value) > RULES_MAX:
        raise _MistakeError(listed, f"more than {RULES_MAX} rules")
    rules: dict[str, Rule] = {}
    for node in listed.value:
        rule = _rule(node)
        if rule.name in rules:
            raise _MistakeError(node, f"a second rule is named {rule.name!r}")
        rules[rule.name] = rule
    loop = _loop(list(rules.values()))
    if loop:
        raise _MistakeError(listed, f"rules feed each other for ever: {' -> '.join(loop)}")
    return list(rules.values())


def _loop(rules: list[Rule]) -> list[str]:
    """Return the names of a circle of rules, each of which watches what the one before publishes.

    Without a circle the list is empty. A circle would publish without end, since each message that
    a rule publishes comes back in the journal.
    """
    feeds = {
        rule.name: [other.name for other in rules if _reach(rule).meets(_watched(other))]
        for rule in rules
    }
    try:
        graphlib.TopologicalSorter(feeds).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _reach(rule: Rule) -> Pattern:
    """Return a pattern of all subjects to which the rule may publish."""
    return Pattern(rule.to, ["*" if "{" in part else part for part in segments_of(rule.to)])


def _watched(rule: Rule) -> Pattern:
    return rule.pattern or Pattern(rule.subject, segments_of(rule.subject))


def _rule(node: yaml.Node) -> Rule:
    """Return the rule of a node. Raises _MistakeError with the line of the first mistake."""
    keys = _mapping(node)
    for name in ("name", "from", "to", "kind"):
        if name not in keys:
            raise _MistakeError(node, f"the rule lacks `{name}`")
    kind = _text(keys["kind"])
    if kind not in KINDS:
        raise _MistakeError(
            keys["kind"], f"unknown kind {kind!r}; known are {', '.join(sorted(KINDS))}"
        )
    options = KINDS[kind]
    known = {"name", "from", "to", "kind", "value", "group", "message", *options}
    for name in keys:
        if name not in known:
            raise _MistakeError(
                keys[name], f"{kind} has no `{name}`; it has {', '.join(sorted(known))}"
            )
    watched = _text(keys["from"])
    try:
        pattern = parse_interest(watched)
    except InvalidSubjectError as error:
        raise _MistakeError(keys["from"], str(error)) from None
    subjects = len(segments_of(watched))
    values = {name: read(keys.get(name), node, name) for name, read in options.items()}
    if values.get("clear") is not None and values["clear"] > values["above"]:
        raise _MistakeError(
            keys["clear"], f"`clear` is at most `above`, which is {values['above']:g}"
        )
    return Rule(
        name=_text(keys["name"]),
        kind=kind,
        pattern=pattern,
        subject=watched,
        to=_target(keys["to"], subjects, pattern),
        value=_text(keys["value"]) if "value" in keys else "content",
        group=_text(keys["group"]) if "group" in keys else None,
        message=_text(keys["message"]) if "message" in keys else None,
        options=values,
    )


def _target(node: yaml.Node, segments: int, pattern: Pattern | None) -> str:
    """Return the text of `to`, checked against `from`, which has so many segments."""
    to = _text(node)
    for name in PLACEHOLDER.findall(to):
        if not name.isdigit():
            raise _MistakeError(node, f"{{{name}}} in `to`: only numbers of segments stand there")
        # A pattern that ends with `**` may match subjects with more segments than it has.
        if int(name) >= segments and not (pattern and pattern.rest):
            raise _MistakeError(
                node, f"{{{name}}} in `to`: the subject has {segments} segments, from 0"
            )
    try:
        validate_subject(PLACEHOLDER.sub("x", to))
    except InvalidSubjectError as error:
        raise _MistakeError(node, str(error)) from None
    return to


def _mapping(node: yaml.Node) -> dict[str, yaml.Node]:
    """Return the values of a mapping as nodes; a key that occurs twice is a mistake."""
    if not isinstance(node, yaml.MappingNode):
        raise _MistakeError(node, "here stands a mapping: `key: value` lines")
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if key.value in found:
            raise _MistakeError(key, f"`{key.value}` stands here twice")
        found[key.value] = value
    return found


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        raise _MistakeError(node, "here stands one text")
    return str(node.value)


Read = Callable[[yaml.Node | None, yaml.Node, str], Any]
"""Checks an option and returns its value. It takes the option's node, None if the rule lacks it,
then the rule's node, which gives the line of a missing option, and the option's name."""


def _number(default: float | None = None, *, least: float | None = None) -> Read:
    """Return a reader of a number of at least `least`; without a `default` it is required."""

    def read(node: yaml.Node | None, rule: yaml.Node, name: str) -> float:
        if node is None:
            if default is None:
                raise _MistakeError(rule, f"the rule lacks `{name}`, a number")
            return default
        try:
            number = float(_text(node))
        except ValueError:
            raise _MistakeError(node, f"`{name}` is a number, not {node.value!r}") from None
        if least is not None and number < least:
            raise _MistakeError(node, f"`{name}` is at least {least:g}")
        return number

    return read


def _optional(read: Read) -> Read:
    """Return a reader of an option that may be missing, and is None then."""
    return lambda node, rule, name: None if node is None else read(node, rule, name)


def _one_of(*allowed: str) -> Read:
    """Return a reader of a text that must be one of these."""

    def read(node: yaml.Node | None, rule: yaml.Node, name: str) -> str:
        if node is None or _text(node) not in allowed:
            raise _MistakeError(node or rule, f"`{name}` is one of {', '.join(allowed)}")
        return _text(node)

    return read


def _points(node: yaml.Node | None, rule: yaml.Node, name: str) -> tuple[tuple[float, float], ...]:
    """Return the points of an area; a reader of an option."""
    if not isinstance(node, yaml.SequenceNode) or len(node.value) < 3:
        raise _MistakeError(node or rule, f"`{name}` is a list of at least three [x, y] points")
    points = []
    for point in node.value:
        if not isinstance(point, yaml.SequenceNode) or len(point.value) != 2:
            raise _MistakeError(point, f"a point of `{name}` is [x, y]")
        x, y = (_number()(part, rule, name) for part in point.value)
        points.append((x, y))
    return tuple(points)


KINDS: dict[str, dict[str, Read]] = {
    "last": {},
    "threshold": {"above": _number(), "clear": _optional(_number())},
    "window": {"function": _one_of(*FUNCTIONS), "seconds": _number(least=0.1)},
    "ohlc": {"seconds": _number(least=0.1)},
    "top": {"count": _number(least=1), "seconds": _number(least=0.1)},
    "stale": {"seconds": _number(least=0.1)},
    "geofence": {"area": _points},
}
