"""`mdserver token`: what it makes is valid, and what it explains is what stands in a token."""

import json
import re
import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from mdserver.cli.main import exit_status

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n", encoding="ascii")
    return file


def key_files(folder: Path, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> list[Path]:
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return [private, public]


def token_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert exit_status(["token", *map(str, arguments)]) == 0
    return capsys.readouterr().out.strip()


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str | Path) -> str:
    assert exit_status(["token", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_token_carries_its_permissions_and_expires(
    secret_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = int(time.time())
    token = token_of(
        capsys,
        "--sub",
        "/a/**",
        "--sub",
        "/b/*",
        "--all",
        "/c/d",
        "--expires",
        "2 min",
        "--user",
        "ann",
        "--audience",
        "push",
        "--issuer",
        "desk",
        "--secret-file",
        secret_file,
    )
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], audience="push", issuer="desk")
    assert claims["permissions"] == {"sub": ["/a/**", "/b/*"], "all": ["/c/d"]}
    assert claims["sub"] == "ann"
    assert before + 120 <= claims["exp"] <= time.time() + 120


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    ],
    ids=["RSA", "EC"],
)
def test_keys_sign_with_the_algorithm_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key, algorithm: str
) -> None:
    private, public = key_files(tmp_path, key)
    token = token_of(capsys, "--pub", "/a/b", "--key-file", private)
    assert jwt.get_unverified_header(token)["alg"] == algorithm
    explained = token_of(capsys, "--explain", token, "--key-file", public)
    assert explained.startswith(f"signed with {algorithm}: valid\nexpires ")
    assert explained.endswith("\nmay publish to /a/b")


def test_an_explanation_says_everything(
    secret_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = token_of(
        capsys, "--sub", "/a/**", "--all", "/c/*", "--user", "ann", "--secret-file", secret_file
    )
    lines = token_of(capsys, "--explain", token).splitlines()
    assert lines[0] == "signed with HS256: not checked, that needs --secret-file or --key-file"
    assert re.fullmatch(r"expires \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, in 3[56]\d\d s", lines[1])
    assert lines[2:] == [
        "sub: ann",
        "may subscribe to /a/**",
        "may subscribe and publish to /c/*",
    ]
    other = tmp_path / "other"
    other.write_text("x" * 32, encoding="ascii")
    explained = token_of(capsys, "--explain", token, "--secret-file", other)
    assert explained.startswith("signed with HS256: not valid (Signature verification failed)")


def test_a_token_and_its_explanation_as_json(
    secret_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = ("--secret-file", secret_file)
    made = json.loads(token_of(capsys, "--sub", "/a/**", *secret, "--format", "json"))
    assert list(made) == ["token"]
    said = json.loads(token_of(capsys, "--explain", made["token"], *secret, "--format", "json"))
    assert said["signature"] == "valid"
    assert said["header"]["alg"] == "HS256"
    assert said["claims"]["permissions"] == {"sub": ["/a/**"]}
    assert said["expiry"].startswith("expires 2")


def test_what_the_server_would_refuse_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    expired = jwt.encode({"exp": 1, "permissions": {"sub": "/a/b"}}, SECRET)
    explained = token_of(capsys, "--explain", expired)
    assert "expires 1970-01-01 00:00:01 UTC, " in explained
    assert "s ago" in explained
    assert explained.endswith("`permissions.sub` is no list: the server refuses it")
    bare = token_of(capsys, "--explain", jwt.encode({}, SECRET)).splitlines()
    assert bare[1:] == [
        "no claim `exp`: the server refuses it",
        "no claim `permissions`: the server refuses it",
    ]
    endless = jwt.encode({"exp": 1e300, "permissions": {}}, SECRET)
    assert "which is no time" in token_of(capsys, "--explain", endless)


def test_mistakes(secret_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "short"
    short.write_text("too short", encoding="ascii")
    pattern = ("--sub", "/a/b")
    assert "allows nothing" in refused(capsys, 2, "--secret-file", secret_file)
    assert "--secret-file or --key-file" in refused(capsys, 2, *pattern)
    assert "not both" in refused(
        capsys, 2, *pattern, "--secret-file", secret_file, "--key-file", secret_file
    )
    assert "needs 32 bytes or more, this has 9" in refused(
        capsys, 2, *pattern, "--secret-file", short
    )
    assert "no private key in PEM form" in refused(capsys, 2, *pattern, "--key-file", short)
    assert "RS256 does not fit this key; HS256, HS384, HS512 does" in refused(
        capsys, 2, *pattern, "--secret-file", secret_file, "--algorithm", "RS256"
    )
    assert "--expires" in refused(
        capsys, 2, *pattern, "--secret-file", secret_file, "--expires", "soon"
    )
    assert "this is no token" in refused(capsys, 1, "--explain", "abc")


def test_a_key_on_another_curve_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private, _ = key_files(tmp_path, ec.generate_private_key(ec.SECP384R1()))
    error = refused(capsys, 2, "--sub", "/a/b", "--key-file", private)
    assert "EC key on the curve P-256" in error
