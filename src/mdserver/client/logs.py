"""What the client says in the log `mdserver.client`: what is told as a status, by its weight."""

import logging

from mdserver.client.core.values import Notice, Notification

LOG = logging.getLogger("mdserver.client")
_LEVELS = {
    Notification.SERVER_UP: logging.INFO,
    Notification.SERVER_DOWN: logging.WARNING,
    Notification.DATA_RESYNC: logging.WARNING,
    Notification.RECONNECT_RATE_EXCEEDED: logging.WARNING,
    Notification.SUBSCRIBE_DENY: logging.WARNING,
    Notification.CONNECT_DENY: logging.ERROR,
    Notification.TOKEN_TO_EXPIRE: logging.WARNING,
    Notification.TOKEN_EXPIRED: logging.WARNING,
    Notification.TOKEN_INVALID: logging.WARNING,
    Notification.ERROR: logging.WARNING,
}
"""The others are told at the level DEBUG: results of publications, recovery that went well."""


def log_notice(notice: Notice) -> None:
    """Write a status down."""
    level = _LEVELS.get(notice.status, logging.DEBUG)
    if LOG.isEnabledFor(level):
        words = (notice.status.name, notice.subject, notice.info)
        LOG.log(level, "%s", " ".join(word for word in words if word))
