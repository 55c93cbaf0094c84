"""Objects by name, in a folder or in an object store: `s3`, `s3a`, `gs`, `az`, `abfss`.

An object is there whole or not at all. `create` makes one and never changes one that is there, also
if two processes try at the same time: in a folder by a link to a finished file, in an object store
by a condition on the request (RFC 9110, section 13.1.2, `If-None-Match: *`).

Credentials come from the environment alone, under the names that the libraries of each provider
have (`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_KEY` ...).
Nothing here needs Spark.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from attrs import field, frozen

from mdserver.journal.segments import sync_folder
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.store_errors import store_reason

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
RETRY_S = 60.0
"""How long a request that fails is tried again before the job ends."""
REQUEST_S = 600.0
"""How long a request may take: a segment of 64 MB, at 1 Mbit/s."""
CONNECT_S = 10.0
"""How long a connection may take to be made."""
LEFT_S = 3600.0
"""How old a file is that no living process is writing."""
LEFT = re.compile(r"\..+\.[0-9a-f]{16}")
"""The name of a file that is to become an object."""
HTTP_SETTINGS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "timeout",
    "user_agent",
)


class ObjectStore(Protocol):
    """A place for objects. Names have slashes; all methods block and raise PipelineError."""

    @property
    def uri(self) -> str:
        """The place in words: a URI, or the path of a folder."""

    def check(self) -> None:
        """Raise PipelineError if the place is not there, or refuses to be listed."""

    def create(self, name: str, content: bytes) -> bool:
        """Make an object that survives a power cut; return False if there is one of that name."""

    def content(self, name: str) -> bytes:
        """Return an object. Raises FileNotFoundError if there is none."""

    def tail(self, name: str, bytes_max: int) -> tuple[int, bytes]:
        """Return an object's size and last bytes. Raises FileNotFoundError if there is none."""

    def fetch(self, name: str, path: Path) -> None:
        """Copy an object into a file. Raises FileNotFoundError if there is none."""

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Return the sizes of the objects directly below a folder, by the last part of the name.

        Only of those whose last part sorts behind `after`.
        """

    def times(self, folder: str) -> dict[str, float]:
        """Return when (s) each object directly below a folder was made, by the store's clock."""

    def folders(self, folder: str) -> list[str]:
        """Return the last part of the name of each folder directly below a folder, sorted."""


def is_uri(text: str) -> bool:
    """Return whether a text names a place by a scheme, and is not the path of a folder."""
    return "://" in text


def opened(place: str) -> ObjectStore:
    """Return the store at a URI, or at the path of a folder.

    Nothing is asked of it yet. Raises PipelineError if the URI is of no use, or if the library for
    it is missing.
    """
    if not is_uri(place):
        return FolderStore(Path(place).resolve())
    parts = urlsplit(place)
    if parts.scheme == "file":
        return FolderStore(Path(parts.path))
    if parts.scheme not in SCHEMES:
        raise PipelineError(
            f"{parts.scheme}:// is no place that is known: give a folder (what Hadoop has can be"
            f" mounted as one), file:// or {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    # By the whole text: a secret may have a slash, behind which a URI has no password any more.
    if ":" in parts.netloc or ("@" in place and parts.scheme not in ("abfs", "abfss")):
        raise PipelineError(
            "an address with a password would be seen by all users of the computer: give"
            " credentials by the environment"
        )
    return RemoteStore(place.rstrip("/"))


@frozen
class FolderStore:
    """A folder as a store."""

    path: Path
    _tidy: set[Path] = field(factory=set, init=False, eq=False, repr=False)
    """The folders in which this run has made sure of what earlier runs did."""

    @property
    def uri(self) -> str:
        """The path."""
        return str(self.path)

    def check(self) -> None:
        """Raise PipelineError if the folder is not there."""
        if not self.path.is_dir():
            raise PipelineError(f"{self.path} is no folder: make it, or mount what it stands for")

    def create(self, name: str, content: bytes) -> bool:
        """Make an object that survives a power cut; return False if there is one of that name."""
        path = self.path / name
        with self._told(path):
            if path.exists():
                # Whoever made it may have ended before this.
                self._sync_up(path.parent)
                return False
            _make(path.parent)
            fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            try:
                with fresh.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                if path.parent not in self._tidy:
                    _remove_left(path.parent, fresh.stat().st_mtime - LEFT_S)
                    self._sync_up(path.parent)
                    self._tidy.add(path.parent)
                try:
                    path.hardlink_to(fresh)
                except FileExistsError:
                    sync_folder(path.parent)
                    return False
            finally:
                fresh.unlink(missing_ok=True)
            sync_folder(path.parent)
        return True

    def content(self, name: str) -> bytes:
        """Return an object. Raises FileNotFoundError if there is none."""
        with self._told(self.path / name):
            return (self.path / name).read_bytes()

    def tail(self, name: str, bytes_max: int) -> tuple[int, bytes]:
        """Return an object's size and last bytes. Raises FileNotFoundError if there is none."""
        with self._told(self.path / name), (self.path / name).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - bytes_max))
            return size, file.read()

    def fetch(self, name: str, path: Path) -> None:
        """Copy an object into a file. Raises FileNotFoundError if there is none."""
        path.write_bytes(self.content(name))

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Return the sizes of the objects directly below a folder, by the last part of the name."""
        found = {}
        for path in self._below(folder):
            with contextlib.suppress(FileNotFoundError):
                if path.name > after and path.is_file():
                    found[path.name] = path.stat().st_size
        return found

    def times(self, folder: str) -> dict[str, float]:
        """Return when (s) each object directly below a folder was made, by the store's clock."""
        found = {}
        for path in self._below(folder):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[path.name] = path.stat().st_mtime
        return found

    def folders(self, folder: str) -> list[str]:
        """Return the last part of the name of each folder directly below a folder, sorted."""
        return sorted(path.name for path in self._below(folder) if path.is_dir())

    def _sync_up(self, folder: Path) -> None:
        """Sync a folder and those above it in the store: who made them may have ended before."""
        for each in (folder, *folder.parents):
            sync_folder(each)
            if each == self.path:
                return

    def _below(self, folder: str) -> list[Path]:
        with self._told(self.path / folder):
            try:
                return [path for path in (self.path / folder).iterdir() if path.name[0] != "."]
            except FileNotFoundError:
                return []

    @staticmethod
    @contextlib.contextmanager
    def _told(path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise PipelineError(f"{path}: {error.strerror}") from error


def _remove_left(folder: Path, before: float) -> None:
    """Remove what processes that were killed left before a time of this file system.

    What is younger may be of a process that is at work.
    """
    for left in folder.iterdir():
        # It takes room and does no harm, so an object is made also if this is refused.
        with contextlib.suppress(OSError):
            if LEFT.fullmatch(left.name) and left.stat().st_mtime < before:
                left.unlink()


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that their names survive a power cut."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


class RemoteStore:
    """An object store that is reached by HTTP. Raises PipelineError without its library."""

    def __init__(self, uri: str, *, request_s: float = REQUEST_S, retry_s: float = RETRY_S) -> None:
        self.uri = uri
        try:
            from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
            from obstore.store import from_url
        except ModuleNotFoundError:
            raise PipelineError(
                f"{urlsplit(uri).scheme}:// needs the package obstore: install the extra `ship`"
                " (in the folder of the mdserver repository: pip install '.[ship]')"
            ) from None
        self._exists: type[Exception] = AlreadyExistsError
        self._differs: type[Exception] = PreconditionError
        self._failures: tuple[type[Exception], ...] = (BaseError, OSError, ValueError)
        options: Any = _client_options(urlsplit(uri).scheme, request_s)
        with self._told():
            self._store: Any = from_url(
                uri,
                client_options=options,
                retry_config={"retry_timeout": timedelta(seconds=retry_s)},
            )

    def check(self) -> None:
        """Raise PipelineError if the place is not there, or refuses to be listed."""
        try:
            self.folders("")
        except FileNotFoundError as error:
            raise PipelineError(f"{self.uri}: {self._reason(error)}") from None

    def create(self, name: str, content: bytes) -> bool:
        """Make an object that survives a power cut; return False if there is one of that name."""
        return self.create_version(name, content) is not None

    def create_version(self, name: str, content: bytes) -> str | None:
        """Make an object and return its version, None if there is one of that name."""
        with self._told():
            try:
                # In parts it could not be made on the condition that there is none.
                made = self._store.put(name, content, mode="create", use_multipart=False)
            except self._exists:
                return None
            except FileNotFoundError as error:
                raise PipelineError(f"{self.uri}: {self._reason(error)}") from None
        return str(made["e_tag"])

    def with_version(self, name: str) -> tuple[bytes, str]:
        """Return an object and its version. Raises FileNotFoundError if there is none."""
        with self._told():
            found = self._store.get(name)
            return bytes(found.bytes()), str(found.meta["e_tag"])

    def replace(self, name: str, content: bytes, version: str) -> str | None:
        """Replace an object of this version; return its new one, None if it has another one."""
        with self._told():
            try:
                made = self._store.put(name, content, mode={"e_tag": version}, use_multipart=False)
            except (self._differs, FileNotFoundError):
                return None
        return str(made["e_tag"])

    def put(self, name: str, content: bytes | Path) -> None:
        """Make an object, or replace it."""
        with self._told():
            self._store.put(name, content)

    def content(self, name: str) -> bytes:
        """Return an object. Raises FileNotFoundError if there is none."""
        with self._told():
            return bytes(self._store.get(name).bytes())

    def tail(self, name: str, bytes_max: int) -> tuple[int, bytes]:
        """Return an object's size and last bytes. Raises FileNotFoundError if there is none."""
        with self._told():
            size = self._store.head(name)["size"]
            length = min(size, bytes_max)
            if not length:
                return size, b""
            return size, bytes(self._store.get_range(name, start=size - length, length=length))

    def fetch(self, name: str, path: Path) -> None:
        """Copy an object into a file. Raises FileNotFoundError if there is none."""
        with self._told(), path.open("wb") as file:
            for part in self._store.get(name):
                file.write(part)

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Return the sizes of the objects directly below a folder, by the last part of the name."""
        with self._told():
            if after:
                pages = self._store.list(folder, offset=f"{folder}/{after}")
                found = [each for page in pages for each in page]
            else:
                found = self._store.list_with_delimiter(folder)["objects"]
        parts = ((each["path"].rpartition("/"), each["size"]) for each in found)
        return {name: size for (above, _, name), size in parts if above == folder}

    def times(self, folder: str) -> dict[str, float]:
        """Return when (s) each object directly below a folder was made, by the store's clock."""
        with self._told():
            found = self._store.list_with_delimiter(folder)["objects"]
        return {
            each["path"].rpartition("/")[2]: each["last_modified"].timestamp() for each in found
        }

    def folders(self, folder: str) -> list[str]:
        """Return the last part of the name of each folder directly below a folder, sorted."""
        with self._told():
            found = self._store.list_with_delimiter(folder)["common_prefixes"]
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def _reason(self, error: Exception) -> str:
        """Return why a request failed, and what to look at."""
        return store_reason(error, urlsplit(self.uri).scheme)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except self._failures as error:
            raise PipelineError(f"{self.uri}: {self._reason(error)}") from error


def _client_options(scheme: str, request_s: float) -> dict[str, Any]:
    """Return the settings of the HTTP client: limits of time, and what the environment says.

    The library looks into the environment only if it is given none of them.
    """
    prefix = {"s3": "AWS", "s3a": "AWS", "gs": "GOOGLE"}.get(scheme, "AZURE")
    given = {name: os.environ.get(f"{prefix}_{name.upper()}") for name in HTTP_SETTINGS}
    return {
        "timeout": timedelta(seconds=request_s),
        "connect_timeout": timedelta(seconds=CONNECT_S),
        **{name: value for name, value in given.items() if value is not None},
    }
