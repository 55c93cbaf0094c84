"""Files with keys: what is read of them, and mistakes that name the file."""

import time
from pathlib import Path

import jwt
import pytest

from mdserver.config import Config
from mdserver.config.keys import hmac_secret, key_file, token_verifier
from mdserver.core.inputs import Denied, Grants
from mdserver.errors import ConfigError
from mdserver.limits import KEY_FILE_BYTES_MAX, NS_PER_S

SECRET = b"0123456789abcdef0123456789abcdef"


def test_a_line_end_at_the_end_is_no_part_of_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for end in (b"", b"\n", b"\r\n"):
        file.write_bytes(SECRET + end)
        assert key_file(file, hmac_secret).key == SECRET


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"short", "an HMAC secret needs 32 bytes or more, this has 5"),
        (b"x" * (KEY_FILE_BYTES_MAX + 1), f"larger than {KEY_FILE_BYTES_MAX} bytes"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        key_file(file, hmac_secret)
    assert str(caught.value) == f"{file}: {reason}"


def test_the_verifier_takes_every_configured_key_and_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    jwks = tmp_path / "keys.json"
    jwks.write_text('{"keys": [{"kty": "oct", "kid": "b", "k": "' + "QUFB" * 12 + '"}]}')
    config = Config(jwt_hmac_secret_file=secret, jwt_jwks_file=jwks, jwt_audience="push")
    verifier = token_verifier(config)
    now = time.time_ns()
    claims = {"exp": now // NS_PER_S + 60, "permissions": {"sub": ["/a/b"]}}
    for key, headers in ((SECRET, None), (b"AAA" * 12, {"kid": "b"})):
        token = jwt.encode({**claims, "aud": "push"}, key, headers=headers)
        assert isinstance(verifier.verify(token, now), Grants)
        assert isinstance(verifier.verify(jwt.encode(claims, key), now), Denied)
