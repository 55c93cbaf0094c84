"""Pages of the site that are made of other files, links that lead out of docs/, and diagrams.

mkdocs calls `on_files` before it reads the pages, and `on_page_markdown` with the text of each.
Requests and messages are tables made here, because those need no script, can be printed, and are
found by the search of the site; Swagger UI, of a plugin of mkdocs, shows the requests as well.
"""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
MOVED = {
    "../README.md": "index.md",
    "../SECURITY.md": "reporting.md",
    "../CHANGELOG.md": "changelog.md",
}
TEXTS = ("conf/mdserver.conf", "conf/loopback.conf")
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")
DIAGRAM = re.compile(r"!\[([^\]]*)\]\((?:\.\./)?(diagrams/[a-z-]+\.svg)\)")
# A diagram in a page has the colours of that page, which its reader may choose.
DIAGRAM_COLOURS = """\
.diagram { color: var(--md-typeset-color); max-width: 100%; height: auto; }
.diagram { --part: var(--md-code-bg-color); }
[data-md-color-scheme="default"] .diagram { --core: #d5e5fb; }
[data-md-color-scheme="slate"] .diagram { --core: #1d3b63; }
"""
VIEWER = """\
# HTTP, in Swagger UI

The [OpenAPI document](openapi.json), in a viewer; [the same as tables](openapi.md).

<swagger-ui src="openapi.json"/>
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and the files that pages link to."""
    made = {
        "openapi.md": "\n".join(openapi(json.loads(read("src/mdserver/web/openapi.json")))),
        "asyncapi.md": "\n".join(asyncapi(yaml.safe_load(read("docs/asyncapi.yaml")))),
        "reporting.md": read("SECURITY.md").replace("](docs/", "]("),
        "changelog.md": read("CHANGELOG.md").replace("](docs/", "]("),
        "openapi-viewer.md": VIEWER,
        "diagrams/site.css": DIAGRAM_COLOURS,
        "openapi.json": read("src/mdserver/web/openapi.json"),
        **{Path(name).name: read(name) for name in TEXTS},
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the copies in the site, or nowhere; put diagrams into the page."""
    markdown = DIAGRAM.sub(diagram, markdown)
    up = "../" * page.file.src_uri.count("/")

    def lead(match: re.Match[str]) -> str:
        target = match[2].removeprefix(up)
        if not target.startswith("../"):
            return match[0]
        if target in MOVED:
            return f"[{match[1]}]({up}{MOVED[target]})"
        if target.removeprefix("../") in TEXTS:
            return f"[{match[1]}]({up}{Path(target).name})"
        return match[1]

    return LINK.sub(lead, markdown)


def diagram(match: re.Match[str]) -> str:
    """Return a diagram as a part of a page: without the colours that it has elsewhere."""
    picture = read(f"docs/{match[2]}")
    picture = re.sub(r"<style>[^<]*prefers-color-scheme[^<]*</style>\n", "", picture)
    picture = picture.replace('role="img"', f'role="img" aria-label="{html.escape(match[1])}"')
    return re.sub(r"^<!--.*-->\n", "", picture).replace("\n", " ")


def openapi(document: dict[str, Any]) -> Iterator[str]:
    """Yield lines of Markdown: each request, what it takes, what it answers."""
    yield "# HTTP, every request\n"
    yield f"{document['info']['description']} Made of the [OpenAPI document](openapi.json), which a"
    yield "server has at `/openapi.json`; [HTTP](http.md) explains.\n"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"## `{method.upper()} {path}`\n"
            yield f"{operation['summary']} {operation.get('description', '')}\n"
            given = [resolved(document, each) for each in operation.get("parameters", ())]
            if given:
                yield "| parameter | in | value | |\n|---|---|---|---|"
                for each in given:
                    text = each.get("description", "")
                    yield f"| `{each['name']}` | {each['in']} | {value(each['schema'])} | {text} |"
                yield ""
            body = resolved(document, operation.get("requestBody", {}))
            if body:
                kinds = ", ".join(f"`{kind}`" for kind in body["content"])
                yield f"Body ({kinds}): {body.get('description', '')}\n"
            yield "| status | |\n|---|---|"
            for status, answer in operation["responses"].items():
                yield f"| {status} | {resolved(document, answer)['description']} |"
            yield ""
    yield from schemas(document)


def asyncapi(document: dict[str, Any]) -> Iterator[str]:
    """Yield lines of Markdown: each command and event with its members and examples."""
    yield "# Protocol, every message\n"
    yield f"{document['info']['description']} Made of the [AsyncAPI document](asyncapi.yaml);"
    yield "[the protocol](protocol.md) explains.\n"
    for operation in document["operations"].values():
        yield f"## {operation.get('title', 'Stream')}\n"
        for link in operation["messages"]:
            message = resolved(document, resolved(document, link))
            schema = resolved(document, message["payload"])
            yield f"### `{link['$ref'].rpartition('/')[2]}`\n"
            yield f"{message['summary']}\n"
            yield from members(document, schema)
            for example in message.get("examples", ()):
                yield f"```json\n{json.dumps(example['payload'])}\n```\n"
    yield from schemas(document)


def schemas(document: dict[str, Any]) -> Iterator[str]:
    """Yield a table for each object that is described by itself."""
    yield "## Objects\n"
    for name, schema in document["components"]["schemas"].items():
        yield f"### `{name}`\n"
        yield f"{schema.get('description', '')}\n"
        yield from members(document, schema)


def members(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    """Yield a table of the members of an object."""
    merged = dict(schema.get("properties", {}))
    for part in schema.get("allOf", ()):
        merged |= resolved(document, part).get("properties", {})
    if not merged:
        return
    required = schema.get("required", ())
    yield "| member | value | |\n|---|---|---|"
    for name, given in merged.items():
        each = resolved(document, given) | {k: v for k, v in given.items() if k != "$ref"}
        mark = " (always)" if name in required else ""
        text = " ".join(each.get("description", "").split())
        yield f"| `{name}`{mark} | {value(each)} | {text} |"
    yield ""


def value(schema: Any) -> str:
    """Say in a few words what a schema allows."""
    if not isinstance(schema, dict):
        return ""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "any")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    bounds = {
        "minimum": "from",
        "maximum": "to",
        "maxLength": "length to",
        "maxItems": "items to",
        "default": "default",
    }
    said = [f"{word} {schema[key]}" for key, word in bounds.items() if key in schema]
    return ", ".join((text, *said))


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Follow `$ref`s within a document."""
    while "$ref" in part:
        names = part["$ref"].removeprefix("#/").split("/")
        part = document
        for name in names:
            part = part[name.replace("~1", "/").replace("~0", "~")]
    return part
