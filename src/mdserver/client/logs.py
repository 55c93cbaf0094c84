"""The log `mdserver.client`: every status of a client, at a level that fits its weight."""

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
"""All others are logged at the level DEBUG: results of publications, recoveries without loss."""


def log_notice(notice: Notice) -> None:
    """Log a status."""
    level = _LEVELS.get(notice.status, logging.DEBUG)
    if LOG.isEnabledFor(level):
        words = (notice.status.name, notice.subject, notice.info)
        LOG.log(level, "%s", " ".join(word for word in words if word))
