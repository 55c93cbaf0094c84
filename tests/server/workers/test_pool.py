"""What the server gives its workers."""

from pathlib import Path

from mdserver.config import load
from mdserver.server.worker import config_of
from mdserver.server.workers.pool import texts_of


def test_a_worker_gets_the_very_configuration_of_its_server(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        "Listen = 127.0.0.1:8801, [::1]:8802\n"
        "ListenEncrypted = 127.0.0.1:8443\n"
        "KeyStore.127.0.0.1:8443 = certificates/one.pem\n"
        "MonitorPassword = a secret, with = and #\n"
        "KeepAliveInterval = 12.345 s\n"
        "MaxMessageSize = 70001 B\n"
        "ProxyAddressList = 10.0.0.0/8, fd00::/8\n"
        "Workers = auto\n",
        encoding="utf-8",
    )
    config = load(file).config
    texts = texts_of(config)
    assert texts["MonitorPassword"] == "a secret, with = and #"
    assert config_of(texts) == config
    assert config_of(texts_of(load().config)) == load().config
