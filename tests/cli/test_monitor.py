"""What keeps an operator out: every command that asks a monitor says it in one line."""

import pytest

from tests.cli.conftest import Monitored
from tests.cli.test_mistakes import mdserver


@pytest.mark.parametrize("command", ["top", "stats", "sessions"])
def test_what_keeps_an_operator_out_is_one_line(monitored: Monitored, command: str) -> None:
    monitor = monitored.monitor
    (told,) = mdserver(command, "--monitor", monitor).told
    assert "MDSERVER_MONITORPASSWORD" in told
    wrong = {**monitored.password, "MDSERVER_MONITORPASSWORD": "other"}
    (told,) = mdserver(command, "--monitor", monitor, **wrong).told
    assert told.startswith(f"mdserver: {monitor}: user or password is wrong")
    (told,) = mdserver(command, "--monitor", "http://127.0.0.1:1").told
    assert told.startswith("mdserver: cannot ask http://127.0.0.1:1: Connection refused (")
