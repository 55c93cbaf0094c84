"""The configuration of a server: a table of parameters, and the sources that set them."""

from mdserver.config.reading import Loaded, load
from mdserver.config.table import PARAMETERS, Config, Entitlement, LogLevel, Parameter
from mdserver.config.values import Address

__all__ = [
    "PARAMETERS", "Address", "Config", "Entitlement", "Loaded", "LogLevel", "Parameter", "load",
]  # fmt: skip
