"""The options `--config` and `--set`, and what the layers are told of the configuration."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mdserver.config import Address, Config, Entitlement, Loaded, MonitorKind, load
from mdserver.config.sections.listening import ProxyProtocol
from mdserver.config.values import loopback
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.errors import ConfigError
from mdserver.journal.writer import WriterSettings
from mdserver.limits import WEBSOCKET_SLACK_BYTES
from mdserver.net.rates import RateLimits
from mdserver.net.settings import ServerSettings
from mdserver.net.tls import KeyStore


def configuration_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--config FILE` and `--set Name=value` to a subcommand."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a parameter; wins over the file and the environment. Repeatable.",
    )(command)
    return click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The configuration file.",
    )(command)


def effective(file: Path | None, overrides: tuple[str, ...]) -> Loaded:
    """The configuration of this process. Raises `ConfigError`."""
    return load(file, os.environ, overrides)


_POLICIES = {
    Entitlement.NONE: Policy.NONE,
    Entitlement.BASIC: Policy.BASIC,
    Entitlement.JWT: Policy.ASK,
    Entitlement.CUSTOM: Policy.ASK,
}


def broker_settings(config: Config) -> BrokerSettings:
    """What the broker is told."""
    return BrokerSettings(
        member=config.node_name,
        subject_segments_min=config.subject_min_segments,
        subject_segments_max=config.subject_max_segments,
        groups=config.cluster_subject_groups,
        message_bytes_max=config.max_message_size,
        subjects_max=config.max_subjects,
        subscriptions_per_session_max=config.max_subscriptions_per_session,
        patterns_per_session_max=config.max_patterns_per_session,
        cached_messages_per_subject=config.max_cached_messages_per_subject,
        cache_expire=config.cache_expire_time,
        cache_bytes_max=config.max_cache_bytes,
        snapshot_expire=config.snapshot_expire_time,
        publish_snapshot=config.publish_snapshot_message,
        keepalive=config.keep_alive_interval,
        policy=_POLICIES[config.entitlement],
        allow_token=config.entitlement_allow_token,
        ask_each=config.entitlement is Entitlement.CUSTOM,
        renew_token_before=config.jwt_renew_token_before,
        publish_networks=config.publish_allow_from_address_list,
        audit_access=config.audit_access or config.journal,
        audit_message=config.audit_message or config.journal,
        audit_cache=config.audit_cache or config.journal,
        receipts=config.journal,
        presence=config.presence,
    )


def writer_settings(config: Config) -> WriterSettings:
    """What the journal is told."""
    return WriterSettings(
        fsync=config.journal_fsync,
        disk_full=config.journal_disk_full,
        segment_time=config.journal_segment_time,
        bytes_max=config.journal_size_limit,
        age_max=config.journal_age_limit,
    )


def monitor_listen(config: Config) -> tuple[Address, ...]:
    """Where operators ask, if anywhere. Raises ConfigError where strangers could ask as well."""
    address = config.monitor_http_listen
    if MonitorKind.HTTP not in config.monitor or address is None:
        return ()
    guarded = config.monitor_http_authentication and config.monitor_password
    if not guarded and not loopback(address.host):
        raise ConfigError(f"MonitorHTTP.Listen = {address} needs a MonitorPassword")
    return (address,)


def server_settings(config: Config) -> ServerSettings:
    """What the network side is told. Raises ConfigError for what does not go together."""
    if config.proxy_protocol is ProxyProtocol.V2 and not config.proxy_address_list:
        raise ConfigError("ProxyProtocol = v2 needs a ProxyAddressList that names the proxies")
    origins, hosts = config.allowed_origins, config.allowed_hosts
    return ServerSettings(
        node_name=config.node_name,
        listen=config.listen,
        listen_encrypted=config.listen_encrypted,
        key_store=KeyStore(*config.key_store) if config.key_store else None,
        key_stores=tuple((address, KeyStore(*files)) for address, files in config.key_stores),
        ciphers=config.cipher_list,
        run_as_user=config.run_as_user,
        allowed_origins=None if "*" in origins else frozenset(map(str.lower, origins)),
        allowed_hosts=None if "*" in hosts else frozenset(map(str.lower, hosts)),
        proxies=config.proxy_address_list,
        proxy_protocol=config.proxy_protocol is ProxyProtocol.V2,
        transport_security=config.strict_transport_security,
        connections_max=config.max_connections,
        connections_per_address_max=config.max_connections_per_address,
        monitor_listen=monitor_listen(config),
        monitor_encrypted=config.monitor_http_encryption,
        outbox_bytes_max=config.buffer_limit_send,
        slow_consumers=config.slow_consumer_policy,
        batching=config.max_batching_time,
        batching_bytes=config.max_batching_space,
        receive_bytes_max=config.buffer_limit_receive,
        websocket_bytes_max=4 * config.max_message_size + WEBSOCKET_SLACK_BYTES,
        http_body_bytes_max=config.buffer_limit_receive,
        tokens_decide=_POLICIES[config.entitlement] is Policy.ASK,
        rates=RateLimits(
            config.max_command_rate,
            config.max_bytes_rate,
            config.max_command_rate_per_address,
            config.max_bytes_rate_per_address,
        ),
        handshake_timeout=config.handshake_timeout,
        keepalive=config.keep_alive_interval,
    )
