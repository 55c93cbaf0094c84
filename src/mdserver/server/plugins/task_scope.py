"""A nursery for calls of operators' classes, apart from the tasks that serve clients."""

import trio


class TaskScope:
    """Base of the parts that call an operator's object. `_nursery` is None unless `run` runs."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the nursery open until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
