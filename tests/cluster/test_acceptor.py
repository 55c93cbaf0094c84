"""The vote and standing of a seed in one group, step by step of its table."""

import pytest

from mdserver.cluster.acceptor import TRANSITIONS, Acceptor, AcceptorEvent, Standing
from mdserver.cluster.log import GroupLog
from mdserver.cluster.votes import Vote, VoteRecord
from mdserver.errors import LocalProtocolError


def acceptor(standing: Standing = Standing.NORMAL, promised: int = 0) -> Acceptor:
    record = VoteRecord("m1:1", "test", 3, True, [Vote(promised, "m9:1")])
    made = Acceptor(0, record, GroupLog(10))
    made.standing = standing
    return made


@pytest.mark.parametrize("standing", Standing)
@pytest.mark.parametrize("step", AcceptorEvent)
def test_every_pair_goes_where_the_table_says_or_is_refused(
    standing: Standing, step: AcceptorEvent
) -> None:
    seed = acceptor(standing)
    target = TRANSITIONS.get((standing, step))
    assert seed.may(step) == (target is not None)
    if target is None:
        with pytest.raises(LocalProtocolError, match=f"a {standing.value} seed does not"):
            seed.transition(step)
        target = standing
    else:
        seed.transition(step)
    assert seed.standing is target


def test_an_epoch_is_promised_once_and_to_one_candidate() -> None:
    seed = acceptor(promised=4)
    assert seed.refuses(4, cold=False)
    assert not seed.refuses(5, cold=False)
    seed.promise(5, "m2:1", cold=False)
    assert seed.promised == Vote(5, "m2:1")
    assert seed.refuses(5, cold=False)


def test_a_seed_that_forgot_its_entries_promises_cold_starts_only() -> None:
    seed = acceptor(Standing.RECOVERING)
    assert seed.refuses(5, cold=False)
    assert not seed.refuses(5, cold=True)


@pytest.mark.parametrize(
    ("standing", "epoch", "register", "cold", "step"),
    [
        (Standing.NORMAL, 3, 0, False, None),  # it promised 4
        (Standing.NORMAL, 4, 0, False, AcceptorEvent.SYNC),
        (Standing.NORMAL, 5, 0, False, AcceptorEvent.SYNC),
        (Standing.NORMAL, 4, 0, True, AcceptorEvent.INSTALL_COLD),
        (Standing.NORMAL, 5, 0, True, None),  # a cold start that it did not promise
        (Standing.RECOVERING, 5, 0, False, None),
        (Standing.RECOVERING, 5, 2, False, None),  # that counts an earlier start of it
        (Standing.RECOVERING, 5, 3, False, AcceptorEvent.INSTALL),
        (Standing.LOST, 5, 3, False, None),
        (Standing.RETURNING, 5, 3, False, AcceptorEvent.INSTALL),
    ],
)
def test_which_logs_of_coordinators_it_takes(
    standing: Standing, epoch: int, register: int, cold: bool, step: AcceptorEvent | None
) -> None:
    assert acceptor(standing, promised=4).takes(epoch, register, cold=cold) is step


def test_to_take_a_log_of_a_new_epoch_is_to_promise_it() -> None:
    seed = acceptor(promised=4)
    seed.unverified = True
    assert not seed.take(AcceptorEvent.SYNC, 4, "m9:1"), "the record has it already"
    assert not seed.unverified
    assert seed.take(AcceptorEvent.SYNC, 6, "m2:1"), "the record has to be stored"
    assert seed.promised == Vote(6, "m2:1")


def test_entries_are_taken_in_the_epoch_that_the_log_is_of_and_no_other() -> None:
    record = VoteRecord("m1:1", "test", 3, True, [Vote(4, "m9:1")])
    log = GroupLog(10)
    seed = Acceptor(0, record, log)
    log.epoch = 4
    assert not seed.accepts(4), "it recovers"
    seed.standing = Standing.NORMAL
    assert seed.accepts(4)
    log.epoch = 3
    assert not seed.accepts(4), "its log was not synchronised in that epoch"
    assert not seed.accepts(3), "it promised a newer one"
