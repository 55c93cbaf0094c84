"""Which sessions wait for a verdict."""

import trio
import trio.testing

from mdserver.core.inputs import Authorized
from mdserver.core.outputs import Authorize
from mdserver.server.clients.authorizations import Authorizations


async def test_a_session_waits_until_its_last_request_is_answered() -> None:
    given: list[Authorized] = []
    asked: list[Authorize] = []
    authorizations = Authorizations(given.append)
    ask = authorizations.through(asked.append)
    for number in (1, 2):
        ask(Authorize(number, 7, "subscribe"))
    ask(Authorize(3, 8, "connect"))
    resolved: list[int] = []

    async def wait(session: int) -> None:
        await authorizations.resolved(session)
        resolved.append(session)

    async with trio.open_nursery() as nursery:
        for session in (7, 8, 9):
            nursery.start_soon(wait, session)
        await trio.testing.wait_all_tasks_blocked()
        assert resolved == [9]
        authorizations.answer(Authorized(1, None))
        authorizations.answer(Authorized(3, None))
        await trio.testing.wait_all_tasks_blocked()
        assert resolved == [9, 8]
        assert authorizations.pending == {7: 1}
        authorizations.answer(Authorized(2, None))
    assert resolved == [9, 8, 7]
    assert authorizations.pending == {}
    assert [one.request for one in given] == [1, 3, 2]
    assert [one.request for one in asked] == [1, 2, 3]


def test_the_end_of_a_session_is_no_request() -> None:
    authorizations = Authorizations(lambda _: None)
    authorizations.through(lambda _: None)(Authorize(1, 7, "disconnect"))
    assert authorizations.pending == {}
