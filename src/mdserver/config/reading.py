"""The sources of parameters: a file, the environment and `--set`; the later one wins.

A file has one `Name = value` a line. `#` at the start of a line makes it a comment; `\\` at the end
joins the next line to it, without that line's leading blanks. The mistakes of all sources are
reported together, so that an operator can correct them in one go.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mdserver import limits
from mdserver.config.parameter import Parameter
from mdserver.config.sections.kafka import ClusterEngine, KafkaAway
from mdserver.config.sections.rights import Entitlement
from mdserver.config.table import PARAMETERS, Config
from mdserver.config.values import Kind
from mdserver.errors import ConfigError

DEFAULT_ORIGIN = "default"
CLIENT_VARIABLES = ("MDSERVER_TOKEN", "MDSERVER_SERVER")  # what `pub`, `sub` and `snapshot` take
QUOTES = "\"'`"
_NEEDED = {
    Entitlement.JWT: (
        "EntitlementJWT.HmacSecretFile",
        "EntitlementJWT.PublicKeyFile",
        "EntitlementJWT.JwksFile",
    ),
    Entitlement.CUSTOM: ("EntitlementCustom.Class",),
}


@frozen
class Loaded:
    """A configuration, and the origin of each value by parameter name.

    `files` has the names whose values come from a file.
    """

    config: Config
    origins: dict[str, str]
    files: dict[str, Path] = field(factory=dict)


@frozen
class Setting:
    """One `name = text`, with its origin and the folder that its relative paths start from.

    `mistake` is the reason if the text is no setting at all.
    """

    origin: str
    name: str
    text: str
    folder: Path = field(factory=Path.cwd)
    mistake: str = ""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Loaded:
    """Return the effective configuration.

    `environment` holds the environment variables, `overrides` the arguments of `--set`. Relative
    paths in the file, and default paths, start from the folder of the file; all others (and default
    paths without a file) start from the working directory. All paths in the result are absolute.
    Raises `ConfigError` with a line for each mistake, which names the place and says what would be
    right.
    """
    reading = _Reading(file.parent.absolute() if file else Path.cwd())
    sources: list[Iterable[Setting]] = [
        file_settings(file) if file else (),
        environment_settings(environment or {}),
        override_settings(overrides),
    ]
    for source in sources:
        try:
            reading.take(source)
        except ConfigError as error:
            reading.mistakes.append(str(error))
    _raise_all(reading.mistakes)
    origins = reading.origins
    files = {
        name: file for name, origin in origins.items() if file and origin.startswith(f"{file}:")
    }
    loaded = Loaded(reading.config(), origins, files)
    _raise_all(_contradictions(loaded))
    return loaded


def _raise_all(mistakes: Iterable[str]) -> None:
    """Raise `ConfigError` with a line for each mistake, if there is any."""
    lines = list(mistakes)
    if lines:
        raise ConfigError("\n".join(lines))


class _Reading:
    """Collects the values of all sources, one after the other; the later one wins."""

    def __init__(self, folder: Path) -> None:
        self.mistakes: list[str] = []
        self.origins = {row.name: DEFAULT_ORIGIN for row in PARAMETERS.values() if row.per is None}
        self._arguments: dict[str, Any] = {
            row.attribute: _absolute(row.default, folder)
            for row in PARAMETERS.values()
            if row.per is None
        }
        self._families: dict[str, dict[object, object]] = {}

    def take(self, source: Iterable[Setting]) -> None:
        """Take all settings of a source and collect the mistakes."""
        seen: dict[str, str] = {}
        for setting in source:
            try:
                self._take(setting, seen)
            except ConfigError as error:
                self.mistakes.append(str(error))

    def _take(self, setting: Setting, seen: dict[str, str]) -> None:
        row, member = _known(setting)
        name = row.name if row.per is None else row.prefix + row.per.show(member)
        if name in seen:
            raise ConfigError(
                f"{setting.origin}: {name} is already set at {seen[name]}; remove one of the two"
            )
        seen[name] = setting.origin
        value = _absolute(_value(row, setting), setting.folder)
        if row.per is None:
            self._arguments[row.attribute] = value
        else:
            self._families.setdefault(row.attribute, {})[member] = value
        self.origins[name] = setting.origin

    def config(self) -> Config:
        """Return the configuration; call only if there are no mistakes."""
        families = {name: tuple(members.items()) for name, members in self._families.items()}
        return Config(**self._arguments | families)


def _absolute(value: Any, folder: Path) -> Any:
    """Return the value with absolute paths."""
    if isinstance(value, Path):
        return Path(os.path.abspath(folder / value))  # noqa: PTH100 - resolves no links
    if isinstance(value, tuple) and any(isinstance(item, Path) for item in value):
        return tuple(_absolute(item, folder) for item in value)
    return value


def _contradictions(loaded: Loaded) -> Iterator[str]:
    """Yield a sentence for each value that makes no sense beside another one."""
    config, origins = loaded.config, loaded.origins
    yield from _beside_kafka(loaded)
    yield from _beside_workers(loaded)
    for name in PARAMETERS:
        on = name.startswith("Extension.") and getattr(config, PARAMETERS[name].attribute) is True
        told = name == "Extension.Presence" and config.presence_class
        if on and config.log_folder is None and not told:
            yield f"{origins[name]}: {name} = true: it needs a LogFolder"
    if config.presence_class and not config.presence:
        name = "Extension.Presence.Class"
        yield f"{origins[name]}: {name}: it needs Extension.Presence = true"
    names = _NEEDED.get(config.entitlement, ())
    if names and not any(getattr(config, PARAMETERS[name].attribute) for name in names):
        yield (
            f"{origins['Entitlement']}: Entitlement = {config.entitlement.value}: "
            f"it needs {' or '.join(names)}"
        )
    if config.cluster_members and 0 < len(config.cluster_password) < limits.PASSWORD_CHARS_MIN:
        yield (
            f"{origins['ClusterPassword']}: ClusterPassword: it needs at least "
            f"{limits.PASSWORD_CHARS_MIN} characters, such as `openssl rand -hex 16` prints"
        )
    if config.max_batching_space and not config.max_batching_time:
        yield f"{origins['MaxBatchingSpace']}: MaxBatchingSpace: it needs MaxBatchingTime"
    if not (config.listen or config.listen_encrypted):
        yield f"{origins['Listen']}: Listen and ListenEncrypted are both empty"
    stores = dict(config.key_stores)
    for address in config.listen_encrypted:
        if not (config.key_store or address in stores):
            yield (
                f"{origins['ListenEncrypted']}: ListenEncrypted = {address}: "
                f"it needs KeyStore or KeyStore.{address}"
            )
    for address in stores:
        if address not in config.listen_encrypted:
            yield (
                f"{origins[f'KeyStore.{address}']}: KeyStore.{address}: "
                "this address does not stand in ListenEncrypted"
            )


def _beside_workers(loaded: Loaded) -> Iterator[str]:
    """Yield a sentence for each value that does not work with worker processes."""
    config, origins = loaded.config, loaded.origins
    if config.workers == 0:
        return
    where = (
        f"{origins['Workers']}: Workers = {'auto' if config.workers is None else config.workers}: "
    )
    if config.cluster_engine is ClusterEngine.KAFKA:
        yield (
            f"{where}servers with ClusterEngine = kafka have none: start several servers instead, "
            "which all serve the same topics"
        )
    for name in ("MaxCommandRatePerAddress", "MaxBytesRatePerAddress"):
        if getattr(config, PARAMETERS[name].attribute):
            yield f"{where}{name} would hold in each of them alone, so leave it out"


def _beside_kafka(loaded: Loaded) -> Iterator[str]:
    """Yield a sentence for each value that makes no sense if Kafka is the log."""
    config, where = loaded.config, f"{loaded.origins['ClusterEngine']}: ClusterEngine = kafka: "
    if config.cluster_engine is not ClusterEngine.KAFKA:
        if config.kafka_decoder_class:
            name = "Kafka.Decoder.Class"
            yield f"{loaded.origins[name]}: {name}: it needs ClusterEngine = kafka"
        if config.kafka_away is KafkaAway.HOLD:
            name = "Kafka.Away"
            yield f"{loaded.origins[name]}: {name} = hold: it needs ClusterEngine = kafka"
        return
    if config.cluster_members:
        yield f"{where}members know nothing of each other, so leave ClusterMembers out"
    if config.journal:
        yield f"{where}Kafka keeps the messages, so leave Journal off"
    if len(config.cluster_password) < limits.PASSWORD_CHARS_MIN:
        yield (
            f"{where}it needs a ClusterPassword of at least {limits.PASSWORD_CHARS_MIN} "
            "characters, the same on every member, so that publishers may go from one to another"
        )


def file_settings(file: Path) -> Iterator[Setting]:
    """Yield the settings of a file in its order.

    Raises `ConfigError` if the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(limits.CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > limits.CONFIG_BYTES_MAX:
        raise ConfigError(f"{file}: larger than {limits.CONFIG_BYTES_MAX} bytes")
    for number, line in _logical_lines(file, content.removeprefix(b"\xef\xbb\xbf")):
        origin = f"{file}:{number}"
        yield _setting(origin, line, "expected `Name = value`", file.parent.absolute())


def _logical_lines(file: Path, content: bytes) -> Iterator[tuple[int, str]]:
    """Yield each line that is neither blank nor a comment, with its number.

    Joined lines are one line, with the number of the first of them.
    """
    first, joined = 0, ""
    for number, raw in enumerate(content.split(b"\n"), start=1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise ConfigError(f"{file}:{number}: not UTF-8 text") from None
        if not first and (not line or line.startswith("#")):
            continue
        first = first or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        yield first, joined + line
        first, joined = 0, ""
    if first:
        raise ConfigError(f"{file}:{first}: the file ends after a `\\` that joins another line")


def environment_settings(environment: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the settings in variables whose names begin with `MDSERVER_`."""
    by_variable = {row.environment: row.name for row in PARAMETERS.values() if row.per is None}
    for variable, text in environment.items():
        if not variable.startswith("MDSERVER_") or variable in CLIENT_VARIABLES:
            continue
        if variable in by_variable:
            yield Setting(f"environment {variable}", by_variable[variable], text.strip())
        else:
            mistake = f"{variable}: no such parameter{_nearest(variable, by_variable)}"
            yield Setting("environment", variable, text, mistake=mistake)


def override_settings(overrides: Iterable[str]) -> Iterator[Setting]:
    """Yield the settings in arguments of the form `Name=value`."""
    for override in overrides:
        yield _setting("--set", override, f"{override}: expected `Name=value`", Path.cwd())


def _setting(origin: str, line: str, mistake: str, folder: Path) -> Setting:
    """Return the setting in `Name = value`, or `mistake` if it is none."""
    name, equals, text = line.partition("=")
    if not equals or not name.strip():
        return Setting(origin, "", line, folder, mistake)
    return Setting(origin, name.strip(), text.strip(), folder)


def _known(setting: Setting) -> tuple[Parameter, object]:
    """Return the parameter of a setting, and for a family the member that it sets."""
    if setting.mistake:
        raise ConfigError(f"{setting.origin}: {setting.mistake}")
    row = PARAMETERS.get(setting.name)
    if row is None or row.per is not None:
        for family in (row for row in PARAMETERS.values() if row.per is not None):
            if setting.name.startswith(family.prefix):
                assert family.per is not None
                member = setting.name[len(family.prefix) :]
                try:
                    return family, family.per.parse(member)
                except ValueError as error:
                    raise ConfigError(
                        f"{setting.origin}: {setting.name}: {member or 'nothing'}: {error}"
                    ) from None
        raise ConfigError(
            f"{setting.origin}: {setting.name}: no such parameter"
            f"{_nearest(setting.name, PARAMETERS)}"
        )
    return row, None


def _nearest(name: str, known: Iterable[str]) -> str:
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.5)
    if not close:
        return "; docs/configuration.md lists all of them"
    return f"; the nearest known name is {by_lower_case[close[0]]}"


def _value(row: Parameter, setting: Setting) -> object:
    return _parsed(row.kind, setting.text, setting, secret=row.secret)


def _parsed(kind: Kind[Any], text: str, setting: Setting, *, secret: bool = False) -> object:
    shown = setting.name if secret else f"{setting.name} = {setting.text}".rstrip()
    if len(text) > 1 and text[0] in QUOTES and text[-1] == text[0]:
        # Reject quotes also in plain text, where they would silently become a part of the value.
        raise ConfigError(
            f"{setting.origin}: {shown}: values stand as they are: leave the quotes out"
        )
    try:
        return kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{setting.origin}: {shown}: {error}") from None
