"""What a bridge copies, and to where: rules without I/O."""

import pytest

from mdserver.bridge.rules import (
    BRIDGE,
    CLOSURE,
    RuleError,
    Rules,
    bridge_name,
    conditions,
    to_subjects,
    to_topics,
)
from mdserver.cluster.kafka_records import Headers, KafkaRecord, PoisonError
from mdserver.core.message import Publication

MAX = 1000


def record(key: bytes | None = b"truck/7", headers: Headers = ()) -> KafkaRecord:
    return KafkaRecord("vehicles", 3, 5, 7, key, b"80", headers)


def inward(rule: str, **where: str) -> Rules:
    return Rules("b", (to_subjects(rule),), where=where)


@pytest.mark.parametrize(
    ("rule", "subject"),
    [
        ("vehicles=/fleet/{key}", "/fleet/truck/7"),
        ("vehicles=/fleet/all", "/fleet/all"),
        ("vehicles=/{topic}/{partition}/{header:unit}", "/vehicles/3/kmh"),
    ],
)
def test_the_subject_of_a_record(rule: str, subject: str) -> None:
    made = inward(rule).published(record(headers=[("unit", b"kmh")]), MAX)
    assert made is not None
    assert (made.subject, made.content, made.fields) == (subject, b"80", {"unit": "kmh"})


@pytest.mark.parametrize("key", [None, b"\xff", b"a//b", b"*", b""])
def test_a_record_without_a_subject_is_poison(key: bytes | None) -> None:
    with pytest.raises(PoisonError):
        inward("vehicles=/fleet/{key}").published(record(key), MAX)


def test_what_the_conditions_do_not_meet_is_left_out() -> None:
    rules = inward("vehicles=/fleet/{key}", status="new")
    assert rules.published(record(headers=[("status", b"old")]), MAX) is None
    assert rules.published(record(headers=[("status", b"new")]), MAX) is not None
    back = Rules("b", topics=(to_topics("/orders/**=orders"),), where={"status": "new"})
    assert back.produced("/orders/7", Publication("/orders/7", b"")) == ()


@pytest.mark.parametrize(
    ("rule", "topic", "key"),
    [
        ("/orders/**=orders", "orders", b"berlin/7"),
        ("/orders/**=orders:{subject}", "orders", b"/orders/berlin/7"),
        ("/orders/*/7=orders-{1}:{2}-{field:unit}", "orders-berlin", b"7-kg"),
        ("/orders/berlin/7=orders:", "orders", None),
    ],
)
def test_topic_and_key_of_a_message(rule: str, topic: str, key: bytes | None) -> None:
    rules = Rules("b", topics=(to_topics(rule),))
    made = Publication("/orders/berlin/7", b"x", fields={"unit": "kg"})
    [found] = rules.produced("/orders/berlin/7", made)
    assert (found.topic, found.key, found.value) == (topic, key, b"x")
    assert found.headers == [("unit", b"kg"), (BRIDGE, b"b")]
    assert rules.produced("/other/berlin/7", made) == ()


def test_nothing_goes_in_a_circle() -> None:
    rules = Rules("b", (to_subjects("t=/t/{key}"),), (to_topics("/t/**=t"),))
    [there] = rules.produced("/t/k", Publication("/t/k", b"1"))
    read = KafkaRecord("t", 0, 0, 0, there.key, there.value, there.headers)
    assert rules.published(read, MAX) is None
    closure = f"{CLOSURE}t/0@0"
    assert rules.produced("/t/k", Publication("/t/k", b"1", closure=closure)) == ()


def test_a_topic_that_no_template_may_make_is_poison() -> None:
    rules = Rules("b", topics=(to_topics("/t/*={1}"),))
    with pytest.raises(PoisonError, match="no name of a topic"):
        rules.produced("/t/a b", Publication("/t/a b", b""))


@pytest.mark.parametrize("subject", ["/t/__consumer_offsets", "/t/states"])
def test_publishers_cannot_choose_a_topic_that_others_rely_on(subject: str) -> None:
    rules = Rules("b", topics=(to_topics("/t/*={1}"),), state_topic="states")
    with pytest.raises(PoisonError, match="which others rely on"):
        rules.produced(subject, Publication(subject, b""))
    assert rules.produced("/t/state", Publication("/t/state", b""))


def test_a_record_that_no_server_could_read_is_poison() -> None:
    rules = inward("vehicles=/fleet/{key}")
    many = [(f"h{number}", b"") for number in range(257)]
    with pytest.raises(PoisonError, match="257 headers: a message has at most 256"):
        rules.published(record(headers=many), MAX)
    assert rules.published(record(headers=many[1:]), MAX) is not None
    with pytest.raises(PoisonError):
        rules.published(record(headers=[("md-reply", b"no subject")]), MAX)


@pytest.mark.parametrize("text", ["", "a b", "a\tb", "a\x00", "a\u200b", "a\u00a0b"])
def test_a_name_that_cannot_begin_a_key_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match="expected a name without spaces"):
        bridge_name(text)
    assert bridge_name("größe-1") == "größe-1"


@pytest.mark.parametrize("text", ["vehicles", "=/a/b", "a b=/x/y", "t=x/y", "t=/a/{keys}"])
def test_a_rule_that_cannot_be_read_is_explained(text: str) -> None:
    with pytest.raises(RuleError, match=r"expected TOPIC=SUBJECT|is unknown: there are"):
        to_subjects(text)


@pytest.mark.parametrize("text", ["/a/b", "a=t", "/a/b=x y", "/a/b=t:{key}", "/a/**/b=t"])
def test_a_rule_for_topics_that_cannot_be_read_is_explained(text: str) -> None:
    with pytest.raises(RuleError):
        to_topics(text)


def test_conditions_are_names_and_values() -> None:
    assert conditions(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(RuleError, match="expected NAME=VALUE"):
        conditions(["a"])
