"""Secrets that stand in files of their own, so that no configuration file holds them."""

from pathlib import Path

from mdserver import limits
from mdserver.errors import ConfigError


def hmac_secret(file: Path) -> bytes:
    """The secret of an HMAC signature: the bytes of a file, without a line end at its end.

    Raises `ConfigError` where the file cannot be read, or the secret is shorter than the hash of
    HS256 is (RFC 7518, section 3.2).
    """
    try:
        with file.open("rb") as stream:
            secret = stream.read(limits.SECRET_BYTES_MAX + 1).rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if not limits.SECRET_BYTES_MIN <= len(secret) <= limits.SECRET_BYTES_MAX:
        raise ConfigError(
            f"{file}: expected a secret of {limits.SECRET_BYTES_MIN} to "
            f"{limits.SECRET_BYTES_MAX} bytes, found {len(secret)}"
        )
    return secret
