"""The statuses that a client keeps for an application that reads them late."""

from mdserver.client import Notice, Notification, Statuses
from mdserver.limits import CLIENT_NOTICES_MAX


async def test_the_newest_statuses_are_kept_and_then_the_iteration_ends() -> None:
    statuses = Statuses(lambda: None)
    for number in range(CLIENT_NOTICES_MAX + 5):
        statuses.put(Notice(Notification.DATA_SYNC, info=str(number)))
    assert (await anext(statuses)).info == "5"
    assert len(await statuses.batch()) == CLIENT_NOTICES_MAX - 1
    statuses.put(Notice(Notification.SERVER_DOWN))
    statuses.close()
    assert [notice.status async for notice in statuses] == [Notification.SERVER_DOWN]
