"""Each proposal has one outcome, which says to its publisher what became of it."""

import gc

import pytest

from mdserver.core.commands import Connect, Publish
from mdserver.core.events import Status, StatusName
from mdserver.core.message import Publication, Qos
from mdserver.core.outputs import Output, Send
from mdserver.core.proposal import Origin, Outcome, Proposal
from mdserver.core.settings import BrokerSettings
from tests.core.one_seed import OneSeed


class Undecided(OneSeed):
    """Keeps proposals instead of giving them a place."""

    def __init__(self) -> None:
        super().__init__(BrokerSettings())
        self.proposals: list[Proposal] = []
        self.open(1)
        self.receive(1, [Connect()])

    def _commit(self, proposal: Proposal, out: list[Output]) -> None:
        self.proposals.append(proposal)

    def resolve(self, *outcomes: Outcome) -> list[Status]:
        out: list[Output] = []
        self.broker.resolve(outcomes, self.now, out)
        events = [output.event for output in out if isinstance(output, Send)]
        return [event for event in events if isinstance(event, Status)]


def proposed(*commands: Publish) -> Undecided:
    seed = Undecided()
    seed.receive(1, commands)
    assert len(seed.proposals) == len(commands)
    return seed


def test_an_outcome_names_what_it_is_about_as_the_publisher_did() -> None:
    seed = proposed(
        Publish(subject="/a/b", content="one", id=7, closure="c"),
        Publish(subject="/a/c", content="two", id="eight"),
    )
    first, second = (proposal.origin for proposal in seed.proposals)
    (status,) = seed.resolve(Outcome(first, epoch=3, seq=4))
    assert (status.status, status.id, status.closure) == (StatusName.PUBLISH_OK, 7, "c")
    assert (status.epoch, status.seq, status.duplicate) == (3, 4, False)
    (status,) = seed.resolve(Outcome(second, reason="no majority", certain=False))
    assert (status.status, status.id) == (StatusName.PUBLISH_FAILED, "eight")
    assert (status.reason, status.certain) == ("no majority", False)


def test_a_repeat_is_told_its_place_or_that_this_is_forgotten() -> None:
    seed = proposed(Publish(subject="/a/b", content="one", id=1))
    origin = seed.proposals[0].origin
    known, forgotten = seed.resolve(
        Outcome(origin, epoch=1, seq=2, duplicate=True), Outcome(origin, duplicate=True)
    )
    assert (known.duplicate, known.epoch, known.seq) == (True, 1, 2)
    assert (forgotten.duplicate, forgotten.epoch, forgotten.seq) == (True, None, None)


def test_a_gap_says_which_number_is_expected() -> None:
    seed = proposed(Publish(subject="/a/b", content="one", id=1))
    outcome = Outcome(seed.proposals[0].origin, reason="a gap", expected=5)
    (status,) = seed.resolve(outcome)
    assert (status.status, status.expected, status.certain) == (StatusName.PUBLISH_FAILED, 5, True)


def test_a_session_that_went_is_told_nothing() -> None:
    seed = proposed(Publish(subject="/a/b", content="one", id=1))
    seed.close(1, "gone")
    assert seed.resolve(Outcome(seed.proposals[0].origin, epoch=1, seq=1)) == []


def test_the_publication_is_kept_for_the_audit_only() -> None:
    """A million that wait would keep a million contents alive."""
    seed = proposed(Publish(subject="/a/b", content="one"))
    (proposal,) = seed.proposals
    assert proposal.origin.publication is None
    assert (proposal.publication.content, proposal.publication.qos) == (b"one", Qos.GUARANTEED)


@pytest.mark.parametrize("made", [Proposal, Outcome, Origin])
def test_the_collector_need_not_look_at_them(made: type) -> None:
    origin = Origin(1, None, 2)
    one = {
        Origin: origin,
        Outcome: Outcome(origin),
        Proposal: Proposal(origin, Publication("/a/b", b"x")),
    }[made]
    assert not gc.is_tracked(one)
