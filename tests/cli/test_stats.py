"""`mdserver stats`: for people and for programs."""

import json

from tests.cli.conftest import Monitored
from tests.cli.test_mistakes import mdserver


def test_statistics_for_people_and_for_programs(monitored: Monitored) -> None:
    monitor = monitored.monitor
    shown = mdserver("stats", "--monitor", monitor, **monitored.password)
    assert (shown.status, shown.told) == (0, [])
    assert "messages_in a second, over the last" in shown.out
    for words in (["--json"], ["--format", "json"]):
        document = json.loads(
            mdserver("stats", "--monitor", monitor, *words, **monitored.password).out
        )
        assert document["total"]["messages_in"] == 1
        assert document["now"]["subjects"] == 1
