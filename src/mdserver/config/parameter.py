"""One parameter of the table, and how a section declares it."""

from typing import Any, TypeVar

import attrs

from mdserver.config.values import Kind

T = TypeVar("T")


@attrs.frozen
class Parameter:
    """One parameter of the table.

    `attribute`: its field in `Config`. `meaning`: a paragraph for operators. `reloadable`: whether
    a running server takes a new value. `secret`: its value is never shown. With `per` it is a
    family `PREFIX.member`, with a value for each member that is set: `per` is the form of a member,
    and the field holds pairs of member and value.
    """

    name: str
    kind: Kind[Any]
    default: Any
    meaning: str
    reloadable: bool
    secret: bool
    per: Kind[Any] | None
    attribute: str = ""

    @property
    def prefix(self) -> str:
        """The beginning of the names in a family."""
        return self.name.partition(".")[0] + "."

    def shown(self, value: Any) -> dict[str, str]:
        """Return names and texts of the values that are set; a family has any number of them."""
        if self.per is None:
            return {self.name: self.show(value)}
        return {
            self.prefix + self.per.show(member): self.show(of_member) for member, of_member in value
        }

    @property
    def environment(self) -> str:
        """The environment variable that sets this parameter."""
        return "MDSERVER_" + self.name.upper().replace(".", "_")

    def show(self, value: object) -> str:
        """Return a value as it would be written, or `(hidden)` for a secret."""
        return "(hidden)" if self.secret and value else self.kind.show(value)


def parameter(
    name: str,
    kind: Kind[T],
    default: T,
    meaning: str,
    *,
    reloadable: bool = False,
    secret: bool = False,
    per: Kind[Any] | None = None,
) -> T:
    """Declare a field of a section that is set by the parameter `name`."""
    row = Parameter(name, kind, default, " ".join(meaning.split()), reloadable, secret, per)
    field: T = attrs.field(default=default, metadata={"parameter": row})
    return field


def section_parameters(section: type[Any]) -> list[Parameter]:
    """Return the parameters of a section, in the order of the table."""
    return [
        attrs.evolve(field.metadata["parameter"], attribute=field.name)
        for field in attrs.fields(section)
    ]
