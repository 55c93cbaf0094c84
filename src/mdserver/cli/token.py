"""`mdserver token`: make an entitlement token (JWT, RFC 7519) for a test, or explain any token."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from mdserver import limits
from mdserver.cli.forms import format_option
from mdserver.codec.tokens import (
    EC_ALGORITHMS,
    HMAC_ALGORITHMS,
    RSA_ALGORITHMS,
    TokenKey,
    pem_key,
)
from mdserver.config import values
from mdserver.config.keys import hmac_secret, key_file
from mdserver.core.text import safe_text
from mdserver.errors import ConfigError, MdserverError

PERMISSIONS = {"sub": "subscribe to", "pub": "publish to", "all": "subscribe and publish to"}
NAMES = ("sub", "aud", "iss")
ALGORITHMS = HMAC_ALGORITHMS + RSA_ALGORITHMS + EC_ALGORITHMS
_DURATION = values.duration(limits.NS_PER_S, 3650 * 86400 * limits.NS_PER_S)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("token")
@click.option("--sub", multiple=True, metavar="PATTERN", help="May subscribe. Repeatable.")
@click.option("--pub", multiple=True, metavar="PATTERN", help="May publish. Repeatable.")
@click.option("--all", "both", multiple=True, metavar="PATTERN", help="May do both. Repeatable.")
@click.option("--expires", default="1h", show_default=True, help="For how long it is valid.")
@click.option("--user", help="Who the token is for; stands in logs.")
@click.option("--audience", help="The `aud` claim, as in EntitlementJWT.Audience.")
@click.option("--issuer", help="The `iss` claim, as in EntitlementJWT.Issuer.")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="Default: what fits the key.")
@click.option("--secret-file", type=_FILE, help="The secret of an HMAC signature.")
@click.option(
    "--key-file", "pem_file", type=_FILE, help="A private key (PEM); with --explain a public one."
)
@click.option("--explain", metavar="TOKEN", help="Say what a token holds instead.")
@format_option("The token, or sentences with --explain; or a JSON object.")
def command(
    *,
    sub: tuple[str, ...],
    pub: tuple[str, ...],
    both: tuple[str, ...],
    expires: str,
    user: str | None,
    audience: str | None,
    issuer: str | None,
    algorithm: str | None,
    secret_file: Path | None,
    pem_file: Path | None,
    explain: str | None,
    form: str,
) -> None:
    """Make an entitlement token, or explain one.

    The token goes to stdout. It is signed with the secret of --secret-file or the private key of
    --key-file; the server checks it with the same secret or the public key.
    """
    if secret_file and pem_file:
        raise click.UsageError("Give --secret-file or --key-file, not both.")
    if explain is not None:
        explained = explanation_json if form == "json" else explanation
        click.echo(explained(explain, secret_file, pem_file, time.time()))
        return
    if not (sub or pub or both):
        raise click.UsageError("A token without --sub, --pub or --all allows nothing.")
    key, algorithm = signing_key(secret_file, pem_file, algorithm)
    permissions = {"sub": sub, "pub": pub, "all": both}
    claims: dict[str, Any] = {
        "exp": int(time.time()) + lifetime_s(expires),
        "permissions": {name: list(patterns) for name, patterns in permissions.items() if patterns},
    }
    optional = {"sub": user, "aud": audience, "iss": issuer}
    claims |= {name: value for name, value in optional.items() if value is not None}
    token = jwt.encode(claims, key, algorithm)
    click.echo(json.dumps({"token": token}) if form == "json" else token)


def lifetime_s(text: str) -> int:
    """Return the seconds of a duration such as `1h`."""
    try:
        return _DURATION.parse(text) // limits.NS_PER_S
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--expires") from None


def signing_key(
    secret_file: Path | None, private_file: Path | None, algorithm: str | None
) -> tuple[Any, str]:
    """Return the key to sign with, and an algorithm that fits it.

    Raises UsageError if there is no key or the algorithm does not fit.
    """
    if secret_file:
        secret = key_file(secret_file, hmac_secret)
        key, fitting = secret.key, secret.algorithms
    elif private_file:
        private = key_file(private_file, _private_key)
        key, fitting = private, key_file(private_file, _public_half).algorithms
    else:
        raise click.UsageError("Give the key to sign with: --secret-file or --key-file.")
    if algorithm and algorithm not in fitting:
        raise click.UsageError(f"{algorithm} does not fit this key; {', '.join(fitting)} does.")
    return key, algorithm or fitting[0]


def _private_key(pem: bytes) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError("this is no private key in PEM form without a password") from None


def _public_half(pem: bytes) -> TokenKey:
    public = _private_key(pem).public_key()
    return pem_key(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of a token, without checking its signature.

    Raises MdserverError if it is no token.
    """
    try:
        header = jwt.get_unverified_header(token)
        return header, jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise MdserverError(f"this is no token: {safe_text(error)}") from None


def explanation_json(
    token: str, secret_file: Path | None, public_file: Path | None, now_s: float
) -> str:
    """Return header, claims, signature and expiry of a token as a JSON object."""
    header, claims = _unverified(token)
    said = {
        "signature": verdict(token, secret_file, public_file),
        "expiry": expiry(claims.get("exp"), now_s),
        "header": header,
        "claims": claims,
    }
    return json.dumps(said)


def explanation(
    token: str, secret_file: Path | None, public_file: Path | None, now_s: float
) -> str:
    """Return lines for people about what a token holds and whether it is valid."""
    header, claims = _unverified(token)
    verified = verdict(token, secret_file, public_file)
    lines = [f"signed with {safe_text(header.get('alg'))}: {verified}"]
    lines += [f"key: {safe_text(header['kid'])}"] if "kid" in header else []
    lines.append(expiry(claims.get("exp"), now_s))
    lines += [f"{name}: {safe_text(claims[name])}" for name in NAMES if name in claims]
    permissions = claims.get("permissions")
    if not isinstance(permissions, dict):
        return "\n".join([*lines, "no claim `permissions`: the server refuses it"])
    for name, verb in PERMISSIONS.items():
        patterns = permissions.get(name, [])
        if not isinstance(patterns, list):
            return "\n".join([*lines, f"`permissions.{name}` is no list: the server refuses it"])
        lines += [
            f"may {verb} {safe_text(pattern, limits.SUBJECT_BYTES_MAX)}" for pattern in patterns
        ]
    return "\n".join(lines)


def verdict(token: str, secret_file: Path | None, public_file: Path | None) -> str:
    """Return whether the signature is right, as far as it can be checked with the given file."""
    if secret_file:
        key = key_file(secret_file, hmac_secret)
    elif public_file:
        key = key_file(public_file, pem_key)
    else:
        return "not checked, that needs --secret-file or --key-file"
    try:
        jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            options={"verify_exp": False, "verify_aud": False, "verify_sub": False},
        )
    except jwt.PyJWTError as error:
        return f"not valid ({safe_text(error)})"
    return "valid"


def expiry(claim: object, now_s: float) -> str:
    """Return in words when a token expires."""
    if not isinstance(claim, int | float):
        return "no claim `exp`: the server refuses it"
    try:
        moment = datetime.fromtimestamp(claim, UTC)
    except (OverflowError, OSError, ValueError):
        return f"expires at {claim}, which is no time"
    left = int(claim - now_s)
    word = f"in {left} s" if left > 0 else f"{-left} s ago"
    return f"expires {moment:%Y-%m-%d %H:%M:%S} UTC, {word}"
