"""Who coordinates a subject group, as one member sees it.

                 no coordinator in sight
       .---------------------------------------------.
       v                                             |
    LEADERLESS --> a candidate: PREPARE, PROMISE --> FOLLOWING, not active
       ^           on some member                    |  its log is established here,
       |                                             |  a majority still has to hold it
       |           link or coordinator lost          v
       '------------------------------------------- ACTIVE: entries come and are committed

An epoch is *active* here only after this member holds all that was committed when it began. From
then on publications that wait here are forwarded to its coordinator, and those that its log lacks
are forwarded anew (`Group.follow`). What a member sees here decides nothing: who coordinates is
decided by the promises of seeds, and a member may learn of that late.
"""


class Leadership:
    """Who coordinates a group, as far as this member knows.

    `coordinator` is its address, "" if there is none, and `epoch` its epoch. `active`: its log is
    established, and this member follows it. `forwarded_epoch`: the epoch to which all that waits
    here was forwarded; 0 if that may have been lost with a link. `maybe_behind`: what the
    coordinator sent may have been lost with a link, so that the log here may lack entries of it.
    """

    __slots__ = ("active", "coordinator", "epoch", "forwarded_epoch", "maybe_behind")

    def __init__(self) -> None:
        self.epoch = 0
        self.coordinator = ""
        self.active = False
        self.forwarded_epoch = 0
        self.maybe_behind = False

    def follow(self, coordinator: str, epoch: int) -> None:
        """Follow another coordinator, or another epoch of the same one; it is not active yet."""
        self.coordinator, self.epoch, self.active = coordinator, epoch, False
        self.maybe_behind = False
