"""The guards of the protocol: the places at which it refuses something, each with a counter.

A rule that refuses what never comes is not tested by any number of passing runs. So each place
counts, and the simulator demands that all of them refused at least once (`simulation/plans`). A
count is one addition at a place that is reached when something does not fit; what does fit, which
is nearly everything, passes no counter.
"""

import enum


class Guard(enum.Enum):
    """A refusal: which part of a member refuses what, in the words of docs/cluster.md."""

    # A seed, to candidates
    PREPARE_PROMISED = "seed: a PREPARE at or below the promise"
    PREPARE_NOT_VOTING = "seed: a PREPARE although it does not vote"
    PREPARE_READMITS = "seed: the PREPARE that is to take it back"
    PREPARE_COLD_EARLY = "seed: a cold start before every seed was heard"
    VOTE_OLDER_LIST = "seed: a candidate by an older list of seeds"
    VOTE_NEWER_LIST = "seed: a candidate by a list of seeds that it has not noted"
    PRE_VOTE_LED = "seed: a pre-vote while it sees a coordinator"
    PRE_VOTE_EARLY = "seed: a pre-vote just after a promise"

    # A seed or learner, to coordinators
    LOG_PROMISED = "seed: a log below the promise"
    LOG_OLDER = "learner: a log of an older epoch"
    LOG_COLD_UNPROMISED = "seed: a cold start that it did not promise"
    LOG_UNREGISTERED = "seed: a log that does not count it again"
    LOG_GAP = "learner: a log that begins behind what is here"
    LOG_LACKS_COMMITTED = "learner: a log that lacks what is committed here"
    LOG_OLDER_LIST = "member: a newer epoch of an older list of seeds than one that was active"
    LOG_NEWER_LIST = "seed: a log that counts it by a list of seeds that it has not noted"
    ENTRIES_PROMISED = "seed: entries below the promise"
    ENTRIES_NOT_VOTING = "seed: entries although it does not vote"
    ENTRIES_GAP = "learner: entries of another epoch, or behind a gap"
    ENTRIES_DISK_BEHIND = "seed: entries while its disk is far behind"
    COMMIT_OLDER = "learner: a commit of an older epoch"
    COMMIT_GAP = "learner: a commit beyond the log"
    HEARTBEAT_OLDER = "learner: a coordinator whose epoch is over"
    HEARTBEAT_PROMISED = "seed: a coordinator of an epoch below the promise"
    COPY_OLDER = "learner: a copy older than what is here"
    COPY_CANDIDATE = "learner: a copy while it is a candidate"

    # A candidate
    VOTE_OF_NO_SEED = "candidate: a pre-vote or promise of a member that is no seed"
    PROMISE_LATE = "candidate: a promise after the election"
    PROMISE_LOST = "candidate: a promise of an incarnation that was lost"
    PROMISE_WITHOUT_OWN = "candidate: a majority without its own promise"
    PROMISE_UNVERIFIED = "candidate: a log from a disk before all seeds in sight promised"
    ELECTED_LACKS_COMMITTED = "candidate: a best log that lacks what is committed here"
    ELECTED_LACKS_BEGINNING = "candidate: a best log of another history without its beginning"
    COLD_INCOMPLETE = "candidate: a cold start without every seed"
    NACKED = "candidate: a newer epoch is known"

    # A coordinator
    ACK_EPOCH = "coordinator: an ack of another epoch"
    ACK_INCARNATION = "coordinator: an ack of an older incarnation"
    REGISTER_INCARNATION = "coordinator: a seed of an incarnation that was lost"
    REGISTER_LOST = "coordinator: a seed that lost its record in an epoch not elected for that"
    SEED_PROMISED_NEWER = "coordinator: a seed that promised a newer epoch"
    SEED_HOLDS_LESS = "coordinator: a seed that holds less than it acked"
    LEARNER_HOLDS_MORE = "coordinator: a member that has committed what is not in the log"
    FORWARD_EPOCH = "coordinator: publications for another epoch"
    NUMBER_GAP = "coordinator: a number that does not follow"
    NUMBER_TAKEN = "coordinator: a number that was taken"
    NUMBERS_OPEN = "coordinator: more open numbers than are kept"
    REPEAT_UNCOMMITTED = "coordinator: the answer to a repeat before its commit"
    QUORUM_LOST = "coordinator: no majority of seeds in sight"

    # A member
    HELLO_OLDER = "member: a Hello of an older incarnation"
    STARTS_DIFFER = "member: a seed whose incarnation another start had"
    RECORD_OLDER = "seed: its own record, of which others know more"
    NEXT_UNSETTLED = "seed: a next list before the present one is settled"
    NEXT_UNSURE = "seed: a next list after its record was lost, before all seeds were heard"
    NEXT_NAMED = "seed: another next list than the one that it named"
    LISTS_CONTRADICT = "member: another list of the same number"
    ANSWER_UNSTORED = "seed: an answer before its vote is on the disk"
    ACK_UNSYNCED = "seed: an ack before its entries are on the disk"


class Refusals:
    """The number of refusals of each guard of one member since its start."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Guard, 0)

    def note(self, guard: Guard) -> None:
        """Count a refusal."""
        self.counts[guard] += 1
