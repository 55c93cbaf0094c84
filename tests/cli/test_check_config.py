"""`mdserver check-config` prints what `run` would use, or one line that says what is wrong."""

import json
from pathlib import Path

import pytest

from mdserver.cli.main import exit_status
from mdserver.config import PARAMETERS
from tests.server.certificates import make_certificate


@pytest.fixture(autouse=True)
def no_parameters_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in PARAMETERS.values():
        monkeypatch.delenv(row.environment, raising=False)


def test_every_parameter_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.conf"
    file.write_text("\nMaxSubjects = 7\nEntitlementAllowToken = s3cret\n", encoding="utf-8")
    monkeypatch.setenv("MDSERVER_MAXCONNECTIONS", "9")
    assert exit_status(["check-config", "--config", str(file), "--set", "Listen=*:0"]) == 0
    out, err = capsys.readouterr()
    lines = [line.rsplit("  # ", 1) for line in out.splitlines()]
    shown = {name.rstrip(): origin for name, origin in lines}
    names = [name for name, row in PARAMETERS.items() if row.per is None]
    assert [line.split(" = ")[0].removesuffix(" =") for line in shown] == names
    assert shown["MaxSubjects = 7"] == f"{file}:2"
    assert shown["MaxConnections = 9"] == "environment MDSERVER_MAXCONNECTIONS"
    assert shown["Listen = *:0"] == "--set"
    assert shown["LogLevel = info"] == "default"
    assert "s3cret" not in out
    assert err == (
        f"warning: EntitlementAllowToken: every user of this machine may read {file}: take that "
        f"right away (chmod o-rwx {file})\n"
    )
    file.chmod(0o640)
    assert exit_status(["check-config", "--config", str(file)]) == 0
    assert capsys.readouterr().err == ""


def test_what_should_be_seen_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = make_certificate(tmp_path / "key.pem")
    key.chmod(0o644)
    sets = ["Entitlement=None", "ListenEncrypted=*:1", f"KeyStore={key}"]
    arguments = [word for each in sets for word in ("--set", each)]
    assert exit_status(["check-config", *arguments]) == 0
    origins, keys = capsys.readouterr().err.splitlines()
    assert origins.startswith("warning: Entitlement = None with AllowedOrigins = *: any web page")
    assert keys.startswith(f"warning: KeyStore: every user of this machine may read {key}")
    key.chmod(0o600)
    arguments += ["--set", "AllowedOrigins=https://a.example"]
    assert exit_status(["check-config", *arguments]) == 0
    assert capsys.readouterr().err == ""


def test_a_mistake_is_one_line_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.conf"
    file.write_text("MaxSubject = 7\n", encoding="utf-8")
    assert exit_status(["check-config", "--config", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    expected = "MaxSubject: no such parameter; the nearest known name is MaxSubjects"
    assert err == f"{file}:1: {expected}\n"


def test_files_and_classes_that_are_missing_are_all_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.conf"
    file.write_text(
        "ListenEncrypted = 127.0.0.1:0\n"
        "KeyStore = chain.pem, key.pem\n"
        "Entitlement = JWT\n"
        "EntitlementJWT.HmacSecretFile = secret\n"
        "Extension.Presence = true\n"
        "Extension.Presence.Class = no_such_module:Hook\n"
        "LogFolder = logs\n"
        "ClusterMembers = a:1, b:1, c:1\n"
        "ClusterMemberListen = a:1\n",
        encoding="utf-8",
    )
    assert exit_status(["check-config", "--config", str(file)]) == 2
    mistakes = capsys.readouterr().err.splitlines()
    assert [
        any(about in line for line in mistakes)
        for about in (
            f"Cannot read the KeyStore {tmp_path}/chain.pem and {tmp_path}/key.pem: No such file",
            f"{tmp_path}/secret: cannot be read: No such file",
            "Extension.Presence.Class = no_such_module:Hook: ModuleNotFoundError",
            "ClusterPassword is missing",
        )
    ] == [True] * 4, mistakes
    assert not (tmp_path / "logs").exists(), "a check writes nothing"
    assert list(tmp_path.iterdir()) == [file]


def test_units_and_quotes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    sets = {
        "KeepAliveInterval=5m": "unknown unit m: minutes are written `min`",
        "KeepAliveInterval=5 secs": "unknown unit secs: seconds are written `s`",
        "MaxMessageSize=1M": "unknown unit M: megabytes (1,024 KB) are written `MB`",
        "NodeName='n1'": "values stand as they are: leave the quotes out",
        'MaxSubjects="7"': "values stand as they are: leave the quotes out",
    }
    for setting, told in sets.items():
        assert exit_status(["check-config", "--set", setting]) == 2
        assert capsys.readouterr().err.endswith(f": {told}\n")
    assert exit_status(["check-config", "--set", 'MonitorPassword="s3cret"']) == 2
    assert "s3cret" not in capsys.readouterr().err


def test_the_configuration_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "MaxSubjects=7", "--set", "MonitorPassword=s3cret-of-many"]
    assert exit_status(["check-config", "--format", "json", *sets]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["MaxSubjects"] == {"value": "7", "origin": "--set"}
    assert shown["MonitorPassword"] == {"value": "(hidden)", "origin": "--set"}


def test_all_mistakes_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.conf"
    file.write_text("MaxSubject = 7\nMaxSubjects = many\n", encoding="utf-8")
    assert exit_status(["check-config", "--config", str(file)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:1: MaxSubject: no such parameter")
    assert second.startswith(f"{file}:2: MaxSubjects = many: expected a whole number")
