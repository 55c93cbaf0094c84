"""Checks the files, keys, classes and addresses of a configuration, without starting a server."""

from collections.abc import Callable, Iterator
from functools import partial

from mdserver import limits
from mdserver.config import Config, Entitlement, FanoutEngine
from mdserver.config.keys import token_verifier
from mdserver.errors import MdserverError
from mdserver.server.clients.admission import DESCRIPTORS_KEPT_BACK, lowered
from mdserver.server.clients.fanout import open_fanout
from mdserver.server.kafka.decoding import METHODS as DECODER_METHODS
from mdserver.server.kafka.decoding import decoder_settings
from mdserver.server.kafka.opening import open_kafka
from mdserver.server.member import open_member
from mdserver.server.plugins.custom import load_class
from mdserver.server.plugins.presence import METHODS
from mdserver.server.settings import jmx_settings, otel_settings, server_settings, worker_count
from mdserver.server.tls import KeyStore, ListenerCertificate


def unusable(config: Config) -> list[str]:
    """Return a sentence for each mistake that would keep a server from starting."""
    mistakes = []
    for check in _checks(config):
        try:
            check()
        except MdserverError as error:
            mistakes.append(str(error))
    return mistakes


def limited(config: Config) -> list[str]:
    """Return a sentence for each parameter of which the system allows less.

    The default of MaxConnections is more than most servers need. It is reported only if the system
    allows fewer than CONNECTIONS_EXPECTED.
    """
    sentences = []
    processes = worker_count(config) or 1
    possible = lowered(config.max_connections, processes)
    asked = config.max_connections != limits.CONNECTIONS_MAX
    if possible is not None and (possible < limits.CONNECTIONS_EXPECTED or asked):
        sentences.append(lowered_sentence(config.max_connections, possible, processes))
    fanout = open_fanout(config.fanout_engine)
    if fanout.reason is not None and config.fanout_engine is not FanoutEngine.AUTO:
        sentences.append(
            f"FanoutEngine = {config.fanout_engine.value}: {fanout.engine.value} is used instead. "
            + fanout.reason
        )
    return sentences


def lowered_sentence(connections_max: int, possible: int, processes: int = 1) -> str:
    """Return a sentence that says how many connections are possible, and what would allow more."""
    files = possible // processes + DESCRIPTORS_KEPT_BACK
    each = "this process" if processes == 1 else f"each of the {processes} workers"
    takes = "it takes" if processes == 1 else "they take"
    return (
        f"MaxConnections = {connections_max}: {each} may open only {files} files, so {takes} at "
        f"most {possible} connections; raise that limit (LimitNOFILE of systemd, ulimit -Hn), or "
        "lower MaxConnections"
    )


def _checks(config: Config) -> Iterator[Callable[[], object]]:
    """Yield the actions of a start that use the configuration and have no effect."""
    yield partial(server_settings, config)
    yield partial(jmx_settings, config)
    yield partial(otel_settings, config)
    stores = dict.fromkeys((config.key_store,) if config.key_store else ())
    stores |= dict.fromkeys(files for _, files in config.key_stores)
    for files in stores:
        yield partial(ListenerCertificate, KeyStore(*files), config.cipher_list)
    if config.entitlement is Entitlement.JWT:
        yield partial(token_verifier, config)
    if config.entitlement is Entitlement.CUSTOM:
        yield partial(load_class, config.custom_class)
    if config.presence_class:
        yield partial(
            load_class, config.presence_class, "Extension.Presence.Class", METHODS.values()
        )
    yield partial(open_member, config)
    yield partial(open_kafka, config)
    if config.kafka_decoder_class:
        yield partial(_open_decoder, config)


def _open_decoder(config: Config) -> None:
    made = load_class(config.kafka_decoder_class, "Kafka.Decoder.Class", DECODER_METHODS)
    decoder_settings(made, config.kafka_decoder_deadline)
