"""Weaknesses of a configuration that an operator should fix although the server starts."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from mdserver.config.reading import Loaded
from mdserver.config.sections.kafka import ClusterEngine
from mdserver.config.sections.rights import Entitlement
from mdserver.config.table import PARAMETERS, Config

_SECRET_PROPERTY = re.compile(
    r"^[ \t]*(sasl\.jaas\.config|ssl\.keystore\.key|[a-z.]*(password|secret))[ \t]*[=: ]",
    re.MULTILINE,
)
"""The beginning of a line of a properties file that sets a secret."""


def concerns(loaded: Loaded) -> list[str]:
    """Return one sentence for each weakness, with what would be right."""
    config = loaded.config
    found = []
    if config.entitlement is Entitlement.NONE and "*" in config.allowed_origins:
        found.append(
            "Entitlement = None with AllowedOrigins = *: any web page that a browser of this "
            "network opens may read and publish here; let AllowedOrigins name the pages that may"
        )
    for name, file in (*_key_files(config), *_secret_files(loaded), *_kafka_files(config)):
        mode = _mode(file)
        if mode & stat.S_IROTH:
            found.append(
                f"{name}: every user of this machine may read {file}: take that right away "
                f"(chmod o-rwx {file})"
            )
    return found


def _key_files(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the files with private keys and secrets, each with the parameter that names it."""
    # A key store is one file with everything, or the chain and then the key.
    if config.key_store:
        yield "KeyStore", config.key_store[-1]
    for address, files in config.key_stores:
        if files:
            yield f"KeyStore.{address}", files[-1]
    if config.cluster_member_key_store:
        yield "ClusterMemberKeyStore", config.cluster_member_key_store[-1]
    if config.jwt_hmac_secret_file is not None:
        yield "EntitlementJWT.HmacSecretFile", config.jwt_hmac_secret_file


def _secret_files(loaded: Loaded) -> Iterator[tuple[str, Path]]:
    """Yield the configuration files that contain a secret, each with its parameter."""
    for name, file in loaded.files.items():
        row = PARAMETERS.get(name)
        if row is not None and row.secret and getattr(loaded.config, row.attribute):
            yield name, file


def _kafka_files(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the properties files of Kafka clients that contain a secret."""
    if config.cluster_engine is not ClusterEngine.KAFKA:
        return
    for name, file in (
        ("Kafka.ConsumerProperties", config.kafka_consumer_properties),
        ("Kafka.ProducerProperties", config.kafka_producer_properties),
    ):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # an unreadable file is reported by the code that needs it
        if _SECRET_PROPERTY.search(text):
            yield name, file


def _mode(file: Path) -> int:
    try:
        return file.stat().st_mode
    except OSError:
        return 0  # an unreadable file is reported by the code that needs it
