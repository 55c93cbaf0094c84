"""What tests of failing disks do with a server: publish, read, kill, and read its log."""

from tests.journal.test_journal_process import history_of
from tests.live import LiveServer, lines_about, post

SUBJECT = "/a/b"
FULL = "write ENOSPC -1 */journal*/*"
"""No file of any journal takes a byte more."""


def texts_of(server: LiveServer) -> list[str]:
    """The contents that the server holds, in their order."""
    return [text for _, _, text in history_of(server)]


def history_id(server: LiveServer) -> object:
    """Under which history id the server began."""
    return lines_about(server.log, "journal restored")[-1]["history"]


def published(server: LiveServer, content: str) -> None:
    """Publish, and see it acknowledged."""
    assert post(server.url, SUBJECT, content=content)["status"] == "OK"


def killed(server: LiveServer) -> None:
    """End the server at once."""
    server.process.kill()
    server.process.wait()
