"""Section: the journal."""

import enum
from pathlib import Path

import attrs

from mdserver import limits
from mdserver.config import values
from mdserver.config.parameter import parameter
from mdserver.limits import GB, MB, NS_PER_MS, NS_PER_S

DAY = 86400 * NS_PER_S


class JournalFsync(enum.Enum):
    """When written data is forced to disk, so that it survives a power cut."""

    NONE = "none"
    INTERVAL = "interval"
    COMMIT = "commit"


class JournalDiskFull(enum.Enum):
    """What the server does while the journal cannot be written."""

    REFUSE = "refuse"
    CONTINUE = "continue"


@attrs.frozen(kw_only=True, slots=False)
class Journals:
    """Journal"""

    journal: bool = parameter(
        "Journal",
        values.SWITCH,
        False,
        """Whether the server writes a journal: files of JSON lines with every committed message,
        and with what clients did, for `mdserver pipeline`. docs/operations.md says what is in it
        and what happens at each failure.""",
    )
    journal_folder: Path = parameter(
        "JournalFolder",
        values.PATH,
        Path("journal"),
        """The folder of the journal; each server needs one of its own.""",
    )
    journal_fsync: JournalFsync = parameter(
        "JournalFsync",
        values.choice(JournalFsync),
        JournalFsync.INTERVAL,
        """When what was written is made to survive a power cut; it survives the end of the process
        in any case. `none`: when the system likes. `interval`: once a second. `commit`: before a
        publication is acknowledged, with one call for all that wait.""",
    )
    journal_segment_time: int = parameter(
        "JournalSegmentTime",
        values.duration(100 * NS_PER_MS, 3600 * NS_PER_S),
        limits.JOURNAL_SEGMENT_S * NS_PER_S,
        """After which time a file of the journal is closed and another begun, unless it is full
        (64 MB) before. Readers take closed files only, so this is how far they are behind.""",
    )
    journal_size_limit: int = parameter(
        "JournalSizeLimit",
        values.size(MB, 65536 * GB),
        limits.JOURNAL_BYTES_MAX,
        """How large the closed files of each stream may be together. The oldest are deleted beyond
        it, whether somebody has read them or not; the server log says so.""",
    )
    journal_age_limit: int = parameter(
        "JournalAgeLimit",
        values.duration(NS_PER_S, 3650 * DAY),
        limits.JOURNAL_AGE_DAYS_MAX * DAY,
        """How old closed files of the journal may become; they are deleted then as well. Time in
        which no server runs does not count.""",
    )
    journal_disk_full: JournalDiskFull = parameter(
        "JournalDiskFull",
        values.choice(JournalDiskFull),
        JournalDiskFull.REFUSE,
        """What happens while the journal cannot be written, because the disk is full for example.
        `refuse`: publications are refused with the reason, until there is room. `continue`: they
        are taken, and the journal lacks them. The server log and `/health` say so either way.""",
    )
