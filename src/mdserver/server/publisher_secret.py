"""The secret behind the keys of publishers (docs/protocol.md, "Numbered publications").

Members of a cluster derive it from the password that they share. A single server draws it at random
and keeps it as long as the publishers' numbers: in the journal's folder, or without a journal in
memory.
"""

import hashlib
import os
import secrets
from pathlib import Path

from mdserver.config import ClusterEngine, Config
from mdserver.errors import StartError
from mdserver.limits import PUBLISHER_SECRET_BYTES

FILE = "publishers.key"
_SALT = b"mdserver keys of publishers"


def publisher_secret(config: Config) -> bytes:
    """Return the secret of this server; the journal's folder must be there. Raises StartError."""
    if config.cluster_members or config.cluster_engine is ClusterEngine.KAFKA:
        return shared(config.cluster_password)
    if config.journal:
        return kept(config.journal_folder / FILE)
    return secrets.token_bytes(PUBLISHER_SECRET_BYTES)


def shared(password: str) -> bytes:
    """Return the secret of a cluster, derived from its password.

    The derivation is slow on purpose: publishers see keys that were made with the secret, and must
    not be able to guess the password from them.
    """
    return hashlib.scrypt(
        password.encode(), salt=_SALT, n=2**14, r=8, p=1, dklen=PUBLISHER_SECRET_BYTES
    )


def kept(path: Path) -> bytes:
    """Return the secret in a file, which is made if there is none. Raises StartError."""
    try:
        if not path.exists():
            _make(path)
        secret = bytes.fromhex(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"the secret of the publishers' keys: {error}") from None
    except ValueError:
        secret = b""
    if len(secret) != PUBLISHER_SECRET_BYTES:
        raise StartError(
            f"{path} is damaged: it holds {2 * PUBLISHER_SECRET_BYTES} hexadecimal digits. Restore "
            "it, or remove it: publishers then get new identities, and what they repeat from "
            "before is taken twice"
        )
    return secret


def _make(path: Path) -> None:
    """Write a new secret; it is on the disk when this returns, so before its first use."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(secrets.token_hex(PUBLISHER_SECRET_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
