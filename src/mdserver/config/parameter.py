"""One parameter of the table, and how a section declares it."""

from typing import Any, TypeVar

import attrs

from mdserver.config.values import Kind

T = TypeVar("T")


@attrs.frozen
class Parameter:
    """One parameter. `attribute` is its field in `Config`; a `secret` is never shown.

    With `per` it is a family, `PREFIX.member`, with a value for each member that is set: `per` says
    how a member is written, and the field holds pairs of member and value.
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
        """Of a family, what the names of its members begin with."""
        return self.name.partition(".")[0] + "."

    def shown(self, value: Any) -> dict[str, str]:
        """Name and text of what is set; a family has any number of them."""
        if self.per is None:
            return {self.name: self.show(value)}
        return {
            self.prefix + self.per.show(member): self.show(of_member) for member, of_member in value
        }

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return "MDSERVER_" + self.name.upper().replace(".", "_")

    def show(self, value: object) -> str:
        """The value as it would be written, or that it is hidden."""
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
    """A field of a section that is set by the parameter `name`."""
    row = Parameter(name, kind, default, " ".join(meaning.split()), reloadable, secret, per)
    field: T = attrs.field(default=default, metadata={"parameter": row})
    return field


def section_parameters(section: type[Any]) -> list[Parameter]:
    """The parameters of a section, in the order of the table."""
    return [
        attrs.evolve(field.metadata["parameter"], attribute=field.name)
        for field in attrs.fields(section)
    ]
