"""Rows as a dated page, as JSON, and as text: both kinds of fault apart, with a way to see each again."""

from __future__ import annotations

import datetime as dt
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from sordino.audit.conformance.verdicts import Fault, Result, Row

PACKAGES = ("sordino", "numpy", "torch", "dp-accounting", "opacus", "peft", "flwr", "nvflare", "pfl")
ORDER = (
    Result.CRASH,
    Result.FAIL,
    Result.NOTE,
    Result.PASS,
    Result.REFUSED,
    Result.NOT_APPLICABLE,
)
"""Which verdict stands for a check whose cases differ: the first of these."""

UPSTREAM = (
    "Reported upstream: not yet. Each fault must be seen again on the then-current release before it is published."
)


def versions() -> dict[str, str]:
    """Of everything installed here that a verdict may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def document(rows: Iterable[Row], **more: Any) -> dict[str, Any]:
    """The JSON document: rows with the date and the versions they hold for."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return {"date": today, "versions": versions(), **more, "rows": [row.to_plain() for row in rows]}


def worst(results: Iterable[str]) -> str:
    """The verdict that stands for several.

    >>> worst(["PASS", "N-A", "REFUSED"])
    'PASS'
    """
    found = set(results)
    return next(result.value for result in ORDER if result.value in found)


def markdown(documents: Mapping[str, Mapping[str, Any]], missing: Mapping[str, str] | None = None) -> str:
    """The page.

    Args:
        documents: What `document` gave, by framework: each may come from an environment of its own.
        missing: Frameworks that could not be asked, and why.
    """
    parts = [
        "# Conformance\n",
        (
            "The same checks, put to every framework. `python benchmarks/conformance.py` makes this page; "
            "`sordino audit conformance --target NAME` asks one of them.\n"
        ),
        _legend(),
    ]
    for framework, made in documents.items():
        parts += _framework(framework, made)
    parts += [f"## {name}\n\nNot asked: {why}\n" for name, why in (missing or {}).items()]
    return "\n".join(parts)


def _legend() -> str:
    from sordino.audit.conformance.checks import checks

    asked = "".join(f"| {one.id} | {one.asks} |\n" for one in checks())
    return (
        f"| check | what must hold |\n|---|---|\n{asked}\n"
        "| verdict | meaning |\n|---|---|\n"
        "| PASS | nothing found |\n| REFUSED | fails closed on something public |\n"
        "| N-A | the question has no meaning here, or there is no way to ask it |\n"
        "| NOTE | worth knowing, contradicts nothing |\n"
        "| FAIL | something that the claim excludes happened, or the result is ruined |\n"
        "| CRASH | one unit's data ends the round, or never lets it end |\n"
    )


def _framework(framework: str, made: Mapping[str, Any]) -> list[str]:
    rows = made["rows"]
    held = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    parts = [f"## {framework}\n", f"{made['date']}, {held}.\n", _matrix(rows)]
    for fault in Fault:
        found = [row for row in rows if row["kind"] == fault.value]
        if found:
            parts += [f"### {framework}: {fault.value}\n", _faults(found)]
    notes = [row for row in rows if row["result"] == Result.NOTE.value]
    if notes:
        parts += [f"### {framework}: notes\n", _faults(notes)]
    if framework != "sordino" and any(row["kind"] for row in rows):
        parts.append(f"{UPSTREAM}\n")
    return parts


def _matrix(rows: Sequence[Mapping[str, Any]]) -> str:
    """Target by check, the worst verdict in each cell."""
    ids = sorted({row["id"] for row in rows})
    targets = list(dict.fromkeys(row["target"] for row in rows))
    lines = [f"| | {' | '.join(ids)} |", f"|---|{'---|' * len(ids)}"]
    for target in targets:
        cells = [
            worst(row["result"] for row in rows if row["target"] == target and row["id"] == asked) for asked in ids
        ]
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _faults(rows: Sequence[Mapping[str, Any]]) -> str:
    """Equal findings of several targets once, with one reproduction."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["id"], row["check"], row["result"]), []).append(row)
    parts = []
    for (id_, asked, result), alike in groups.items():
        parts.append(f"**{id_} {asked}: {result}**\n")
        parts += [f"- {row['target']}: {row['evidence']}" for row in alike]
        if alike[0]["disclosed"]:
            parts.append(f"\nIts documentation: {alike[0]['disclosed']}.")
        if alike[0]["reproduction"]:
            parts.append(
                f"\n<details><summary>see it again</summary>\n\n```python\n{alike[0]['reproduction']}```\n\n</details>"
            )
        parts.append("")
    return "\n".join(parts)


def lines(rows: Sequence[Row]) -> list[str]:
    """Text for a terminal: what is not simply well, and a count of the rest."""
    told = []
    for target in dict.fromkeys(row.target for row in rows):
        own = [row for row in rows if row.target == target]
        counts = Counter(row.result for row in own)
        told.append(
            f"{target}: " + ", ".join(f"{counts[result]} {result.value}" for result in Result if counts[result])
        )
        for row in own:
            if row.faulty or row.result is Result.NOTE:
                kind = f" ({row.fault.value})" if row.fault else ""
                told.append(f"  {row.id} {row.result.value} {row.check}: {row.evidence}{kind}")
    return told
