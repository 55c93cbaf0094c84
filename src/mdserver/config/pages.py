"""The pages that are made of the parameter table: the reference and the commented sample file."""

import textwrap

from mdserver.config.parameter import Parameter, section_parameters
from mdserver.config.table import SECTIONS

_REFERENCE_HEAD = """\
# Configuration

`mdserver run --config FILE` reads one `Name = value` a line. `#` at the start of a line makes it a
comment, `\\` at the end of a line joins the next one to it. `conf/mdserver.conf` holds every
parameter, commented out, with its default.

A parameter is taken from, the later one winning: its default, the file, the environment variable
(`MDSERVER_` and the name in capitals, dots as `_`: `BufferLimit.Send` is
`MDSERVER_BUFFERLIMIT_SEND`), and `--set Name=value`. `mdserver check-config` takes the same options
as `mdserver run` and prints the effective configuration and where each value comes from.

Times take the units `ms`, `s`, `min`, `h` and `d`, sizes `B`, `KB`, `MB` and `GB` (1,024 each). An
unknown name, a bad value or a parameter that is set twice ends `mdserver run` with one line that
says where, and exit status 2. *Reload* says whether SIGHUP makes a running server take a new value.

`make docs` makes this page from the sections in `src/mdserver/config/sections`.
"""

_SAMPLE_HEAD = """\
# Every parameter of mdserver with its default. Take the `#` away to change one, then try it with
#     mdserver check-config --config FILE
#     mdserver run --config FILE
# docs/configuration.md is the same as a table.
"""


def reference_page() -> str:
    """The Markdown of docs/configuration.md."""
    parts = [_REFERENCE_HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section.__doc__}\n")
        parts += [_reference_entry(row) for row in section_parameters(section)]
    return "".join(parts)


def _reference_entry(row: Parameter) -> str:
    default = _default(row)
    facts = [
        f"Default: {f'`{default}`' if default else 'empty'}",
        f"Value: {row.kind.form}",
        f"Reload: {'yes' if row.reloadable else 'no'}",
    ]
    body = textwrap.fill(row.meaning, 100, break_on_hyphens=False, break_long_words=False)
    return f"\n### {row.name}\n\n" + "".join(f"- {fact}\n" for fact in facts) + f"\n{body}\n"


def sample_file() -> str:
    """The text of conf/mdserver.conf."""
    parts = [_SAMPLE_HEAD]
    for section in SECTIONS:
        parts.append(f"\n# ---- {section.__doc__} ".ljust(100, "-") + "\n")
        for row in section_parameters(section):
            about = f"{row.meaning} Value: {row.kind.form}."
            lines = textwrap.wrap(about, 97, break_on_hyphens=False, break_long_words=False)
            comment = "".join(f"# {line}\n" for line in lines)
            # The blank keeps the name of a family from looking like a parameter to uncomment.
            mark = "#" if row.per is None else "# "
            parts.append(f"\n{comment}{mark}{row.name} = {_default(row)}".rstrip() + "\n")
    return "".join(parts)


def _default(row: Parameter) -> str:
    return str(row.kind.show(row.default))


PAGES = {"docs/configuration.md": reference_page, "conf/mdserver.conf": sample_file}
