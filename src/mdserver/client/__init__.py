"""The Python client, for Trio and asyncio (docs/clients.md).

`Client` publishes and subscribes. Its protocol logic, without I/O, is in `mdserver.client.core`;
`mdserver.client.sync` has a client whose methods block.
"""

from mdserver.client.client import Client
from mdserver.client.core.schedule import ReconnectPolicy, ReconnectSettings
from mdserver.client.core.values import Notice, Notification, Numbering, PublishResult
from mdserver.client.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClientError,
    ClientTimeoutError,
    ConnectError,
    NotOpenError,
    PublishError,
    StoppedError,
    SubscribeError,
    TransportError,
)
from mdserver.client.message import Message
from mdserver.client.publication import Publication
from mdserver.client.statuses import Statuses
from mdserver.client.subscription import Subscription
from mdserver.core.message import MessageType, Position, Qos

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Client",
    "ClientError",
    "ClientTimeoutError",
    "ConnectError",
    "Message",
    "MessageType",
    "NotOpenError",
    "Notice",
    "Notification",
    "Numbering",
    "Position",
    "Publication",
    "PublishError",
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
