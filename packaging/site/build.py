"""Build the documentation as a site, with the release before beside it: `make site`.

    python packaging/site/build.py [FOLDER]

FOLDER (build/site) gets a folder for each version, `versions.json`, which the selector of versions
reads, and an `index.html` that leads to the newest. Without the release before in the history of
the repository there is this version only.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
CONFIG = "packaging/site/mkdocs.yml"
# What the pages of a release are made of.
PARTS = ("docs", "conf", "packaging/site", "src/mdserver/web/openapi.json")
TEXTS = ("README.md", "SECURITY.md", "CHANGELOG.md")
LEAD = """\
<!doctype html>
<meta charset="utf-8">
<title>mdserver</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">mdserver {version}</a>
"""


def releases() -> ModuleType:
    """Return the module that names the release before; it needs nothing of the server's."""
    where = ROOT / "simulation" / "chaos" / "releases.py"
    spec = importlib.util.spec_from_file_location("releases", where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mkdocs(config: Path, output: Path) -> None:
    """Build one version; exit with 1 and what is wrong if a link leads nowhere."""
    program = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [program, "build", "--quiet", "-f", config, "-d", output],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    if done.returncode:
        sys.exit(1)


def unpacked(commit: str, folder: Path) -> Path:
    """Unpack the documents of a commit; return their configuration, with a selector."""
    archive = folder / "documents.tar"
    words = ("git", "-C", ROOT, "archive", "-o", archive, commit, *PARTS, *TEXTS)
    subprocess.run(words, check=True)
    shutil.unpack_archive(archive, folder, filter="data")
    config = folder / "packaging" / "site" / "with-versions.yml"
    # The first release had no selector.
    config.write_text("INHERIT: mkdocs.yml\nextra: {version: {provider: mike}}\n", encoding="utf-8")
    return config


def main() -> None:
    """Build every version."""
    output = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    if output.exists() and any(output.iterdir()) and not (output / "versions.json").exists():
        sys.exit(
            f"site: {output} is not empty, and no site: it has no versions.json. "
            "Remove it, or name another folder."
        )
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    (output / "versions.json").write_text("[]\n", encoding="utf-8")  # if the build ends early
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [project["version"]]
    mkdocs(ROOT / CONFIG, output / names[0])
    before = releases()
    why = before.missing()
    if why is None:
        names.append(before.RELEASE)
        with tempfile.TemporaryDirectory(prefix="mdserver-site-") as folder:
            mkdocs(unpacked(before.COMMIT, Path(folder)), output / before.RELEASE)
    else:
        print(f"site: without the release before: {why}", file=sys.stderr)
    titles = dict(zip(names, ("", " (the release before)"), strict=False))
    versions = [{"version": name, "title": name + titles[name], "aliases": []} for name in names]
    (output / "versions.json").write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
    (output / "index.html").write_text(LEAD.format(version=names[0]), encoding="utf-8")


if __name__ == "__main__":
    main()
