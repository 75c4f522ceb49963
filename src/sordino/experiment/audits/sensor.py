"""A run's own loop as a black box: its setting, sampler, engine, doors and noise, on sensor rows.

    plan ──► the same experiment over canaries ──► Loop.rounds ──► parameters after every step ──► released sums

Nothing is charged: reservations are TEST rehearsals, and all records are made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sordino.audit.findings import Finding, Grade, skipped
from sordino.audit.sensor.finding import NAME, finding
from sordino.audit.sensor.full import audit
from sordino.audit.sensor.report import Report
from sordino.audit.sensor.rounds import LAWS
from sordino.audit.sensor.start import start, start_slopes
from sordino.audit.sensor.watching import Watching, sums
from sordino.audit.sensor.world import Declared, Floats, World
from sordino.core.errors import PrivacyError
from sordino.core.registry import single
from sordino.core.types import NoiseAt, RoundPlan, Update, Vector
from sordino.experiment.audits import _sensor_figures as figures
from sordino.experiment.audits import _sensor_setup as scaled
from sordino.experiment.audits._audited import Audited
from sordino.experiment.audits._sensor_setup import Kind
from sordino.experiment.build import source_of
from sordino.experiment.rounds import Loop, State
from sordino.experiment.settings import Setup, setting_of
from sordino.federation.averaging import TailAverage
from sordino.federation.engines import Engine, Together, Work
from sordino.federation.pipeline import Pipeline
from sordino.federation.strategies import strategies
from sordino.ledger.rehearsal import rehearsal
from sordino.privacy.permits import Line, Reservation

ROUNDS = 2
"""Rounds of a drive whose steps are releases: noise must be fresh within and across rounds."""

MOST = 8
"""Different noises that are driven: a federation may have as many as it has silos."""

FIGURES_AT_START = 96
"""Releases of figures at the start: half the noise then passes with probability < 1e-11, also of accuracy alone."""

FIGURES = 400
"""Releases of figures in the full audit."""

LONGER = 1e3
"""Clients' updates are so much longer than asked for, since an adaptive clip grows while it is watched."""


@dataclass(frozen=True)
class RunStep:
    """The step, or the aggregation, of a run.

    Args:
        setup: The run's fixed parts, built as for the run.
        relative: Noise of the sensor's silos over the asked multiplier, in turns, ≥ 1. What they release is divided
            by it: all noise is then the asked one, and canaries count less.
    """

    setup: Setup
    relative: tuple[float, ...] = (1.0,)

    @cached_property
    def kind(self) -> Kind:
        """What is protected, and where."""
        return Kind.of(self.setup.experiment)

    @cached_property
    def declared(self) -> Declared:
        experiment = self.setup.experiment
        noise = experiment.privacy.mechanism
        if not self.kind.clients:
            groups = self.kind.groups or (None,)
            rates = tuple(scaled.rate_of(experiment, group) for group in groups)
            shares = tuple(experiment.groups[group].share or 1.0 if group else 1.0 for group in groups)
            return Declared("all" if min(rates) == 1 else "poisson", rates, shares, noise)
        if self.kind.noise_at is NoiseAt.SILO:
            return Declared("each alone", (1.0,), noise=noise)
        name, options = single("sampling", scaled.sampling_of(experiment))
        size = options.get("size", options.get("cap"))
        return Declared(LAWS[name], (options.get("rate", 1.0),), noise=noise, size=size)

    def iterates(self, world: World, steps: int, noise_multiplier: float, seed: int) -> Floats:
        if self.kind.clients:
            drive = self._messages if self.kind.noise_at is NoiseAt.SILO else self._rounds_of_clients
        else:
            drive = self._rounds_of_silos if self.kind.halves else self._steps
        return drive(world, steps, noise_multiplier, f"{seed}/{noise_multiplier:g}")

    def relatives(
        self, world: World, steps: int, noise_multiplier: float, seed: int
    ) -> dict[str, tuple[Floats, Floats]]:
        """After a restart another process has another source of the same kind."""
        blocks = ROUNDS * scaled.SILOS
        first = self.iterates(world, blocks * -(-steps // blocks), noise_multiplier, seed)
        restarted = RunStep(replace(self.setup, source=source_of(self.setup.experiment)))
        found = {"restart": (first, restarted.iterates(world, steps, noise_multiplier, seed + 1))}
        if not self.kind.clients and not self.kind.halves:
            one, other = first.reshape(ROUNDS, scaled.SILOS, -1, *first.shape[1:]).swapaxes(0, 1)
            found["silos"] = one.reshape(-1, *first.shape[1:]), other.reshape(-1, *first.shape[1:])
        return found

    def _steps(self, world: World, steps: int, noise_multiplier: float, name: str) -> Floats:
        """Records protected at their silo: every step of every silo."""
        each = -(-steps // (ROUNDS * scaled.SILOS)) + 1  # a round's last parameters go to the coordinator only
        setup, lr, clip, expected = self._of_records(world, noise_multiplier, ROUNDS, each)
        watching = Watching()
        _looped(replace(setup, objective=watching), name)
        axes = (ROUNDS, each, scaled.SILOS) if setup.twin is not None else (ROUNDS, scaled.SILOS, each)
        seen = np.stack(watching.seen).reshape(*axes, -1)
        paths = seen.swapaxes(1, 2) if setup.twin is not None else seen
        momentum = setup.experiment.local.momentum
        found = [
            sums(path, lr, expected, momentum) / self.relative[silo % len(self.relative)]
            for of_round in paths
            for silo, path in enumerate(of_round)
        ]
        return _shaped(np.concatenate(found)[:steps] / clip, world)

    def _rounds_of_silos(self, world: World, steps: int, noise_multiplier: float, name: str) -> Floats:
        """Records protected at the sum: every round."""
        setup, lr, clip, expected = self._of_records(world, noise_multiplier, steps, 1)
        models = [np.zeros(setup.layout.size, np.float32), *(s.server.model for s in _looped(setup, name))]
        return _shaped(sums(models, lr, expected) / clip, world)

    def _rounds_of_clients(self, world: World, steps: int, noise_multiplier: float, name: str) -> Floats:
        """Clients protected by the coordinator: every round, over the bound of the stages as they are in it."""
        setup, clip = self._of_clients(world, noise_multiplier, steps)
        states = _looped(setup, name)
        before = [setup.pipeline(), *(Pipeline.from_tables(state.memory["stages"]) for state in states)][:-1]
        models = [np.zeros(setup.layout.size, np.float32), *(state.server.model for state in states)]
        lr = scaled.server_lr(self.setup.experiment.local.step_size, clip)
        expected = float(self.declared.rate(world.canaries).sum())
        return _shaped(sums(models, lr, expected) / np.array([[self._bound(each)] for each in before]), world)

    def _messages(self, world: World, steps: int, noise_multiplier: float, name: str) -> Floats:
        """Clients that noise their own updates: every message."""
        setup, _ = self._of_clients(world, noise_multiplier, -(-steps // world.canaries))
        listening = Listening(setup.engine)
        _looped(replace(setup, engine=listening), name)
        heard = np.stack(listening.heard[:steps]).astype(np.float64)
        clients = np.arange(len(heard)) % world.canaries
        heard /= np.array(self.relative)[clients % len(self.relative), None]
        return _shaped(-heard / self._bound(setup.pipeline()), world)

    def _bound(self, pipeline: Pipeline) -> float:
        bound = pipeline.bound()
        return cast("float", bound.l1 if self.declared.noise == "laplace" else bound.l2)

    def _of_records(
        self, world: World, noise_multiplier: float, rounds: int, steps: int
    ) -> tuple[Setup, float, float, float]:
        """The setup, its step size, its clip, and how many contributions it declares to expect in a step."""
        declared = self.declared
        units = float((declared.rate(world.canaries) * declared.share(world.canaries)).sum())
        noises = tuple(noise_multiplier * more for more in self.relative)
        experiment = scaled.changed(self.setup.experiment, max(noises), units, rounds, steps)
        clip = cast("float", experiment.local.clip)
        setup = scaled.setup_of(self.setup, experiment, world, world.lengths(clip), noises)
        return setup, experiment.local.step_size, clip, units

    def _of_clients(self, world: World, noise_multiplier: float, rounds: int) -> tuple[Setup, float]:
        noises = tuple(noise_multiplier * more for more in self.relative)
        experiment = scaled.changed(self.setup.experiment, max(noises), 1.0, rounds, 1)
        clip = scaled.clip_of_clients(experiment)
        lengths = np.where(world.loud, world.gains, 10.0) * (LONGER * clip / experiment.local.step_size)
        return scaled.setup_of(self.setup, experiment, world, lengths, noises), clip


@dataclass(frozen=True)
class RunSlopes:
    """The zeroth-order step of a run.

    Args:
        setup: The run's fixed parts, built as for the run.
    """

    setup: Setup

    @cached_property
    def declared(self) -> Declared:
        return Declared(
            "poisson", (scaled.rate_of(self.setup.experiment),), noise=self.setup.experiment.privacy.mechanism
        )

    @property
    def directions(self) -> int:
        return self.setup.experiment.local.directions

    def slopes(self, gains: tuple[float, ...], steps: int, noise_multiplier: float) -> Floats:
        world = World(4, 1, np.arange(len(gains)), np.array(gains))
        units = len(gains) * self.declared.rates[0]
        experiment = scaled.changed(self.setup.experiment, noise_multiplier, units, 1, -(-steps // scaled.SILOS))
        clip = cast("float", experiment.local.clip)
        setup = scaled.setup_of(self.setup, experiment, world, world.lengths(clip), (noise_multiplier,))
        listening = Listening(setup.engine)
        _looped(replace(setup, engine=listening), f"slopes/{noise_multiplier:g}")
        # A message is a silo's slopes over its expected batch, times its weight.
        heard = np.concatenate(listening.heard).astype(np.float64).reshape(-1, 1, self.directions)
        return heard * units / setup.plan.weights[0] / clip


def at_start(setup: Setup) -> Report | None:
    """The short form on a run that is about to start; None where nothing is private or its steps cannot be driven."""
    if not setup.plan.private:
        return None
    noises, more = noises_of(setup), figures.measured(setup, FIGURES_AT_START)
    if not scaled.releases_gradients(setup.plan):
        return start_slopes(RunSlopes(setup), sorted({noises[0], noises[-1]}), more=more)
    return start(RunStep(setup), noises[0], others=_pairs(setup), more=more)


def noises_of(setup: Setup) -> list[float]:
    """The distinct noise multipliers of a run's accounts, smallest first: all of them, or `MOST` from end to end."""
    distinct = sorted({account.noise_multiplier for account in setup.plan.accounts})
    return [distinct[i] for i in np.unique(np.linspace(0, len(distinct) - 1, min(MOST, len(distinct))).astype(int))]


def _pairs(setup: Setup) -> list[RunStep]:
    """Steps in which a silo with the least noise and one with more of it train in the same rounds."""
    least, *larger = noises_of(setup)
    return [RunStep(setup, (1.0, noise / least)) for noise in larger]


def report(audited: Audited, *, alpha: float = 1e-3) -> Report | None:
    """The full sensor audit of a finished run's own configuration; None where its steps cannot be driven."""
    if not scaled.releases_gradients(audited.plan):
        return None
    step = RunStep(audited.built.setup)
    # Every canary is a client that trains: fewer of them, and fewer rounds.
    sizes: dict[str, int] = {"rows": 100, "steps": 40} if step.kind.clients else {}
    others = _pairs(step.setup)
    more = figures.measured(step.setup, FIGURES)
    return audit(step, alpha=alpha, seed=audited.seed, others=others, more=more, **sizes)


def found(audited: Audited) -> Finding:
    """What the full sensor audit says of a finished run, for `sordino audit RUN`."""
    made = report(audited)
    if made is None:
        return skipped(
            NAME, Grade.CONFORMANCE, "Nothing is promised, or releases are slopes, without rows to tell apart."
        )
    return finding(made, audited.promise)


@dataclass(frozen=True)
class Rehearsals:
    """Books that charge nobody."""

    name: str

    def reserve(
        self,
        txid: str,
        round: int,  # noqa: A002, ARG002 - the protocol's
        lines: list[Line],
        purpose: str = "train",  # noqa: ARG002 - the protocol's
    ) -> Reservation:
        return rehearsal(f"{self.name}/{txid}", lines)

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        pass

    def earlier(self, txid: str) -> bytes | bool | None:  # noqa: ARG002 - the protocol's
        return None

    def published(self, txid: str) -> None:
        pass


@dataclass(frozen=True)
class Listening(Engine):
    """An engine whose messages are overheard: they were released before they were sent."""

    inner: Engine
    heard: list[Vector] = field(default_factory=list)
    example: ClassVar[Mapping[str, Any]] = {}

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        for update in self.inner.run(plan, cohort, model, work, together):
            self.heard.append(np.asarray(update.vector, np.float32))
            yield update


def _looped(setup: Setup, name: str) -> list[State]:
    """The states after every round of the run's own loop."""
    strategy_name, options = single("strategy", setup.experiment.strategy)
    strategy = strategies.build(strategy_name, options, "strategy")
    states: list[State] = []
    books = Rehearsals(name)
    loop = Loop(setup, strategy, TailAverage(), books, "sensor", lambda _: None, states.append)
    loop.rounds(loop.start(np.zeros(setup.layout.size, np.float32)), setting_of(setup))
    return states


def _shaped(found: Floats, world: World) -> Floats:
    if found.shape[1:] != (world.groups * world.rows,):
        raise PrivacyError.about("sensor", "releases something else than the model's parameters", shape=found.shape)
    return found.reshape(-1, world.groups, world.rows)
