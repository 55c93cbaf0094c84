"""What the audit streams say: one line about one thing, with the columns that its page names."""

from mdserver.core.audit import (
    CACHE,
    MESSAGE,
    PRESENCE,
    RECEIPTS,
    dropped_log,
    presence_log,
    publish_log,
    receipt_log,
    refused_log,
)
from mdserver.core.commands import Publish
from mdserver.core.inputs import Opened
from mdserver.core.message import Publication
from mdserver.core.proposal import Origin, Outcome
from mdserver.core.session import Session
from tests.receipts import receipt

NOW = 20_000_000_000


def session() -> Session:
    found = Session(Opened(7, "10.0.0.1", secure=True))
    found.client, found.user, found.external_token = "c/1", "ann", "device-9"
    return found


def test_a_publication_is_counted_with_its_fields_and_named_with_its_position() -> None:
    publication = Publication("/a/b", b"xyz", fields={"n": "ö"}, publisher="p", number=3)
    origin = Origin(7, "c", None, "/a/b", publication)
    done = publish_log(Outcome(origin, 2, 9), publication, None, "h1", NOW)
    assert (done.stream, done.name) == (MESSAGE, "publish")
    values = done.values
    assert (values["bytes"], values["epoch"], values["seq"], values["history"]) == (6, 2, 9, "h1")
    assert (values["publisher"], values["number"], values["session"]) == ("p", 3, 7)


def test_a_publication_that_failed_has_a_reason_and_no_history() -> None:
    publication = Publication("/a/b", b"")
    outcome = Outcome(Origin(7, None, None, "/a/b", publication), reason="no quorum")
    failed = publish_log(outcome, publication, None, "h1", NOW)
    assert failed.name == "publish-failed"
    assert (failed.values["reason"], failed.values["history"]) == ("no quorum", None)
    refused = refused_log(session(), Publish(subject="/a/b", content="x"), "not allowed", NOW)
    assert (refused.name, refused.values["reason"]) == ("publish-denied", "not allowed")


def test_presence_names_the_user_by_the_token_of_the_application() -> None:
    line = presence_log("join", session(), "/a/b", NOW)
    assert (line.stream, line.name, line.values["external_token"]) == (PRESENCE, "join", "device-9")
    assert (line.values["address"], line.values["user"]) == ("10.0.0.1", "ann")


def test_a_receipt_has_times_that_were_given_as_ages_and_never_before_the_epoch() -> None:
    told = receipt(opened_ms=30_000, closed_ms=500)
    line = receipt_log(session(), told, "ann", 4, NOW, verified=False)
    assert line.stream == RECEIPTS
    assert (line.values["opened_ts"], line.values["closed_ts"]) == (0, 19_500_000)
    assert (line.values["owner"], line.values["left_out"], line.values["verified"]) == (
        "ann",
        4,
        False,
    )


def test_dropped_messages_are_one_line_with_their_sum() -> None:
    line = dropped_log("evict", 3, 900, NOW)
    assert (line.stream, line.values) == (CACHE, {"time": NOW, "messages": 3, "bytes": 900})
