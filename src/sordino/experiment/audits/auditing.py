"""Attack a finished run with everything that fits it, cheapest first, within the time that was given."""

from __future__ import annotations

import importlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sordino.audit import findings
from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.findings import Finding, Verdict
from sordino.audit.page import page
from sordino.audit.sensor.finding import NAME as SENSOR
from sordino.audit.subjects import DoesNotFit
from sordino.core.checks import one_of
from sordino.experiment import config
from sordino.experiment.audits import sensor
from sordino.experiment.audits._audited import Audited


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

    @cached_property
    def again(self) -> _Subjects:
        """The same subjects with other randomness."""
        return _Subjects(replace(self.audited, seed=self.audited.seed + 1))

    def of(self, kind: Kind) -> Any:
        if self.audited.population.elsewhere and kind is not Kind.CANARIES:
            raise DoesNotFit("the records are at their sites: here only canaries can be asked for.")
        if kind not in self.made:
            self.made[kind] = importlib.import_module(f"sordino.experiment.audits.{kind}").subject(self.audited)
        return self.made[kind]


@dataclass(frozen=True)
class Choice:
    """Which attacks, with their options.

    Args:
        attacks: By name.
        sensor: Also drive the run's own steps.
        named: They were asked for by name, so they are run whatever they take.
    """

    attacks: Mapping[str, Attack]
    sensor: bool
    named: bool


def choice(names: Sequence[str] = (), overrides: Sequence[str] = ()) -> Choice:
    """The attacks that were asked for.

    Args:
        names: Of attacks, or `sensor`; left out, all.
        overrides: Options such as `lira.mode="offline"`, in TOML syntax.

    Raises:
        ConfigError: An attack or an option is unknown, or an option has a wrong value.
    """
    for name in names:
        one_of("audit", [*attacks.names(), SENSOR], attack=name)
    wanted = [name for name in names or attacks.names() if name != SENSOR]
    options: dict[str, Any] = {}
    for assignment in overrides:
        config.override(options, assignment)
    for name in options:
        one_of("audit", wanted, attack=name)
    chosen = {name: attacks.build(name, options.get(name, {}), f"attack.{name}") for name in wanted}
    return Choice(chosen, sensor=not names or SENSOR in names, named=bool(names))


def costs(audited: Audited, chosen: Choice) -> list[Cost]:
    """What the attacks would take, cheapest first."""
    took = (audited.folder.read("timing.json") or {}).get("cpu_seconds")
    found = []
    for name, attack in chosen.attacks.items():
        trainings = getattr(attack, "trainings", 0)
        found.append(Cost(name, trainings, None if took is None else trainings * took))
    return sorted(found, key=lambda cost: (cost.trainings, cost.attack))


def audit(
    audited: Audited, chosen: Choice, *, minutes: float = 10.0, progress: Progress = lambda _: None
) -> Iterator[Finding]:
    """One finding per attack, the sensor's first; those that do not fit say why.

    Args:
        audited: The run.
        chosen: The attacks.
        minutes: Attacks that would repeat trainings for longer than this are left out, unless named.
        progress: Told what is being done.
    """
    if chosen.sensor:
        progress(SENSOR)
        yield sensor.found(audited)
    subjects = _Subjects(audited)
    for cost in costs(audited, chosen):
        attack = chosen.attacks[cost.attack]
        if not chosen.named and cost.cpu_seconds is not None and cost.cpu_seconds > 60 * minutes:
            yield findings.skipped(cost.attack, attack.grade, _too_long(cost))
            continue
        yield _run(cost.attack, attack, subjects, progress)


def _run(name: str, attack: Attack, subjects: _Subjects, progress: Progress) -> Finding:
    progress(name)
    begun = time.process_time()
    try:
        found = attack.run(subjects.of(attack.kind), lambda step: progress(f"{name}: {step}"))
        if found.verdict is Verdict.REFUTED:
            progress(f"{name}: refuted; once more with fresh randomness")
            found = confirmed(found, attack.run(subjects.again.of(attack.kind), progress))
    except DoesNotFit as reason:
        return findings.skipped(name, attack.grade, str(reason))
    return replace(found, cpu_seconds=time.process_time() - begun)


def confirmed(first: Finding, second: Finding) -> Finding:
    """What two attempts say, of which the first refutes: only both do. A dozen tests at 95 % often refute by chance."""
    if second.verdict is Verdict.REFUTED:
        return replace(first, says=f"{first.says} A second attempt with fresh randomness refutes it too.")
    return replace(
        second, says=f"{second.says} A first attempt, with other randomness, refuted: chance does now and then."
    )


def _too_long(cost: Cost) -> str:
    minutes = (cost.cpu_seconds or 0.0) / 60
    return f"not run: {cost.trainings} trainings would take about {minutes:.0f} minutes; ask for it by name"


def write(audited: Audited, found: Sequence[Finding]) -> None:
    """`findings.json`, `findings.html` and the pictures, into the run folder.

    What may not leave the silo lies in `findings/local/` alone: whoever sends the rest sends nothing private.
    """
    folder, title = audited.folder, f"Audit of {audited.plan.experiment.name} {audited.plan.digest[:8]}"
    shutil.rmtree(folder.path / "findings", ignore_errors=True)  # of an earlier audit
    for one in found:
        for picture in one.pictures:
            file = folder.path / findings.file_of(one, picture)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(picture.png)
    public = [findings.withheld(one) if one.local else one for one in found]
    folder.write("findings.json", [findings.to_plain(one) for one in public])
    folder.write_text("findings.html", page(title, audited.promise, public))
    if public != list(found):
        (folder.path / "findings" / "local").mkdir(parents=True, exist_ok=True)
        folder.write("findings/local/findings.json", [findings.to_plain(one) for one in found])
        folder.write_text("findings/local/findings.html", page(title, audited.promise, found))
