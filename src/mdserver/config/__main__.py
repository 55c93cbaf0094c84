"""`python -m mdserver.config` in the top folder writes the pages made of the parameter table."""

from pathlib import Path

from mdserver.config.pages import PAGES

for name, page in PAGES.items():
    Path(name).write_text(page(), encoding="utf-8")
