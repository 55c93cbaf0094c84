"""The leadership of a subject group: its coordinator and epoch, as far as one member knows.

The states in which a member may be, and what leads from one to another:

                 no coordinator in sight
       .---------------------------------------------.
       v                                             |
    LEADERLESS --> a candidate: PREPARE, PROMISE --> FOLLOWING, not active
       ^           on some member                    |  its log is established here,
       |                                             |  a majority still has to hold it
       |           link or coordinator lost          v
       '------------------------------------------- ACTIVE: entries come and are committed

Invariant: an epoch is *active* here only after this member holds everything that was committed when
the epoch began. So when it becomes active, a publication that was forwarded to an earlier
coordinator and is not in the log here was certainly lost, and can be forwarded again without being
taken twice (`Group.follow`). From then on, publications that wait here are forwarded as well.

This is knowledge and not authority: the promises of seeds decide who coordinates a group, and a
member may learn of their decision late. Whatever it sends to a coordinator that is no longer one is
refused there, because messages carry the epoch.
"""


class Leadership:
    """The coordinator of a group, as far as this member knows.

    `coordinator` is its address, "" if there is none, and `epoch` its epoch. `active`: its log is
    established, and this member follows it. `forwarded_epoch`: the epoch to whose coordinator
    everything that waits here was forwarded; 0 if that may have been lost with a link.
    `maybe_behind`: entries of the coordinator may have been lost with a link, so the log here may
    lack them. `seen_inactive`: its epoch was followed here before it was active, so it became
    active after this member started.
    """

    __slots__ = (
        "active",
        "coordinator",
        "epoch",
        "forwarded_epoch",
        "maybe_behind",
        "seen_inactive",
    )

    def __init__(self) -> None:
        self.epoch = 0
        self.coordinator = ""
        self.active = False
        self.forwarded_epoch = 0
        self.maybe_behind = False
        self.seen_inactive = False

    def follow(self, coordinator: str, epoch: int, *, already_active: bool = False) -> None:
        """Follow another coordinator, or another epoch of the same one.

        It is not active here yet. `already_active`: it is, as its coordinator says.
        """
        seen = self.seen_inactive and epoch == self.epoch
        self.seen_inactive = seen or not already_active
        self.coordinator, self.epoch, self.active = coordinator, epoch, False
        self.maybe_behind = False
