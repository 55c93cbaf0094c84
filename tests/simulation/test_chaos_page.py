"""The page of chaos runs: what happened when, on a phone as well."""

from pathlib import Path

import pytest
from selenium import webdriver

from simulation.chaos.page import page
from simulation.chaos.profiles import make_rounds
from simulation.chaos.run import Outcome
from simulation.chaos.timeline import Moment, Timeline
from tests.browser.conftest import browser

__all__ = ["browser"]
WIDTHS = (360, 1200)


def outcome(*problems: str) -> Outcome:
    """A run of 40 s in which one member was killed and all lost power."""
    timeline = Timeline(end_s=40.0)
    with timeline.episode("kill") as episode:
        timeline.mark(3.0, 1)
        episode.end_s = 7.0
    with timeline.episode("power-cut-all") as episode:
        for member in range(3):
            timeline.mark(20.0, member)
    for member in range(3):
        timeline.states.append(Moment(0.5, "NORMAL, history 0000", member))
        timeline.states.append(Moment(20.5 + member, "no answer", member))
        timeline.states.append(Moment(25.0, "NORMAL, no quorum, history 0000", member))
    timeline.clients += [Moment(1.0, "sub0 connected to m0", 0), Moment(26, "sub1 <i>", 1)]
    timeline.violations += [Moment(30.0, problem) for problem in problems]
    timeline.acks.update({second: 20 + second for second in (*range(1, 20), *range(27, 39))})
    found = Outcome(make_rounds("disks", 1, 3), timeline=timeline, problems=list(problems))
    found.happened["kill"] = 1
    found.figures["acknowledged"] = "1,234"
    return found


def test_a_fault_shows_from_its_first_mark_to_its_end_and_the_silence_after_it() -> None:
    (kill, again_s), (power, later_s) = outcome().timeline.silences()
    assert (again_s, later_s) == (1.0, 7.0)
    assert (kill.kind, kill.begin_s, kill.end_s, kill.members) == ("kill", 3.0, 7.0, [1])
    assert (power.kind, power.end_s, power.members) == ("power-cut-all", None, [0, 1, 2])


def test_what_is_no_fault_belongs_to_none() -> None:
    timeline = Timeline()
    timeline.mark(1.0, 0)
    assert timeline.episodes == []


def test_a_finding_is_told_and_marked_and_no_text_is_markup() -> None:
    said = page([("disks", outcome("lost: <b>all</b>")), ("tls", outcome())], "chaos --profile all")
    assert "2 runs, 1 with findings" in said
    assert "&lt;b&gt;all" in said
    assert "<b>all" not in said
    assert 'class="bad"' in said
    assert "sub1 &lt;i&gt;" in said
    assert "http" not in said.replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_and_shows_all_lanes(
    width: int, browser: webdriver.Chrome, tmp_path: Path
) -> None:
    file = tmp_path / "chaos.html"
    file.write_text(page([("disks", outcome("lost: " + 80 * "all"))], "chaos"), encoding="utf-8")
    browser.set_window_size(width, 900)
    browser.get(file.as_uri())
    wide, shown = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= shown
    bars = browser.execute_script(
        "return [...document.querySelectorAll('.track i.fault')]"
        ".map(bar => bar.getBoundingClientRect().width)"
    )
    assert len(bars) == 4
    assert min(bars) > width / 30
