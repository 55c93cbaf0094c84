"""Secrets and keys in files of their own, so that no configuration file has to hold them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mdserver import limits
from mdserver.codec.tokens import TokenKey, TokenVerifier, hmac_key, jwks_keys, pem_key
from mdserver.config.table import Config
from mdserver.errors import ConfigError

T = TypeVar("T")


def key_file(file: Path, parse: Callable[[bytes], T]) -> T:
    """Read a file with a key or a secret; return what `parse` makes of its bytes.

    Raises `ConfigError`, which names the file.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(limits.KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > limits.KEY_FILE_BYTES_MAX:
        raise ConfigError(f"{file}: larger than {limits.KEY_FILE_BYTES_MAX} bytes")
    try:
        return parse(content)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def hmac_secret(content: bytes) -> TokenKey:
    """Return the secret in a file: its bytes without a line end at their end."""
    return hmac_key(content.rstrip(b"\r\n"))


def _one(parse: Callable[[bytes], TokenKey]) -> Callable[[bytes], list[TokenKey]]:
    return lambda content: [parse(content)]


def token_verifier(config: Config) -> TokenVerifier:
    """Return the verifier of tokens under `Entitlement = JWT`; reads the key files.

    Raises `ConfigError`, which names the parameter and the file.
    """
    keys: list[TokenKey] = []
    for name, file, parse in (
        ("HmacSecretFile", config.jwt_hmac_secret_file, _one(hmac_secret)),
        ("PublicKeyFile", config.jwt_public_key_file, _one(pem_key)),
        ("JwksFile", config.jwt_jwks_file, jwks_keys),
    ):
        if file:
            try:
                keys += key_file(file, parse)
            except ConfigError as error:
                raise ConfigError(f"EntitlementJWT.{name} = {error}") from None
    return TokenVerifier(keys, config.jwt_audience or None, config.jwt_issuer or None)
