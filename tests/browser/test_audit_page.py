"""The report of an audit in a real browser: on a phone, and in the dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from mdserver.pipeline.audit.report import FOUND, SECTIONS, Content, page
from mdserver.pipeline.common.html_page import ROWS_MAX

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
TEXT_PX = 14
CONTRAST_LEAST = 4.5
"""WCAG 2, level AA, for text of this size."""
CONTRASTS = """
  // Any colour that the browser knows becomes bytes by being painted.
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const bytes = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = bytes(colour).map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const sheet = document.body.appendChild(document.createElement("div"));
  sheet.style.backgroundColor = "Canvas";
  const behind = light(getComputedStyle(sheet).backgroundColor);
  sheet.remove();
  const elements = [...document.querySelectorAll("h1, h2, p, td, th, .bars > span")];
  const found = elements.map((element) => {
    const style = getComputedStyle(element);
    const own = light(style.color);
    return (Math.max(own, behind) + 0.05) / (Math.min(own, behind) + 0.05);
  });
  return [Math.min(...found), behind];
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def report(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A report with as many findings as it shows, and long names, on a phone."""
    found: dict[str, Any] = dict.fromkeys(FOUND) | {
        "kind": "nothing_received",
        "subscriber": "somebody@with.a.long.name.example",
        "session": "f" * 40,
        "member": "member-1.cluster.example",
        "subject": f"/{'long' * 60}/speed",
        "seq_lo": 10**15,
        "seq_hi": 10**15 + 7,
        "reason": "6 received, 7 archived, 0 twice, 0 out of order",
        "publisher": "p" * 40,
        "number": 12345,
    }
    content = Content(
        whole=False,
        period=("2026-03-01 08:00:00", "2026-03-01 09:00:00"),
        messages=4_000,
        verdicts={"exact": 4_000, "dup_or_corrupt": 17, "unjudged": 3},
        subscribers={f"somebody{n}@with.a.long.name.example": n * 1_000 for n in range(1, 20)},
        rows={name: [found] * ROWS_MAX for name in SECTIONS},
        counts=dict.fromkeys(SECTIONS, ROWS_MAX + 1),
    )
    file = tmp_path / "audit.html"
    file.write_text(page(content), encoding="utf-8")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    browser.get(file.as_uri())
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get("about:blank")


def test_a_phone_scrolls_tables_and_not_the_page(report: webdriver.Chrome) -> None:
    """Bars shrink, and the text beside them does not."""
    assert report.execute_script("return innerWidth") == PHONE["width"]
    assert report.execute_script("return document.documentElement.scrollWidth") == PHONE["width"]
    wide = report.execute_script(
        "return [...document.querySelectorAll('.wide')]"
        ".map((each) => [each.clientWidth, each.scrollWidth])"
    )
    assert len(wide) == len(SECTIONS)
    assert all(shown <= PHONE["width"] < whole for shown, whole in wide)
    size = "return parseFloat(getComputedStyle(document.querySelector('.bars > span')).fontSize)"
    assert report.execute_script(size) >= TEXT_PX
    heights = report.execute_script(
        "return [...document.querySelectorAll('.bars > span')].map((each) => each.clientHeight)"
    )
    assert max(heights) == min(heights)  # no number is below its bar


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(report: webdriver.Chrome, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    report.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    least, behind = report.execute_script(CONTRASTS)
    assert least >= CONTRAST_LEAST
    assert (behind < 0.1) == (scheme == "dark")
    (Path("build") / "screenshots").mkdir(parents=True, exist_ok=True)
    report.save_screenshot(f"build/screenshots/audit-{scheme}.png")
