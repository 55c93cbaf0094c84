"""The configuration of a server: a table of parameters, and the sources that set them."""

from mdserver.config.parameter import Parameter
from mdserver.config.reading import Loaded, load
from mdserver.config.sections.clients import FanoutEngine, SlowConsumerPolicy
from mdserver.config.sections.journal import JournalDiskFull, JournalFsync
from mdserver.config.sections.kafka import ClusterEngine, KafkaAway
from mdserver.config.sections.logs import LogFormat, LogLevel
from mdserver.config.sections.members import DeliveryMode
from mdserver.config.sections.monitoring import MonitorKind
from mdserver.config.sections.rights import Entitlement
from mdserver.config.table import PARAMETERS, Config
from mdserver.config.values import Address

__all__ = [
    "PARAMETERS",
    "Address",
    "ClusterEngine",
    "Config",
    "DeliveryMode",
    "Entitlement",
    "FanoutEngine",
    "JournalDiskFull",
    "JournalFsync",
    "KafkaAway",
    "Loaded",
    "LogFormat",
    "LogLevel",
    "MonitorKind",
    "Parameter",
    "SlowConsumerPolicy",
    "load",
]
