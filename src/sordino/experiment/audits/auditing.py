"""Attack a finished run with everything that fits it, cheapest first, within the time that was given."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sordino.audit import findings
from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.findings import Finding
from sordino.audit.subjects import DoesNotFit
from sordino.core.checks import one_of
from sordino.experiment.audits._audited import Audited

FOLDER = "findings"
"""Where a run folder keeps the pictures."""


@dataclass(frozen=True)
class Cost:
    """What an attack takes before it is begun.

    Args:
        attack: Its name.
        trainings: How often it repeats the run's training.
        cpu_seconds: About how long that is, or None where the run did not say what its training took.
    """

    attack: str
    trainings: int
    cpu_seconds: float | None


@dataclass
class _Subjects:
    """Subjects of one audit, each made once, when first asked for."""

    audited: Audited
    made: dict[Kind, Any] = field(default_factory=dict)

    def of(self, kind: Kind) -> Any:
        if kind not in self.made:
            self.made[kind] = importlib.import_module(f"sordino.experiment.audits.{kind}").subject(self.audited)
        return self.made[kind]


def costs(audited: Audited, names: Sequence[str] = ()) -> list[Cost]:
    """What the attacks would take, cheapest first.

    Args:
        audited: The run.
        names: The attacks; left out, all.

    Raises:
        ConfigError: An attack is unknown.
    """
    for name in names:
        one_of("audit", attacks.names(), attack=name)
    took = (audited.folder.read("summary.json") or {}).get("cpu_seconds")
    found = []
    for name in names or attacks.names():
        trainings = getattr(attacks.example(name), "trainings", 0)
        found.append(Cost(name, trainings, None if took is None else trainings * took))
    return sorted(found, key=lambda cost: (cost.trainings, cost.attack))


def audit(
    audited: Audited, names: Sequence[str] = (), *, minutes: float = 10.0, progress: Progress = lambda _: None
) -> Iterator[Finding]:
    """One finding per attack; those that do not fit say why.

    Args:
        audited: The run.
        names: The attacks; left out, all. Those that are named are run whatever they take.
        minutes: Attacks that would repeat trainings for longer than this are left out, unless named.
        progress: Told what is being done.
    """
    subjects = _Subjects(audited)
    for cost in costs(audited, names):
        attack = attacks.example(cost.attack)
        if not names and cost.cpu_seconds is not None and cost.cpu_seconds > 60 * minutes:
            yield findings.skipped(cost.attack, attack.grade, _too_long(cost))
            continue
        yield _run(cost.attack, attack, subjects, progress)


def _run(name: str, attack: Attack, subjects: _Subjects, progress: Progress) -> Finding:
    progress(name)
    begun = time.process_time()
    try:
        found = attack.run(subjects.of(attack.kind), lambda step: progress(f"{name}: {step}"))
    except DoesNotFit as reason:
        return findings.skipped(name, attack.grade, str(reason))
    return replace(found, cpu_seconds=time.process_time() - begun)


def _too_long(cost: Cost) -> str:
    minutes = (cost.cpu_seconds or 0.0) / 60
    return f"not run: {cost.trainings} trainings would take about {minutes:.0f} minutes; ask for it by name"


def write(audited: Audited, found: Sequence[Finding]) -> None:
    """`findings.json` and the pictures, into the run folder."""
    pictures = [picture for finding in found for picture in finding.pictures]
    if pictures:
        (audited.folder.path / FOLDER).mkdir(exist_ok=True)
    for picture in pictures:
        (audited.folder.path / FOLDER / picture.name).write_bytes(picture.png)
    audited.folder.write("findings.json", [findings.to_plain(finding) for finding in found])
