"""Findings as one self-contained page: claim, bounds, attack curves under the promise's ceiling, pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from sordino.audit.findings import Figure, Finding, Verdict, by_chance
from sordino.audit.promise import Promise

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }
.refuted { color: #b00020; font-weight: bold } .leaks { color: #a05a00 }
.holds { color: #1b6e2d } .skipped { color: #777 }
figure { margin: 1rem 0 } img { image-rendering: pixelated; max-width: 100% } svg { background: #fafafa }
small { color: #666 }
"""

SIDE = 280
"""Width and height of a drawn curve, in pixels."""

COLOURS = ("#1f5fa8", "#a05a00", "#1b6e2d", "#7a3b9c")


def page(title: str, promise: Promise | None, found: Sequence[Finding]) -> str:
    """The page's text. It refers to nothing outside itself."""
    body = "".join(_section(finding) for finding in found)
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1>{_notice(found)}<p>{_claim(promise)}</p>{_summary(found)}{body}</html>\n"
    )


def _notice(found: Sequence[Finding]) -> str:
    """Whether the page may be passed on."""
    if any(finding.local and finding.figures for finding in found):
        return "<p class='refuted'>LOCAL: this page holds figures, and perhaps pictures, of private records.</p>"
    return ""


def _claim(promise: Promise | None) -> str:
    if promise is None:
        return "<b>No claim.</b> This run is not private."
    test = " <b class='refuted'>TEST: the noise was predictable.</b>" if promise.test else ""
    return (
        escape(
            f"Claim: epsilon {promise.epsilon:.4g} at delta {promise.delta:.2g} for one {promise.unit}, "
            f"{promise.adjacency}, against {promise.view}. {promise.source}."
        )
        + test
    )


def _summary(found: Sequence[Finding]) -> str:
    rows = "".join(
        f"<tr><td><a href='#{escape(f.attack)}'>{escape(f.attack)}</a><td>{f.grade}"
        f"<td class='{f.verdict}'>{f.verdict}<td>{_bound(f)}"
        for f in found
    )
    return f"<table><tr><th>attack<th>grade<th>verdict<th>epsilon at least{rows}</table>{_chance(found)}"


def _chance(found: Sequence[Finding]) -> str:
    tests, chance = by_chance(found)
    said = (
        f"{tests} tests at their own confidence, each refutation repeated with fresh randomness: a true claim is "
        f"refuted with up to {chance:.1%}; more where the run's own model was asked about canaries that it carried."
    )
    return f"<p><small>{said}</small></p>" if tests > 1 else ""


def _bound(finding: Finding) -> str:
    if finding.lower_bound is None:
        return ""
    promised = f", where {finding.promise.epsilon:.4g} is promised" if finding.promise is not None else ""
    return f"{finding.lower_bound:.3g} at {finding.confidence:.4g} confidence{promised}"


def _section(finding: Finding) -> str:
    shown = finding.local and finding.figures
    local = " <b>Local: depends on private records, may not leave the silo.</b>" if shown else ""
    name, causes = escape(finding.attack), "".join(f"<li>{escape(cause)}" for cause in finding.causes)
    parts = [
        f"<h2 id='{name}'>{name} <small class='{finding.verdict}'>{finding.verdict}</small></h2>",
        f"<p>{escape(finding.says)}{local}<br><small>Does not show {escape(finding.shows_not)}.</small></p>",
    ]
    if causes and finding.verdict is Verdict.REFUTED:
        parts.append(f"<p>Likely causes:</p><ol>{causes}</ol>")
    if finding.figures:
        rows = "".join(f"<tr><td>{escape(name)}<td>{_figure(f)}" for name, f in finding.figures.items())
        parts.append(f"<table>{rows}</table>")
    parts += [_curve(name, series) for name, series in finding.curves.items()]
    for picture in finding.pictures:
        data = base64.b64encode(picture.png).decode()
        parts.append(
            f"<figure><img alt='{escape(picture.caption)}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
        )
    return "".join(parts)


def _figure(figure: Figure) -> str:
    interval = "" if figure.low is None or figure.high is None else f" [{figure.low:.4g}, {figure.high:.4g}]"
    return f"{figure.value:.4g}{interval}"


def _curve(name: str, series: Mapping[str, list[float]]) -> str:
    """The first series is the horizontal axis; the others are drawn over it, on [0, 1] or their own range."""
    (axis, xs), *lines = series.items()
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    top = max([1.0, *(y for _, ys in lines for y in ys)])
    drawn, legend = [], []
    for colour, (label, ys) in zip(COLOURS, lines, strict=False):
        points = " ".join(
            f"{SIDE * (x - low) / ((high - low) or 1):.1f},{SIDE * (1 - y / top):.1f}"
            for x, y in zip(xs, ys, strict=True)
        )
        drawn.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.5'/>")
        legend.append(f"<span style='color:{colour}'>{escape(label)}</span>")
    caption = f"{escape(name)}, over {escape(axis)} from {low:.3g} to {high:.3g}: {', '.join(legend)}"
    return (
        f"<figure><svg width='{SIDE}' height='{SIDE}' role='img' aria-label='{escape(name)}'>{''.join(drawn)}</svg>"
        f"<figcaption>{caption}</figcaption></figure>"
    )
