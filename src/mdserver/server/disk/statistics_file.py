"""Keeps the windows of the statistics on the disk, so that they survive a restart.

The file lies in `JournalFolder`, beside the streams. It is small and is replaced as a whole, so a
server that is killed while it writes leaves the previous file. Only statistics depend on it: a file
that cannot be read is put aside, and one that cannot be written is a line in the log.
"""

import os
from pathlib import Path
from zlib import crc32

import msgspec
import structlog
import trio

from mdserver.core.windows import ImageError, Windows, WindowsImage
from mdserver.limits import STATISTICS_FILE_BYTES_MAX, STATISTICS_SAVE_S

NAME = "statistics.bin"
SAVE_TIMEOUT_S = 5
_CRC_BYTES = 4
log = structlog.get_logger()


class StatisticsFile:
    """The file `statistics.bin` in a folder. `_troubled`: the last attempt to write it failed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._troubled = False

    def restore(self, windows: Windows) -> bool:
        """Restore windows from the file; return whether there is a file that can be used."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            log.warning("statistics begin anew", reason=str(error))
            return False
        try:
            windows.restore(decoded(content))
        except ImageError as error:
            aside = self._path.with_suffix(".aside")
            log.warning("statistics begin anew", reason=str(error), kept_as=str(aside))
            try:
                self._path.replace(aside)
            except OSError:
                return False  # it is replaced when the next one is written
            return False
        return True

    def write(self, image: WindowsImage) -> None:
        """Replace the file; it is on the disk when this returns. Blocks. Raises OSError."""
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(encoded(image))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)

    async def run(self, windows: Windows) -> None:
        """Write the windows every `STATISTICS_SAVE_S` until cancelled, and then a last time."""
        try:
            while True:
                await trio.sleep(STATISTICS_SAVE_S)
                await self._save(windows)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(SAVE_TIMEOUT_S):
                await self._save(windows)

    async def _save(self, windows: Windows) -> None:
        try:
            await trio.to_thread.run_sync(self.write, windows.image(), abandon_on_cancel=True)
        except OSError as error:
            if not self._troubled:
                log.warning("statistics cannot be saved", reason=str(error))
            self._troubled = True
        else:
            self._troubled = False


def encoded(image: WindowsImage) -> bytes:
    """Return an image as it stands in the file: a checksum, then MessagePack."""
    content = msgspec.msgpack.encode(image)
    return crc32(content).to_bytes(_CRC_BYTES, "big") + content


def decoded(content: bytes) -> WindowsImage:
    """Return the image in a file. Raises ImageError."""
    if len(content) > STATISTICS_FILE_BYTES_MAX:
        raise ImageError(f"It has more than {STATISTICS_FILE_BYTES_MAX} bytes.")
    checksum, body = content[:_CRC_BYTES], content[_CRC_BYTES:]
    if crc32(body).to_bytes(_CRC_BYTES, "big") != checksum:
        raise ImageError("Its checksum is wrong.")
    try:
        return msgspec.msgpack.decode(body, type=WindowsImage)
    except msgspec.MsgspecError as error:
        raise ImageError(str(error)) from None
