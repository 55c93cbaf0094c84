"""A machine that was suspended: what expired meanwhile is over."""

import time
from pathlib import Path

import jwt

from tests.disk.conftest import FailingDisk
from tests.live import live_server, post

SECRET = "a secret of thirty-two bytes, or more"
HOUR_S = 3600


def test_a_token_expires_while_the_machine_is_suspended(tmp_path: Path, disk: FailingDisk) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    arguments = [
        "--set",
        "Listen=127.0.0.1:0",
        "--set",
        "Entitlement=JWT",
        "--set",
        f"EntitlementJWT.HmacSecretFile={secret}",
    ]
    claims = {"exp": int(time.time()) + HOUR_S, "permissions": {"pub": ["/a/b"]}}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    with live_server(tmp_path, *arguments, environment=disk.environment) as server:
        before = post(server.url, "/a/b", token)
        assert before["status"] == "OK", before
        disk.fails(f"suspended {2 * HOUR_S}")
        after = post(server.url, "/a/b", token)
        assert after["status"] != "OK", after
        assert "expired" in str(after), after
