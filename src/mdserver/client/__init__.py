"""The Python client, for Trio (docs/clients.md).

`Client` publishes and subscribes; the protocol logic without I/O is in `mdserver.client.core`.
"""

from mdserver.client.client import Client, PublishOptions, Statuses
from mdserver.client.core.schedule import ReconnectPolicy, ReconnectSettings
from mdserver.client.core.values import Notice, Notification, Numbering, PublishResult
from mdserver.client.errors import (
    ClientError,
    PublishError,
    StoppedError,
    SubscribeError,
    TransportError,
)
from mdserver.client.message import Message
from mdserver.client.publication import Publication
from mdserver.client.subscription import Subscription
from mdserver.core.message import MessageType, Position, Qos

__all__ = [
    "Client",
    "ClientError",
    "Message",
    "MessageType",
    "Notice",
    "Notification",
    "Numbering",
    "Position",
    "Publication",
    "PublishError",
    "PublishOptions",
    "PublishResult",
    "Qos",
    "ReconnectPolicy",
    "ReconnectSettings",
    "Statuses",
    "StoppedError",
    "SubscribeError",
    "Subscription",
    "TransportError",
]
