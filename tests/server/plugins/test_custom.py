"""The operator's entitlement class: its answers count, its failures are denials."""

import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from mdserver.core.inputs import Authorized, Denied, Grants
from mdserver.core.outputs import Authorize
from mdserver.errors import ConfigError
from mdserver.limits import NS_PER_S, VERDICTS_PER_SESSION_AT_ONCE
from mdserver.server.plugins.custom import BUSY, Client, CustomAuthorizer, load_class

FAILED = Denied("The server could not decide: its entitlement class failed.")
GRANTS = Grants(subscribe=("/a/**",), user="ann")


class Judge:
    """Answers by the token or subject that it is asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Client, str | None]] = []

    async def _answer(self, name: str, client: Client, about: str | None) -> object:
        self.asked.append((name, client, about))
        match about:
            case "grants":
                return GRANTS
            case "denied":
                return Denied("not today")
            case "raise":
                raise ValueError("boom")
            case "group":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._answer, name, client, "raise")
            case "slow":
                await trio.sleep(60)
            case "true":
                return True
        return None

    async def connect(self, client: Client, token: str | None) -> object:
        return await self._answer("connect", client, token)

    async def update_token(self, client: Client, token: str) -> object:
        return await self._answer("update_token", client, token)

    async def subscribe(self, client: Client, subject: str) -> object:
        return await self._answer("subscribe", client, subject)

    def publish(self, client: Client, subject: str) -> object:
        return True  # not a coroutine: a mistake of the class

    async def disconnect(self, client: Client) -> None:
        await self._answer("disconnect", client, None)


async def verdicts(nursery: trio.Nursery, judge: Judge, *questions: Authorize) -> list[Authorized]:
    decided: list[Authorized] = []
    custom = CustomAuthorizer(judge, 5 * NS_PER_S, decided.append)
    await nursery.start(custom.run)
    for question in questions:
        custom.ask(question)
    await trio.testing.wait_all_tasks_blocked()
    return decided


@pytest.mark.parametrize(
    ("action", "about", "verdict"),
    [
        ("connect", "true", None),
        ("connect", "grants", GRANTS),
        ("token", "grants", GRANTS),
        ("connect", "denied", Denied("not today")),
        ("connect", "nothing", Denied("The server's entitlement does not allow it.")),
        ("subscribe", "true", None),
        ("subscribe", "denied", Denied("not today")),
        ("subscribe", "grants", Denied("The server's entitlement does not allow it.")),
        ("subscribe", "raise", FAILED),
        ("subscribe", "group", FAILED),
        ("publish", "any", FAILED),
    ],
)
async def test_answers(nursery, action: str, about: str, verdict: object) -> None:
    token, subject = (about, None) if action in {"connect", "token"} else (None, about)
    judge = Judge()
    question = Authorize(7, 1, action, token, subject, "127.0.0.1")
    assert await verdicts(nursery, judge, question) == [Authorized(7, verdict)]
    if judge.asked:
        assert judge.asked[0][1:] == (Client(1, "127.0.0.1"), about)


async def test_an_answer_after_the_deadline_is_a_denial_and_others_go_on(
    nursery, autojump_clock
) -> None:
    decided: list[Authorized] = []
    custom = CustomAuthorizer(Judge(), 5 * NS_PER_S, decided.append)
    await nursery.start(custom.run)
    custom.ask(Authorize(1, 1, "subscribe", None, "slow"))
    custom.ask(Authorize(2, 2, "subscribe", None, "true"))
    await trio.sleep(4.9)
    assert decided == [Authorized(2, None)]
    await trio.sleep(0.2)
    assert decided[1:] == [Authorized(1, Denied("The server could not decide in time."))]


async def test_the_end_of_a_session_is_told_and_not_answered(nursery) -> None:
    judge = Judge()
    assert await verdicts(nursery, judge, Authorize(1, 9, "disconnect")) == []
    assert judge.asked == [("disconnect", Client(9, None), None)]


async def test_one_session_s_questions_deny_nobody_else(
    nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.limits.VERDICTS_PENDING_MAX", 100)
    greedy = [Authorize(number, 1, "subscribe", None, "slow") for number in range(1, 1001)]
    others = [Authorize(2000 + number, number, "connect", "true") for number in range(2, 40)]
    judge = Judge()
    decided = await verdicts(nursery, judge, *greedy, *others)
    served = [answer for answer in decided if answer.request > 2000]
    assert sorted(answer.request for answer in served) == [one.request for one in others]
    assert {answer.verdict for answer in served} == {None}
    asked = [client.session for _, client, _ in judge.asked]
    assert asked.count(1) == VERDICTS_PER_SESSION_AT_ONCE
    refused = [answer for answer in decided if answer.request < 2000]
    assert all(answer.verdict == BUSY for answer in refused)
    assert len(refused) == 1000 - 50 - VERDICTS_PER_SESSION_AT_ONCE
    nursery.cancel_scope.cancel()


async def test_sessions_take_turns(
    nursery, autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdserver.limits.VERDICTS_AT_ONCE", 1)
    questions = [
        Authorize(10 * session + number, session, "subscribe", None, "true")
        for session in (1, 2, 3)
        for number in range(3)
    ]
    decided = await verdicts(nursery, Judge(), *questions)
    assert [answer.request for answer in decided] == [10, 11, 20, 30, 12, 21, 31, 22, 32]


async def test_a_question_waits_for_its_turn_for_a_while_and_is_then_answered_with_busy(
    nursery, autojump_clock
) -> None:
    decided: list[Authorized] = []
    custom = CustomAuthorizer(Judge(), 20 * NS_PER_S, decided.append)
    await nursery.start(custom.run)
    for number in range(3 * VERDICTS_PER_SESSION_AT_ONCE):
        custom.ask(Authorize(number, 1, "subscribe", None, "slow"))
    custom.ask(Authorize(1000, 2, "subscribe", None, "slow"))
    await trio.sleep(61)
    late = [answer.request for answer in decided if answer.verdict == BUSY]
    assert late == list(range(2 * VERDICTS_PER_SESSION_AT_ONCE, 3 * VERDICTS_PER_SESSION_AT_ONCE))
    assert custom._lines == {}


async def test_what_a_session_that_ended_had_still_to_ask_is_not_asked(
    nursery, autojump_clock
) -> None:
    judge, decided = Judge(), list[Authorized]()
    custom = CustomAuthorizer(judge, 5 * NS_PER_S, decided.append)
    await nursery.start(custom.run)
    for number in range(1000):
        custom.ask(Authorize(number, 1, "subscribe", None, "slow"))
    custom.ask(Authorize(1000, 1, "disconnect"))
    await trio.sleep(6)
    actions = [action for action, _, _ in judge.asked]
    assert actions == ["subscribe"] * VERDICTS_PER_SESSION_AT_ONCE + ["disconnect"]
    assert len(decided) == VERDICTS_PER_SESSION_AT_ONCE
    assert custom._lines == {}


def test_a_class_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_rights.py").write_text(
        "class Rights:\n"
        "    async def connect(self, client, token): return True\n"
        "    update_token = subscribe = publish = disconnect = connect\n"
        "class Half:\n"
        "    async def connect(self, client, token): return True\n"
        "class Broken:\n"
        "    def __init__(self): raise OSError('no database')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(load_class("our_rights:Rights")).__name__ == "Rights"
    for name, reason in {
        "our_rights": "expected `package.module:Class`",
        "no_such_module_here:X": "ModuleNotFoundError: No module named",
        "our_rights:Missing": "AttributeError: ",
        "our_rights:Broken": "OSError: no database",
        "our_rights:Half": "it has no update_token, subscribe, publish, disconnect",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_class(name)
        assert str(caught.value).startswith(f"EntitlementCustom.Class = {name}: {reason}")
    del sys.modules["our_rights"]
