"""Tasks that call what an operator wrote, beside those that serve clients."""

import trio


class TaskScope:
    """A nursery for calls of an operator's object: there are none before `run` and after it."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let calls be made until it is cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
