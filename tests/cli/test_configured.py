"""What the configuration says reaches the layers; the defaults of both agree."""

from mdserver.cli.configured import broker_settings
from mdserver.config import Config, load
from mdserver.core.entitlement import Policy
from mdserver.core.settings import BrokerSettings
from mdserver.limits import KB, MB, NS_PER_S


def test_the_defaults_of_the_table_are_those_of_the_broker_but_for_the_policy() -> None:
    assert broker_settings(Config()) == BrokerSettings(policy=Policy.BASIC)


def test_every_parameter_of_the_broker_arrives() -> None:
    config = load(
        overrides=[
            "NodeName=n1", "SubjectMinSegments=1", "MaxMessageSize=1KB", "MaxSubjects=2",
            "MaxSubscriptionsPerSession=3", "MaxCachedMessagesPerSubject=4", "CacheExpireTime=5",
            "MaxCacheBytes=6MB", "SnapshotExpireTime=7", "PublishSnapshotMessage=false",
            "KeepAliveInterval=8", "Entitlement=None", "EntitlementAllowToken=t",
        ]
    ).config  # fmt: skip
    assert broker_settings(config) == BrokerSettings(
        member="n1", subject_segments_min=1, message_bytes_max=KB, subjects_max=2,
        subscriptions_per_session_max=3, cached_messages_per_subject=4, cache_expire=5 * NS_PER_S,
        cache_bytes_max=6 * MB, snapshot_expire=7 * NS_PER_S, publish_snapshot=False,
        keepalive=8 * NS_PER_S, policy=Policy.NONE, allow_token="t",
    )  # fmt: skip
