"""What the configuration says reaches the layers; the defaults of both agree."""

from ipaddress import ip_network
from pathlib import Path

from mdserver.config import Address, Config, SlowConsumerPolicy, load
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.limits import KB, MB, NS_PER_MS, NS_PER_S
from mdserver.server.settings import ServerSettings, broker_settings, server_settings
from mdserver.server.tls import KeyStore


def test_the_defaults_of_the_table_are_those_of_the_broker_but_for_the_policy() -> None:
    assert broker_settings(Config()) == BrokerSettings(policy=Policy.BASIC)


def test_the_defaults_of_the_table_are_those_of_the_network_side() -> None:
    assert server_settings(Config()) == ServerSettings()


def test_every_parameter_of_the_network_side_arrives() -> None:
    here = Path.cwd()
    config = load(
        overrides=[
            "NodeName=n7",
            "Listen=[::1]:1, *:2",
            "AllowedOrigins=https://a.example, https://B.example",
            "AllowedHosts=MD.example",
            "StrictTransportSecurity=60",
            "MaxConnections=3",
            "MaxConnectionsPerAddress=4",
            "BufferLimit.Send=1MB",
            "BufferLimit.Receive=2MB",
            "HandshakeTimeout=5",
            "KeepAliveInterval=6",
            "MaxMessageSize=1KB",
            "ListenEncrypted=[::1]:7",
            "KeyStore=all.pem",
            "KeyStore.[::1]:7=chain.pem, key.pem",
            "CipherList=ECDHE",
            "RunAsUser=push",
            "SlowConsumerPolicy=conflate",
            "MaxBatchingTime=9",
            "MaxBatchingSpace=1KB",
        ]
    ).config
    assert server_settings(config) == ServerSettings(
        node_name="n7",
        listen=(Address("::1", 1), Address("*", 2)),
        allowed_origins=frozenset({"https://a.example", "https://b.example"}),
        allowed_hosts=frozenset({"md.example"}),
        transport_security=60 * NS_PER_S,
        connections_max=3,
        connections_per_address_max=4,
        outbox_bytes_max=MB,
        receive_bytes_max=2 * MB,
        websocket_bytes_max=68 * KB,
        http_body_bytes_max=2 * MB,
        listen_encrypted=(Address("::1", 7),),
        key_store=KeyStore(here / "all.pem"),
        key_stores=((Address("::1", 7), KeyStore(here / "chain.pem", here / "key.pem")),),
        ciphers="ECDHE",
        run_as_user="push",
        slow_consumers=SlowConsumerPolicy.CONFLATE,
        batching=9 * NS_PER_MS,
        batching_bytes=KB,
        handshake_timeout=5 * NS_PER_S,
        keepalive=6 * NS_PER_S,
    )


def test_every_parameter_of_the_broker_arrives() -> None:
    config = load(
        overrides=[
            "NodeName=n1",
            "SubjectMinSegments=1",
            "SubjectMaxSegments=9",
            "MaxPatternsPerSession=5",
            "MaxMessageSize=1KB",
            "MaxSubjects=2",
            "MaxSubscriptionsPerSession=3",
            "MaxCachedMessagesPerSubject=4",
            "CacheExpireTime=5",
            "MaxCacheBytes=6MB",
            "SnapshotExpireTime=7",
            "PublishSnapshotMessage=false",
            "KeepAliveInterval=8",
            "Entitlement=None",
            "EntitlementAllowToken=t",
            "PublishAllowFromAddressList=10.0.0.0/8",
            "Extension.Audit.Access=true",
            "Extension.Presence=true",
            "Extension.Audit.Message=true",
            "Extension.Audit.Cache=true",
            "LogFolder=logs",
        ]
    ).config
    assert broker_settings(config) == BrokerSettings(
        member="n1",
        subject_segments_min=1,
        subject_segments_max=9,
        patterns_per_session_max=5,
        message_bytes_max=KB,
        subjects_max=2,
        subscriptions_per_session_max=3,
        cached_messages_per_subject=4,
        cache_expire=5 * NS_PER_S,
        cache_bytes_max=6 * MB,
        snapshot_expire=7 * NS_PER_S,
        publish_snapshot=False,
        keepalive=8 * NS_PER_S,
        policy=Policy.NONE,
        allow_token="t",
        publish_networks=(ip_network("10.0.0.0/8"),),
        audit_access=True,
        presence=True,
        audit_message=True,
        audit_cache=True,
    )
