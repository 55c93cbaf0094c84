"""A server with a monitor, for the commands of operators."""

from collections.abc import Iterator

import pytest
from attrs import frozen

from tests.cli.test_mistakes import settings
from tests.live import LiveServer, live_server, post, wait_for_line


@frozen
class Monitored:
    """A live server, the URL of its monitor, and the variables with its user and password."""

    server: LiveServer
    monitor: str
    password: dict[str, str]


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """A server with a monitor, a password and one subject."""
    arguments = settings(
        Entitlement="None",
        Monitor="HTTP",
        MonitorHTTP_Listen="127.0.0.1:0",
        MonitorPassword="s3cret",
        LogFormat="json",
    )
    password = {"MDSERVER_MONITORUSERNAME": "admin", "MDSERVER_MONITORPASSWORD": "s3cret"}
    with live_server(tmp_path_factory.mktemp("server"), *arguments) as server:
        ready = wait_for_line(server.log, '"ready"')
        assert post(server.url, "/stocks/IBM")["status"] == "OK"
        yield Monitored(server, str(ready["monitor"][0]), password)  # type: ignore[index]
