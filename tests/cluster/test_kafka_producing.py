"""Publications on their way to Kafka, and which results their publishers get."""

import pytest

from mdserver.cluster import kafka_waiting
from mdserver.cluster.kafka_messages import ProductionReport, ProductionReports
from mdserver.core.events import StatusName
from simulation.kafka_log import SimulatedLog, SimulatedMember

SUBJECT = "/t/k"


@pytest.fixture
def log() -> SimulatedLog:
    made = SimulatedLog()
    made.create("t")
    return made


def ready(log: SimulatedLog, publisher: str | None = None) -> SimulatedMember:
    """Return a member that has read the log, with a connected client."""
    member = SimulatedMember(log)
    member.read()
    member.connect(publisher=publisher)
    return member


def results(member: SimulatedMember) -> list[tuple[StatusName, str | None]]:
    return [(one.status, one.closure) for one in member.statuses if one.closure is not None]


def test_a_number_is_answered_when_its_record_was_read_and_others_when_kafka_has_them(
    log: SimulatedLog,
) -> None:
    here = ready(log, publisher="me")
    here.publish(SUBJECT, "1", number=1)
    here.publish(SUBJECT, "2")
    here.deliver()
    assert results(here) == [(StatusName.PUBLISH_OK, "2")]
    here.read()
    assert results(here) == [(StatusName.PUBLISH_OK, "2"), (StatusName.PUBLISH_OK, "1")]
    assert [one.seq for one in here.statuses[-2:]] == [2, 1]


def test_what_waits_when_everything_is_numbered_anew_has_an_uncertain_end(
    log: SimulatedLog,
) -> None:
    here = ready(log)
    here.publish(SUBJECT, "1")
    log.create("t", "second")
    here.look()
    assert results(here) == [(StatusName.PUBLISH_FAILED, "1")]
    assert here.statuses[-1].certain is False
    assert "created anew" in str(here.statuses[-1].reason)


def test_the_same_number_twice_in_flight_makes_one_record(log: SimulatedLog) -> None:
    here = ready(log, publisher="me")
    here.publish(SUBJECT, "1", number=1)
    here.publish(SUBJECT, "1", number=1)
    assert len(here.produced) == 1
    here.deliver()
    here.read()
    assert results(here) == [(StatusName.PUBLISH_OK, "1")] * 2


def test_a_publication_that_kafka_refuses_has_failed(log: SimulatedLog) -> None:
    here = ready(log)
    here.publish(SUBJECT, "1")
    here.step(
        ProductionReports(
            [ProductionReport(here.produced[0].ticket, reason="too large", certain=True)]
        )
    )
    assert results(here) == [(StatusName.PUBLISH_FAILED, "1")]
    assert (here.statuses[-1].reason, here.statuses[-1].certain) == ("too large", True)


def test_a_publication_without_a_report_has_an_uncertain_end(log: SimulatedLog) -> None:
    here = ready(log)
    here.publish(SUBJECT, "1")
    here.tick(11)
    assert here.statuses[-1].certain is False
    assert here.node.mode.counts().waiting == 0
    here.deliver()  # a late report changes nothing
    assert len(results(here)) == 1


def test_fields_count_while_a_publication_waits(
    log: SimulatedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_waiting, "KAFKA_PENDING_BYTES_MAX", 100)
    here = ready(log)
    here.publish(SUBJECT, "", fields={"name": "v" * 200})
    here.publish(SUBJECT, "2")
    assert here.statuses[-1].reason == "too many bytes wait for Kafka here"
    here.tick(11)
    here.publish(SUBJECT, "3")
    assert here.statuses[-1].reason == "too many bytes wait for Kafka here"
    here.deliver()
    here.publish(SUBJECT, "4")
    here.deliver()
    assert results(here)[-1] == (StatusName.PUBLISH_OK, "4")


@pytest.mark.parametrize(
    ("subject", "more", "reason"),
    [
        ("/other/k", {}, "no topic other"),
        (SUBJECT, {"fields": {"md-id": "1"}}, "the server's own"),
    ],
)
def test_what_cannot_be_a_record_is_refused(
    log: SimulatedLog, subject: str, more: dict[str, object], reason: str
) -> None:
    here = ready(log)
    here.publish(subject, "1", **more)
    assert here.produced == []
    assert reason in str(here.statuses[-1].reason)
    assert here.statuses[-1].certain is True
