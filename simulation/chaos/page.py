"""The page of chaos runs: faults, states and acknowledgements of each, on one line of time.

One HTML file that loads nothing. Bars are placed in percent of the width, so that they fit a phone;
what they are is said by their lanes, by a table, and where one points at them.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from mdserver.pipeline.common.html_page import document, table
from simulation.chaos.plan import Plan
from simulation.chaos.run import Outcome
from simulation.chaos.timeline import Moment, Timeline

STYLE = """
body { background: var(--ground); color: var(--text) } h2 { margin: 2rem 0 .25rem }
p, li, h2 { overflow-wrap: anywhere }
.facts, .axis, .lane > span, details { color: var(--quiet) } .failed { color: var(--warning) }
.lane { display: grid; grid-template-columns: 4.5rem 1fr; align-items: center; margin: 2px 0;
  font-size: .8125rem } .lane > span { overflow-wrap: anywhere }
.track { position: relative; height: 1.75rem; background: var(--field); overflow: hidden;
  border: 1px solid var(--line) }
.track i { position: absolute; top: 0; bottom: 0; min-width: 2px }
.track i.state { top: 60% } .ok { background: var(--first); opacity: .35 }
.trouble { background: var(--second); opacity: .7 } .down { background: var(--quiet) }
.track i.fault { bottom: 45%; background: var(--second); border-left: 2px solid var(--text) }
.track i.client { background: var(--first); width: 2px }
.track i.bad { background: var(--warning); width: 3px; outline: 1px solid var(--text) }
.track svg { position: absolute; width: 100%; height: 100% } .track path { fill: var(--first) }
.tall { height: 5rem } .axis { display: flex; justify-content: space-between }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .8125rem }
.key b { display: inline-block; width: 1rem; height: .7rem; margin-right: .35rem }
b.fault { background: var(--second); border-left: 2px solid var(--text) }
b.client { background: var(--first) }
b.bad { background: var(--warning); outline: 1px solid var(--text) }
"""
NORMAL = "NORMAL"
DOWN = "no answer"


def page(runs: Sequence[tuple[str, Outcome]], title: str) -> str:
    """Return the page of these runs, each with the name of its profile."""
    failed = sum(bool(outcome.problems) for _, outcome in runs)
    said = f"{failed} with findings" if failed else "no finding"
    number = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    parts = [
        f"<h1>Chaos runs <small>{number}, {said}</small></h1>",
        f"<p class=facts>{escape(title)}</p>",
        *_key(),
        *_all(runs),
    ]
    for name, outcome in runs:
        parts += _run(name, outcome)
    return document("Chaos runs of mdserver", parts, _tokens() + STYLE)


def _tokens() -> str:
    """The colours of the server's own pages, for light and dark."""
    style = files("mdserver.web").joinpath("dashboard/dashboard.css").read_text(encoding="utf-8")
    return style.partition("\n* {")[0]


def _key() -> Iterator[str]:
    meanings = {
        "fault": "a fault, while it lasts",
        "ok": "NORMAL",
        "trouble": "recovering, drained, or no majority in sight",
        "down": "does not answer",
        "client": "a client connected",
        "bad": "a finding",
    }
    keys = "".join(f"<span><b class={kind}></b>{said}</span>" for kind, said in meanings.items())
    yield f"<p class=key>{keys}</p>"


def _all(runs: Iterable[tuple[str, Outcome]]) -> Iterator[str]:
    """One row a run."""
    rows = [
        {
            "run": f"{name}, seed {outcome.plan.seed}",
            "faults": sum(outcome.happened.values()),
            "acknowledged": outcome.figures.get("acknowledged", "0"),
            "delivered": outcome.figures.get("delivered", "0"),
            "longest silence": outcome.figures.get("longest silence", ""),
            "at rest after": outcome.figures.get("at rest after", ""),
            "findings": len(outcome.problems),
        }
        for name, outcome in runs
    ]
    if rows:
        yield table(rows, list(rows[0]))


def _run(name: str, outcome: Outcome) -> Iterator[str]:
    plan, timeline = outcome.plan, outcome.timeline
    yield f"<h2>{escape(name)}, seed {plan.seed}</h2>"
    yield f"<p class=facts>{escape(plan.describe().splitlines()[0])}</p>"
    if outcome.interrupted:
        yield "<p class=failed>Interrupted: what was seen until then.</p>"
    if outcome.problems:
        found = "".join(f"<li>{escape(problem)}</li>" for problem in outcome.problems)
        yield f"<ul class=failed>{found}</ul>"
    whole_s = max(timeline.end_s, 1.0)
    for member in range(plan.members):
        yield _lane(f"m{member}", _of_member(timeline, member, plan, whole_s))
    yield _lane("clients", (_tick("client", moment, whole_s) for moment in timeline.clients))
    yield _lane("findings", (_tick("bad", moment, whole_s) for moment in timeline.violations))
    most = max(timeline.acks.values(), default=0)
    yield _lane(f"acks a second, to {most:,}", [_chart(timeline, whole_s, most)], "tall")
    yield (
        "<div class=lane><span></span><div class=axis>"
        + "".join(f"<span>{whole_s * part / 4:.0f} s</span>" for part in range(5))
        + "</div></div>"
    )
    yield "<details><summary>Faults and figures</summary>"
    yield _faults(timeline)
    figures = [{"what": key, "figure": value} for key, value in outcome.figures.items()]
    yield table(figures, ["what", "figure"])
    yield "</details>"


def _lane(name: str, marks: Iterable[str], kind: str = "") -> str:
    drawn = "".join(marks)
    return (
        f'<div class=lane><span>{escape(name)}</span><div class="track {kind}">{drawn}</div></div>'
    )


def _bar(kind: str, begin_s: float, end_s: float, whole_s: float, said: str) -> str:
    left, width = 100 * begin_s / whole_s, 100 * max(0.0, end_s - begin_s) / whole_s
    told = escape(f"{begin_s:.1f} to {end_s:.1f} s: {said}", quote=True)
    return f'<i class="{kind}" style="left:{left:.2f}%;width:{width:.2f}%" title="{told}"></i>'


def _tick(kind: str, moment: Moment, whole_s: float) -> str:
    left = min(99.5, 100 * moment.at_s / whole_s)
    told = escape(f"{moment.at_s:.1f} s: {moment.what}", quote=True)
    return f'<i class="{kind}" style="left:{left:.2f}%" title="{told}"></i>'


def _of_member(timeline: Timeline, member: int, plan: Plan, whole_s: float) -> Iterator[str]:
    states = [moment for moment in timeline.states if moment.member == member]
    ends = [*(moment.at_s for moment in states[1:]), whole_s]
    for moment, end_s in zip(states, ends, strict=False):
        trouble = "quorum" in moment.what or not moment.what.startswith(NORMAL)
        kind = "down" if moment.what == DOWN else "trouble" if trouble else "ok"
        yield _bar(f"state {kind}", moment.at_s, end_s, whole_s, moment.what)
    for episode in timeline.episodes:
        if member in (episode.members or range(plan.members)):
            end = whole_s if episode.end_s is None else episode.end_s
            yield _bar("fault", episode.begin_s or 0.0, end, whole_s, episode.kind)


def _chart(timeline: Timeline, whole_s: float, most: int) -> str:
    """Acknowledgements of each second, as an area."""
    steps = "".join(
        f"M{second} 0h1v{100 * count / max(1, most):.1f}h-1z"
        for second, count in sorted(timeline.acks.items())
    )
    flipped = 'transform="matrix(1 0 0 -1 0 100)"'
    box = f'viewBox="0 0 {whole_s:.2f} 100" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="acks a second"><path {flipped} d="{steps}"/></svg>'


def _faults(timeline: Timeline) -> str:
    """One row a fault, with the time until the next second in which anything was acknowledged."""
    rows = [
        {
            "at, s": f"{episode.begin_s or 0.0:.1f}",
            "fault": episode.kind,
            "members": ", ".join(f"m{member}" for member in episode.members) or "all",
            "lasted, s": f"{(episode.end_s or timeline.end_s) - (episode.begin_s or 0.0):.1f}",
            "acknowledged again within, s": f"{silence:.1f}",
        }
        for episode, silence in timeline.silences()
    ]
    return table(rows, list(rows[0])) if rows else "<p>No fault.</p>"
