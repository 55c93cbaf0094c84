"""The life of a session: the table of its transitions, and what is none of them."""

import pytest

from mdserver.core.inputs import Opened
from mdserver.core.session import TRANSITIONS, Session, SessionEvent, SessionState, session_name
from mdserver.errors import LocalProtocolError


@pytest.mark.parametrize("state", SessionState)
@pytest.mark.parametrize("event", SessionEvent)
def test_an_event_leads_where_the_table_says_or_is_an_error(
    state: SessionState, event: SessionEvent
) -> None:
    session = Session(Opened(1, "127.0.0.1"))
    session.state = state
    following = TRANSITIONS.get((state, event))
    if following is None:
        with pytest.raises(LocalProtocolError):
            session.transition(event)
        assert session.state is state
    else:
        session.transition(event)
        assert session.state is following


def test_an_ended_session_stays_ended_and_every_other_one_can_end() -> None:
    assert not [state for state, _ in TRANSITIONS if state is SessionState.ENDED]
    can_end = {state for state, event in TRANSITIONS if event is SessionEvent.END}
    assert can_end == set(SessionState) - {SessionState.ENDED}


def test_a_session_has_one_name_for_clients_operators_and_logs() -> None:
    assert session_name("member-1", 7) == "member-1-7"
