"""The pages that are generated from the parameter table: the reference and the sample file.

The docstring of a section is its heading in both pages.
"""

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

Times take the units `ms`, `s`, `min`, `h` and `d`, sizes `B`, `KB`, `MB` and `GB` (1,024 each).
Values stand as they are, without quotes. An unknown name, a bad value or a parameter that is set
twice ends `mdserver run` with one line for each mistake that says where, and exit status 2.
Relative paths go from the folder of the configuration file, in `--set` and the environment from the
working directory. *Reload* says whether SIGHUP makes a running server take a new value.

`make docs` makes this page from the sections in `src/mdserver/config/sections`.
"""

PRODUCTION = {
    ("Listen", "ListenEncrypted", "KeyStore"): """The default serves this machine alone; clients
        outside need an address, and TLS unless a proxy before the server speaks it.""",
    ("Entitlement",): """`Basic` lets anyone subscribe, and nobody publish until
        `EntitlementAllowToken` is set. `JWT` or `Custom` decide for each user and subject.""",
    ("AllowedOrigins",): """The web pages that may connect from a browser; the default lets all.""",
    ("RunAsUser", "LogFolder"): """Ports below 1024 need root only until they are bound; logs that
        outlive the terminal need a folder.""",
    ("MonitorHTTP.Listen", "MonitorPassword"): """Health, sessions and the `cluster` commands, on an
        address that only operators reach.""",
    ("MaxConnections", "MaxConnectionsPerAddress"): """As many as the memory and `ulimit -n` of the
        machine carry; one address may be a proxy or a whole office.""",
    ("MaxMessageSize", "BufferLimit.Send"): """Memory: a slow client may keep
        `BufferLimit.Send`.""",
    ("MaxCachedMessagesPerSubject", "CacheExpireTime", "MaxCacheBytes"): """How long a client may be
        away and still recover all it missed, and what that costs.""",
    ("SlowConsumerPolicy",): """What happens to a client that reads too slowly: by default it is
        disconnected and recovers; prices may rather be conflated.""",
    ("Journal", "JournalFolder", "JournalFsync"): """Without a journal a single server begins anew
        after a restart. With `commit` every acknowledged message survives a power cut.""",
    (
        "ClusterMembers",
        "ClusterMemberListen",
        "ClusterPassword",
        "ClusterMemberCoordinationFolder",
    ): """Three or five seeds lose nothing that was acknowledged
        while a majority is up; the folder has to survive a restart.""",
    ("ClientAddress",): """What clients are told to connect to when they move: the name by which
        they reach this member.""",
}
"""The parameters that a production setup changes, by purpose, each with the reason."""


def _production_table() -> str:
    lines = ["\n## In production\n\nWhat a server for others changes, and why:\n"]
    lines.append("\n| parameter | why |\n|---|---|\n")
    for names, why in PRODUCTION.items():
        links = ", ".join(f"[`{name}`](#{_anchor(name)})" for name in names)
        lines.append(f"| {links} | {' '.join(why.split())} |\n")
    return "".join(lines)


def _anchor(name: str) -> str:
    return name.lower().replace(".", "")


_SAMPLE_HEAD = """\
# Every parameter of mdserver with its default. Take the `#` away to change one, then try it with
#     mdserver check-config --config FILE
#     mdserver run --config FILE
# docs/configuration.md is the same as a table.
"""


def reference_page() -> str:
    """Return the Markdown of docs/configuration.md."""
    parts = [_REFERENCE_HEAD, _production_table()]
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
    """Return the text of conf/mdserver.conf."""
    parts = [_SAMPLE_HEAD]
    for section in SECTIONS:
        parts.append(f"\n# ---- {section.__doc__} ".ljust(100, "-") + "\n")
        for row in section_parameters(section):
            about = f"{row.meaning} Value: {row.kind.form}."
            lines = textwrap.wrap(about, 97, break_on_hyphens=False, break_long_words=False)
            comment = "".join(f"# {line}\n" for line in lines)
            # The blank marks the name of a family as text: uncommented it would be no parameter.
            mark = "#" if row.per is None else "# "
            parts.append(f"\n{comment}{mark}{row.name} = {_default(row)}".rstrip() + "\n")
    return "".join(parts)


def _default(row: Parameter) -> str:
    return str(row.kind.show(row.default))


PAGES = {"docs/configuration.md": reference_page, "conf/mdserver.conf": sample_file}
