"""Where parameters come from: a file, the environment, `--set`; the later one wins.

A file has one `Name = value` a line. `#` at the start of a line makes it a comment, `\\` at the end
joins the next line to it, without that line's leading blanks.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mdserver import limits
from mdserver.config.parameter import Parameter
from mdserver.config.sections.rights import Entitlement
from mdserver.config.table import PARAMETERS, Config
from mdserver.config.values import Kind
from mdserver.errors import ConfigError

DEFAULT_ORIGIN = "default"
CLIENT_VARIABLES = ("MDSERVER_TOKEN",)  # what `mdserver pub` and `sub` take, no parameters
_NEEDED = {
    Entitlement.JWT: (
        "EntitlementJWT.HmacSecretFile", "EntitlementJWT.PublicKeyFile", "EntitlementJWT.JwksFile",
    ),
    Entitlement.CUSTOM: ("EntitlementCustom.Class",),
}  # fmt: skip


@frozen
class Loaded:
    """A configuration, and for each parameter name where its value comes from.

    `files` has those that come from a file.
    """

    config: Config
    origins: dict[str, str]
    files: dict[str, Path] = field(factory=dict)


@frozen
class Setting:
    """One `name = text` and where it stands."""

    origin: str
    name: str
    text: str


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Loaded:
    """The effective configuration.

    `environment` holds the environment variables, `overrides` the arguments of `--set`. Raises
    `ConfigError` with one line that says where the first mistake is and what would be right.
    """
    arguments: dict[str, Any] = {}
    families: dict[str, dict[object, object]] = {}
    origins = {row.name: DEFAULT_ORIGIN for row in PARAMETERS.values() if row.per is None}
    sources: list[Iterable[Setting]] = [
        file_settings(file) if file else (),
        environment_settings(environment or {}),
        override_settings(overrides),
    ]
    for source in sources:
        seen: dict[str, str] = {}
        for setting in source:
            row, member = _known(setting)
            name = row.name if row.per is None else row.prefix + row.per.show(member)
            if name in seen:
                raise ConfigError(
                    f"{setting.origin}: {name} is already set at {seen[name]}; "
                    "remove one of the two"
                )
            seen[name] = setting.origin
            if row.per is None:
                arguments[row.attribute] = _value(row, setting)
            else:
                families.setdefault(row.attribute, {})[member] = _value(row, setting)
            origins[name] = setting.origin
    arguments |= {attribute: tuple(members.items()) for attribute, members in families.items()}
    files = {
        name: file for name, origin in origins.items() if file and origin.startswith(f"{file}:")
    }
    loaded = Loaded(Config(**arguments), origins, files)
    _check_together(loaded)
    return loaded


def _check_together(loaded: Loaded) -> None:
    """Refuses values that make no sense beside each other."""
    config, origins = loaded.config, loaded.origins
    for name in PARAMETERS:
        on = name.startswith("Extension.") and getattr(config, PARAMETERS[name].attribute) is True
        told = name == "Extension.Presence" and config.presence_class
        if on and config.log_folder is None and not told:
            raise ConfigError(f"{origins[name]}: {name} = true: it needs a LogFolder")
    if config.presence_class and not config.presence:
        name = "Extension.Presence.Class"
        raise ConfigError(f"{origins[name]}: {name}: it needs Extension.Presence = true")
    names = _NEEDED.get(config.entitlement, ())
    if names and not any(getattr(config, PARAMETERS[name].attribute) for name in names):
        raise ConfigError(
            f"{origins['Entitlement']}: Entitlement = {config.entitlement.value}: "
            f"it needs {' or '.join(names)}"
        )
    if config.max_batching_space and not config.max_batching_time:
        raise ConfigError(
            f"{origins['MaxBatchingSpace']}: MaxBatchingSpace: it needs MaxBatchingTime"
        )
    if not (config.listen or config.listen_encrypted):
        raise ConfigError(f"{origins['Listen']}: Listen and ListenEncrypted are both empty")
    stores = dict(config.key_stores)
    for address in config.listen_encrypted:
        if not (config.key_store or address in stores):
            raise ConfigError(
                f"{origins['ListenEncrypted']}: ListenEncrypted = {address}: "
                f"it needs KeyStore or KeyStore.{address}"
            )
    for address in stores:
        if address not in config.listen_encrypted:
            raise ConfigError(
                f"{origins[f'KeyStore.{address}']}: KeyStore.{address}: "
                "this address does not stand in ListenEncrypted"
            )


def file_settings(file: Path) -> Iterator[Setting]:
    """The settings of a file in its order."""
    try:
        with file.open("rb") as stream:
            content = stream.read(limits.CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > limits.CONFIG_BYTES_MAX:
        raise ConfigError(f"{file}: larger than {limits.CONFIG_BYTES_MAX} bytes")
    for number, line in _logical_lines(file, content.removeprefix(b"\xef\xbb\xbf")):
        origin = f"{file}:{number}"
        name, equals, text = line.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{origin}: expected `Name = value`")
        yield Setting(origin, name.strip(), text.strip())


def _logical_lines(file: Path, content: bytes) -> Iterator[tuple[int, str]]:
    """Lines that say something, with the number of the first of those that were joined."""
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
    """The settings in variables whose names begin with `MDSERVER_`."""
    by_variable = {row.environment: row.name for row in PARAMETERS.values() if row.per is None}
    for variable, text in environment.items():
        if not variable.startswith("MDSERVER_") or variable in CLIENT_VARIABLES:
            continue
        if variable not in by_variable:
            raise ConfigError(
                f"environment: {variable}: no such parameter{_nearest(variable, by_variable)}"
            )
        yield Setting(f"environment {variable}", by_variable[variable], text.strip())


def override_settings(overrides: Iterable[str]) -> Iterator[Setting]:
    """The settings in arguments of the form `Name=value`."""
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {override}: expected `Name=value`")
        yield Setting("--set", name.strip(), text.strip())


def _known(setting: Setting) -> tuple[Parameter, object]:
    """The parameter of a setting; for one of a family also which member it is about."""
    row = PARAMETERS.get(setting.name)
    if row is None or row.per is not None:
        for family in (row for row in PARAMETERS.values() if row.per is not None):
            if setting.name.startswith(family.prefix):
                assert family.per is not None
                return family, _parsed(family.per, setting.name[len(family.prefix) :], setting)
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
    try:
        return kind.parse(text)
    except ValueError as error:
        shown = setting.name if secret else f"{setting.name} = {setting.text}".rstrip()
        raise ConfigError(f"{setting.origin}: {shown}: {error}") from None
