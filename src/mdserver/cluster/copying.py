"""How a member that is no seed catches up: from any other one, then from the coordinator.

What it copies is committed, so it is the same everywhere (spec: `Delivery!Copy`); the coordinator
then only gives what came since. A seed's log counts, so a seed takes its log from coordinators
alone.
"""

from typing import TYPE_CHECKING

from mdserver.cluster.messages import Copied, Copy, State, Synced, portions

if TYPE_CHECKING:
    from mdserver.cluster.ground import Ground

Gaps = dict[int, tuple[int, int]]
"""Groups that lack something -> the coordinator's epoch, and how much it says is committed."""


class Copying:
    """Both sides of it, for one member."""

    __slots__ = ("ground",)

    def __init__(self, ground: "Ground") -> None:
        self.ground = ground

    def ask(self, coordinator: str, gaps: Gaps) -> dict[int, int]:
        """Ask others for copies; returns what the coordinator is to be asked for (-> epochs).

        One member is asked in each epoch: if it cannot help, the coordinator has to.
        """
        ground = self.ground
        left: dict[int, int] = {}
        sources: dict[str, list[int]] = {}
        ready = [
            name for name, peer in ground.members.peers.items()
            if name != coordinator and peer.ready and ground.members.alive(name, ground.now)
        ]  # fmt: skip
        for group, (epoch, committed) in gaps.items():
            view = ground.views[group]
            if not ready or view.copied_of >= epoch or not self._wants(group, committed):
                left[group] = epoch
            elif view.ask(epoch, ground.now):
                view.copied_of = epoch
                sources.setdefault(ready[group % len(ready)], []).append(group)
        for peer, groups in sources.items():
            ground.say((peer,), Copy(groups))
        return left

    def _wants(self, group: int, committed: int) -> bool:
        """Whether so much is missing that the coordinator may not have the entries any more."""
        ground = self.ground
        kept = ground.settings.log_kept if ground.views[group].history else 0
        return ground.seed is None and committed - ground.logs[group].committed > kept

    def give(self, peer: str, copy: Copy) -> None:
        """Hand over the committed part of groups, as far as it is here."""
        ground = self.ground
        held = (self._held(group) for group in copy.groups)
        for items in portions(held):
            ground.say((peer,), Copied(items))

    def _held(self, group: int) -> Synced:
        ground = self.ground
        log, view = ground.logs[group], ground.views[group]
        state = State(log.tables(), ground.export_cache(group))
        return Synced(
            group, log.epoch, view.history, log.committed, [], [], log.committed,
            active=False, cold=False, register=0, state=state,
        )  # fmt: skip

    def take(self, peer: str, copied: Copied) -> None:
        """Begin with copies; whatever is missing after them, the coordinator is asked for."""
        ground = self.ground
        if ground.seed is not None:
            return
        first: dict[str, list[int]] = {}
        # Whoever became a candidate meanwhile shares its log with that: it has a newer one.
        items = [item for item in copied.items if item.group not in ground.coordinators]
        for item in items:
            ground.views[item.group].asked = 0
            if not ground.views[item.group].history and item.history:
                first.setdefault(item.history, []).append(item.group)
        for history, groups in first.items():
            ground.renew(history, groups)
        ground.log("copied", source=peer, groups=len(items))
        for item in items:
            same = item.history == ground.views[item.group].history
            if same and item.state is not None and item.start > ground.logs[item.group].committed:
                ground.install(item.group, item.start, item.state)
                ground.views[item.group].copied = True
