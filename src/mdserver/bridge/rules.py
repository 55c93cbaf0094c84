"""Which record becomes which message, and which message becomes which record: rules without I/O.

A rule names where something comes from and, as a template, where it goes to:

    vehicles=/fleet/{key}           each record of the topic `vehicles`, by its key
    /orders/**=orders:{rest}        each message of the pattern, to the topic `orders`, by this key

What the bridge has copied itself is not copied back: its records have the header `md-bridge`, and
its messages a closure that begins with `kafka:`.
"""

import re
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from mdserver.cluster.kafka_records import (
    Headers,
    KafkaRecord,
    KeyPlace,
    PoisonError,
    ProducedRecord,
    publication,
    record_of,
)
from mdserver.core.message import Publication
from mdserver.core.subjects import (
    Pattern,
    parse_interest,
    segments_of,
    validate_subject,
)
from mdserver.errors import InvalidSubjectError, MdserverError
from mdserver.limits import FIELDS_MAX

BRIDGE = "md-bridge"
"""The header of records that a bridge wrote: its name."""
CLOSURE = "kafka:"
"""The beginning of the closures of messages that a bridge published."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_INTERNAL = "__"  # the beginning of the names of topics in which brokers keep their own state
_OF_RECORDS = ("topic", "key", "partition")


def bridge_name(text: str) -> str:
    """Read the name of a bridge, which begins keys and identifiers in Kafka. Raises RuleError."""
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f]+", text) or not text.isprintable():
        raise RuleError(f"--name {text!r}: expected a name without spaces or control characters")
    return text


class RuleError(MdserverError):
    """A rule cannot be read; the message says what is wrong and what would be right."""


@frozen
class ToSubjects:
    """Copies the records of a topic to subjects; `subject` is a template."""

    topic: str
    subject: str


@frozen
class ToTopics:
    """Copies the messages of a subject or pattern to a topic; `topic` and `key` are templates."""

    interest: str
    pattern: Pattern | None
    topic: str
    key: str


def to_subjects(text: str) -> ToSubjects:
    """Read `TOPIC=SUBJECT`. Raises RuleError."""
    topic, equals, subject = text.partition("=")
    if not equals or not _TOPIC.fullmatch(topic) or not subject.startswith("/"):
        raise RuleError(f"{text}: expected TOPIC=SUBJECT, such as vehicles=/fleet/{{key}}")
    for name in _PLACEHOLDER.findall(subject):
        if name not in _OF_RECORDS and not name.startswith("header:"):
            raise RuleError(
                f"{text}: {{{name}}} is unknown: there are {{topic}}, {{key}}, {{partition}} and "
                "{header:NAME}"
            )
    return ToSubjects(topic, subject)


def to_topics(text: str) -> ToTopics:
    """Read `INTEREST=TOPIC` or `INTEREST=TOPIC:KEY`. Raises RuleError."""
    interest, equals, to = text.partition("=")
    topic, colon, key = to.partition(":")
    if not equals or not _TOPIC.fullmatch(_PLACEHOLDER.sub("x", topic)):
        raise RuleError(f"{text}: expected PATTERN=TOPIC:KEY, such as /orders/**=orders:{{rest}}")
    try:
        pattern = parse_interest(interest)
    except InvalidSubjectError as error:
        raise RuleError(f"{text}: {error}") from None
    for name in _PLACEHOLDER.findall(to):
        if name not in ("subject", "rest") and not name.isdigit() and not name.startswith("field:"):
            raise RuleError(
                f"{text}: {{{name}}} is unknown: there are {{subject}}, {{rest}}, {{0}}, {{1}}... "
                "and {field:NAME}"
            )
    return ToTopics(interest, pattern, topic, key if colon else "{rest}")


def conditions(texts: Iterable[str]) -> dict[str, str]:
    """Read `NAME=VALUE` of fields or headers. Raises RuleError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise RuleError(f"{text}: expected NAME=VALUE, such as status=new")
        found[name] = value
    return found


@frozen
class Rules:
    """All rules of a bridge; what is copied has each field of `where`.

    `state_topic`: where the bridge keeps what was copied, so no message may be copied there.
    """

    name: str
    subjects: tuple[ToSubjects, ...] = ()
    topics: tuple[ToTopics, ...] = ()
    where: Mapping[str, str] = field(factory=dict)
    state_topic: str = ""

    def published(self, record: KafkaRecord, bytes_max: int) -> Publication | None:
        """Return what is published for a record; None if nothing is.

        Raises PoisonError if the record cannot be a message.
        """
        rule = next((one for one in self.subjects if one.topic == record.topic), None)
        if rule is None or any(name == BRIDGE for name, _ in record.headers or ()):
            return None
        subject = _subject(rule, record)
        place = KeyPlace(subject, record.topic, record.key, record.partition, 0, "")
        found = publication(record, place, bytes_max, stray=False)
        fields = found.fields or {}
        if len(fields) > FIELDS_MAX:
            raise PoisonError(f"{len(fields)} headers: a message has at most {FIELDS_MAX}")
        if found.reply_subject is not None:
            _require_subject(found.reply_subject)
        return found if self._wanted(fields) else None

    def produced(self, subject: str, made: Publication) -> tuple[ProducedRecord, ...]:
        """Return the records that are written for a message, one for each rule that names it.

        Raises PoisonError if a template leads to no name of a topic.
        """
        if (made.closure or "").startswith(CLOSURE) or not self._wanted(made.fields or {}):
            return ()
        segments = segments_of(subject)
        return tuple(
            self._record(rule, subject, segments, made)
            for rule in self.topics
            if (
                subject == rule.interest if rule.pattern is None else rule.pattern.matches(segments)
            )
        )

    def _record(
        self, rule: ToTopics, subject: str, segments: list[str], made: Publication
    ) -> ProducedRecord:
        fields = made.fields or {}

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name == "subject":
                return subject
            if name == "rest":
                return "/".join(segments[1:])
            if name.isdigit():
                return segments[int(name)] if int(name) < len(segments) else ""
            return fields.get(name.removeprefix("field:"), "")

        topic, key = _PLACEHOLDER.sub(value, rule.topic), _PLACEHOLDER.sub(value, rule.key)
        if not _TOPIC.fullmatch(topic):
            raise PoisonError(f"{topic!r} is no name of a topic")
        if topic.startswith(_INTERNAL) or topic == self.state_topic:
            raise PoisonError(f"messages are not copied to {topic}, which others rely on")
        place = KeyPlace(subject, topic, key.encode() or None, -1, 0, "")
        record = record_of(0, place, made)
        return ProducedRecord(
            0,
            topic,
            -1,
            record.key,
            record.value,
            [*record.headers, (BRIDGE, self.name.encode())],
            record.time_ms,
        )

    def _wanted(self, fields: Mapping[str, str]) -> bool:
        return all(fields.get(name) == value for name, value in self.where.items())


def _subject(rule: ToSubjects, record: KafkaRecord) -> str:
    """Return the subject of a record. Raises PoisonError if there is none."""
    headers: Headers = record.headers or ()

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "topic":
            return record.topic
        if name == "partition":
            return str(record.partition)
        raw = record.key
        if name != "key":
            wanted = name.removeprefix("header:")
            raw = next((text for header, text in headers if header == wanted), None)
        if raw is None:
            raise PoisonError(f"it has no {name}, which {rule.subject} needs")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise PoisonError(f"its {name} is no UTF-8") from None

    subject = _PLACEHOLDER.sub(value, rule.subject)
    _require_subject(subject)
    return subject


def _require_subject(subject: str) -> None:
    """Raise PoisonError if servers would not take a subject."""
    try:
        validate_subject(subject)
    except InvalidSubjectError as error:
        raise PoisonError(str(error)) from None
