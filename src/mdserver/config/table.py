"""The parameter table: every `Name = value` that `mdserver run` understands.

A section is an attrs class, a parameter one of its fields; `Config` is all of them together. The
documentation and the commented configuration file are made from this table
(`python -m mdserver.config`), so each meaning is one paragraph for an operator.
"""

from typing import Any

import attrs

from mdserver.config.parameter import Parameter, section_parameters
from mdserver.config.sections.clients import Clients
from mdserver.config.sections.journal import Journals
from mdserver.config.sections.kafka import Kafka
from mdserver.config.sections.listening import Encryption, Listening
from mdserver.config.sections.logs import Audit, Logs
from mdserver.config.sections.members import Members
from mdserver.config.sections.messages import Messages
from mdserver.config.sections.monitoring import Monitoring
from mdserver.config.sections.rights import Custom, Rights, Tokens

SECTIONS: tuple[type[Any], ...] = (
    Listening,
    Encryption,
    Messages,
    Clients,
    Rights,
    Tokens,
    Custom,
    Logs,
    Audit,
    Journals,
    Monitoring,
    Members,
    Kafka,
)


@attrs.frozen(kw_only=True, slots=False)
class Config(
    Listening,
    Encryption,
    Messages,
    Clients,
    Rights,
    Tokens,
    Custom,
    Logs,
    Audit,
    Journals,
    Monitoring,
    Members,
    Kafka,
):
    """All parameters with their values; times in nanoseconds, sizes in bytes."""


PARAMETERS: dict[str, Parameter] = {
    row.name: row for section in SECTIONS for row in section_parameters(section)
}
