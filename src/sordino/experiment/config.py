"""An experiment as data: TOML in, one frozen value out. Unknown keys are errors with the nearest known name.

Experiment
├── data, partition, model, objective     what is learnt, from whom   (one named table each)
├── privacy, silos, groups, budget        what is promised            (Privacy, SiloTable, GroupTable, Budget)
├── ledger, approval, enforcement         who keeps the books, who allowed it (Enforcement)
├── local                                 what a silo does in a round (Local)
├── sampling, stages, strategy, average   how updates become a model
└── evaluation, compare, audit, simulation    what is measured and attacked, and where it is only a simulation
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sordino.core import checks, tables
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.privacy.accounting import PLD_FLOOR

FIT = "fit"
"""Written in place of `rounds` or `local.batch`: find it from the others."""

LEAST_DELTA = PLD_FLOOR
"""Floating-point noise ends somewhere, and accountants work on a grid: below this δ neither can be trusted."""


@dataclass(frozen=True)
class Privacy:
    """What is promised, and to whom.

    Give `epsilon` and leave `noise_multiplier` out (it is found), or give the multiplier and leave epsilon out
    (it is computed), or give both: then epsilon is a limit, and `rounds = "fit"` or `local.batch = "fit"` is found.

    Args:
        unit: Whose presence is hidden.
        noise_at: Where noise is added.
        epsilon: Limit per account, > 0, for the whole run.
        delta: Failure probability; default min(1e-5, 1/n^1.1) for n protected units.
        noise_multiplier: Noise standard deviation (Gaussian) or scale (Laplace) over the clip norm.
        adjacency: Neighbouring relation; default fits the sampling.
        mechanism: `gaussian`, `laplace`, or with [secure_sum] `skellam` or `discrete_gaussian`.
        silos_per_person: In how many silos one person can be. 1 means disjoint; left out means unknown, priced as all.
        non_private: Train without any protection. Said loudly everywhere.
    """

    unit: Unit = Unit.RECORD
    noise_at: NoiseAt = NoiseAt.SILO
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    adjacency: Adjacency | None = None
    mechanism: Literal["gaussian", "laplace", "skellam", "discrete_gaussian"] = "gaussian"
    silos_per_person: int | None = None
    non_private: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise_multiplier"):
            if getattr(self, name) is not None:
                checks.sensible("privacy", **{name: getattr(self, name)})
        if self.delta is not None:
            checks.fraction("privacy", delta=self.delta)
            if self.delta < LEAST_DELTA:
                raise ConfigError.about(
                    "privacy",
                    f"is less than sampled noise can honour; the least is {LEAST_DELTA:g}",
                    "1e-5 suits most",
                    delta=self.delta,
                )
        if self.silos_per_person is not None:
            checks.count("privacy", silos_per_person=self.silos_per_person)
        if self.non_private and (self.epsilon or self.noise_multiplier):
            raise ConfigError.about("privacy", "excludes epsilon and noise_multiplier", "drop one", non_private=True)
        if not self.non_private and self.epsilon is None and self.noise_multiplier is None:
            raise ConfigError.about(
                "privacy", "needs epsilon or noise_multiplier", "write `epsilon = 2.0`, or `non_private = true`"
            )


@dataclass(frozen=True)
class SiloTable:
    """One silo's own terms: a smaller epsilon for more sensitive data, and its size where nobody else has its data.

    Args:
        epsilon: Its limit.
        records: How many records it trains on, public by declaration: given for all silos of the run, or for none.
        persons: Of how many persons they are, where persons are protected; as `records`.
    """

    epsilon: float | None = None
    records: int | None = None
    persons: int | None = None

    def __post_init__(self) -> None:
        for name in ("records", "persons"):
            if getattr(self, name) is not None:
                checks.count("silos", **{name: getattr(self, name)})
        if self.persons is not None and self.records is None:
            raise ConfigError.about("silos", "goes with records", "declare both", persons=self.persons)
        if self.epsilon is not None:
            checks.sensible("silos", epsilon=self.epsilon)


@dataclass(frozen=True)
class GroupTable:
    """A public group's own terms, for the records that the data set's `group` column puts into it.

    Args:
        epsilon: Its limit, at most `privacy.epsilon`.
        rate: At which its records join a step: found by the plan.
        share: Its clip over `local.clip`: found by the plan.
    """

    epsilon: float
    rate: float | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        checks.sensible("groups", epsilon=self.epsilon)


@dataclass(frozen=True)
class Budget:
    """What each account may spend over all runs in its ledger. Left out, a ledger pays for one run of this plan."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        checks.sensible("budget", epsilon=self.epsilon)
        checks.fraction("budget", delta=self.delta)


@dataclass(frozen=True)
class Enforcement:
    """Every silo keeps a ledger of its own, and no round is drawn that one of them did not grant.

    Args:
        silos: Folder with one folder per silo, as `sordino silo enroll` makes them.
        key: File of the coordinator's private key: it signs checkpoints of `ledger`, which the silos keep.
    """

    silos: str
    key: str


@dataclass(frozen=True)
class SecureSum:
    """Silos mask what they send, so that only its sum is seen, and draw the sum's noise in shares.

    Args:
        bits: Numbers are summed modulo 2^bits, 4 to 40: more are finer, and longer to send.
        minimum: With fewer silos left a round is given up; more than half. Left out, all.
        colluding: Share of the silos feared to work together with the coordinator, in [0, 1): noise is sized for the
            others.
        parties: How many silos there are: found by the plan.
        size: How long a vector is: found by the plan.
        units: How many clipped vectors are summed: found by the plan.
    """

    bits: int = 24
    minimum: int | None = None
    colluding: float = 0.0
    parties: int | None = None
    size: int | None = None
    units: int | None = None

    def __post_init__(self) -> None:
        checks.count("secure_sum", bits=self.bits)
        if self.minimum is not None:
            checks.count("secure_sum", minimum=self.minimum)
        if not 0 <= self.colluding < 1:
            raise ConfigError.about("secure_sum", "must lie in [0, 1)", colluding=self.colluding)


@dataclass(frozen=True)
class Homomorphic:
    """Silos send what they release under one key of their own, so that the coordinator sees its sum only.

    It hides who sent what, and no guarantee rests on it: for 2 to 5 silos with noise at the silo.

    Args:
        bits: The sum is exact to a standard deviation of 2^-bits, 16 to 40; finer leaves less room for large numbers.
    """

    bits: int = 30

    def __post_init__(self) -> None:
        checks.count("homomorphic", bits=self.bits)
        if not 16 <= self.bits <= 40:
            raise ConfigError.about("homomorphic", "must lie in 16 … 40", bits=self.bits)


@dataclass(frozen=True)
class Local:
    """What a client does in one round.

    Args:
        lr: Step size, > 0. May be left out where `noise_walk` gives it.
        noise_walk: With noise at silo or sum, the step size follows from the noise instead: the noise alone then moves
            each parameter by a standard deviation of `noise_walk` over the run. One number fits every epsilon.
        steps: Local steps per round.
        batch: `"full"`, or the rate in (0, 1] at which a record joins a step's batch, or `"fit"`.
        clip: L2 norm of one unit's gradient (noise at silo or sum).
        epochs: Passes over a client's records instead of `steps`; only where the client as a whole is protected.
        batch_size: Records per step of such training; left out, all.
        momentum: Of the local steps; with noise at silo or sum, on released gradients only.
        engine: Per-example clipping engine.
        clipping: How each gradient is brought within the clip: `flat`, `per_layer`, or `automatic`, which normalises.
        micro_batch: Records in one pass; left out, chosen by the model. It changes memory and speed only.
        method: `gradient`, or `zeroth_order`: losses only, and a few numbers per step on the wire.
        directions: Random directions per zeroth-order step, 16 at most.
        radius: How far along a direction zeroth-order losses are taken.
        people: For the unit `user`: clip the `mean` gradient of each person who joins, or let `records` join and be
            clipped one by one.
        records_per_person: With `people = "records"`: at most so many of a person's records ever count.
        individual: Give each of `[groups]` its own epsilon: `sample` by how often its records join, `scale` by how
            hard they are clipped. Who is in which group is public.
    """

    lr: float | None = None
    noise_walk: float | None = None
    steps: int = 1
    batch: float | Literal["full", "fit"] = "full"
    clip: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    momentum: float = 0.0
    engine: Literal["auto", "bookkeeping", "opacus", "vmap", "oracle"] = "auto"
    clipping: Literal["flat", "per_layer", "automatic"] = "flat"
    micro_batch: int | None = None
    method: Literal["gradient", "zeroth_order"] = "gradient"
    directions: int = 1
    radius: float = 1e-3
    people: Literal["mean", "records"] = "mean"
    records_per_person: int | None = None
    individual: Literal["sample", "scale"] | None = None

    def __post_init__(self) -> None:
        for name in ("lr", "noise_walk", "clip"):
            if getattr(self, name) is not None:
                checks.sensible("local", **{name: getattr(self, name)})
        if self.lr is None and self.noise_walk is None:
            raise ConfigError.about("local", "lacks the key 'lr'", "write e.g. `lr = 0.5`")
        checks.sensible("local", radius=self.radius)
        checks.count("local", steps=self.steps, directions=self.directions)
        for name in ("epochs", "batch_size", "records_per_person", "micro_batch"):
            if getattr(self, name) is not None:
                checks.count("local", **{name: getattr(self, name)})
        if isinstance(self.batch, float):
            checks.rate("local", batch=self.batch)
        if not 0 <= self.momentum < 1:
            raise ConfigError.about("local", "must lie in [0, 1)", momentum=self.momentum)

    @property
    def step_size(self) -> float:
        """The learning rate, once it is known."""
        if self.lr is None:
            raise ConfigError.about("local", "lacks the key 'lr'", "noise_walk serves only noise at silo or sum")
        return self.lr

    @property
    def rate(self) -> float:
        """The sampling rate of one record in one step; 1 for a full batch."""
        if isinstance(self.batch, float):
            return self.batch
        if self.batch == FIT:
            raise ConfigError.about("local", "has not been found yet", "plan the experiment first", batch=FIT)
        return 1.0


@dataclass(frozen=True)
class MetricRelease:
    """Figures on held-out records that every silo releases at the end, through noise that its accounts pay for.

    Args:
        epsilon: Price of the release, > 0, in pure epsilon: Laplace noise.
        noise_multiplier: In its place: Gaussian noise, over the bound of one unit's row.
        loss: The largest loss in nats that counts, > 0; left out, no loss is released.
    """

    epsilon: float | None = None
    noise_multiplier: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ConfigError.about(
                "evaluation.release", "needs exactly one of epsilon and noise_multiplier", "write `epsilon = 0.2`"
            )
        for name in ("epsilon", "noise_multiplier", "loss"):
            if getattr(self, name) is not None:
                checks.sensible("evaluation.release", **{name: getattr(self, name)})


@dataclass(frozen=True)
class Evaluation:
    """How the model is judged.

    Args:
        test_fraction: Share of each client's records that is held out and never trained on; on private data the
            probability of each record to be.
        data: A data table of its own for testing, such as `{ mnist = { part = "test" } }`; then all records train.
        every: Evaluate after so many rounds; 0 means at the end only.
        split: Which of the possible held-out parts.
        release: Figures that leave the silos, noised and charged; left out, none do.
    """

    test_fraction: float = 0.2
    data: dict[str, Any] | None = None
    every: int = 0
    split: int = 0
    release: MetricRelease | None = None

    def __post_init__(self) -> None:
        checks.fraction("evaluation", test_fraction=self.test_fraction)
        checks.non_negative("evaluation", every=self.every, split=self.split)


@dataclass(frozen=True)
class Compare:
    """A table of settings side by side, for data sets that are public research data only."""

    epsilon: tuple[float, ...] = ()
    splits: int = 1
    alone: bool = True
    non_private: bool = True

    def __post_init__(self) -> None:
        checks.count("compare", splits=self.splits)
        for value in self.epsilon:
            checks.sensible("compare", epsilon=value)


@dataclass(frozen=True)
class AuditTable:
    """Crafted records that a run carries, so that its own result can be attacked: each in or out by a fair coin.

    Args:
        canaries: Number of candidates; about half of them are in.
        silo: Whose records they join; left out, the largest silo's.
        kind: `random` (noise with a random label), or `mislabelled` (held-out records of public data).
        seed: Of records and coins.
    """

    canaries: int
    silo: str | None = None
    kind: Literal["random", "mislabelled"] = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        checks.count("audit", canaries=self.canaries)
        checks.non_negative("audit", seed=self.seed)


@dataclass(frozen=True)
class Simulation:
    """Choices of a simulation. Seeded noise and played sums mark every ledger line and claim TEST.

    Args:
        noise_seed: Draw noise and cohorts from a seeded source. Whoever knows the seed can subtract the noise.
        secure_sum: Play the secure summation that `noise_at = "sum"` needs, inside this process.
        cohort: How the clients of a small model train in one process: `loop` (one after another), `vmap` or `stacked`
            (side by side); `auto` measures at start. It changes speed, not results beyond rounding.
    """

    noise_seed: int | None = None
    secure_sum: bool = False
    cohort: Literal["auto", "loop", "vmap", "stacked"] = "auto"

    @property
    def test(self) -> bool:
        """Whether something is simulated on which the guarantee rests."""
        return self.noise_seed is not None or self.secure_sum


@dataclass(frozen=True)
class Experiment:
    """The whole run. See the module's drawing; each named table is `{NAME: options}` with exactly one name."""

    name: str
    data: dict[str, Any]
    model: dict[str, Any]
    privacy: Privacy
    local: Local
    strategy: dict[str, Any]
    rounds: int | Literal["fit"] = 1
    seed: int = 0
    partition: dict[str, Any] = field(default_factory=lambda: {"natural": {}})
    objective: dict[str, Any] = field(default_factory=lambda: {"plain": {}})
    sampling: dict[str, Any] = field(default_factory=lambda: {"all": {}})
    stages: tuple[dict[str, Any], ...] = ()
    weights: Literal["size", "uniform", "noise_aware"] = "size"
    average: float = 0.0
    silos: dict[str, SiloTable] = field(default_factory=dict)
    groups: dict[str, GroupTable] = field(default_factory=dict)
    budget: Budget | None = None
    ledger: str | None = None
    approval: str | None = None
    enforcement: Enforcement | None = None
    secure_sum: SecureSum | None = None
    homomorphic: Homomorphic | None = None
    evaluation: Evaluation = Evaluation()
    compare: Compare | None = None
    audit: AuditTable | None = None
    simulation: Simulation = Simulation()

    def __post_init__(self) -> None:
        if not self.name[:1].isalnum() or not all(c.isalnum() or c in "-_." for c in self.name):
            raise ConfigError.about(
                "experiment", "must be letters, digits, '-', '_' or '.', a letter or digit first", name=self.name
            )
        if not isinstance(self.rounds, str):
            checks.count("experiment", rounds=self.rounds)
        checks.non_negative("experiment", seed=self.seed)
        if self.enforcement is not None and self.ledger is None:
            raise ConfigError.about(
                "enforcement", "needs a ledger that outlives the run", 'write e.g. `ledger = "federation.db"`'
            )
        if not 0 <= self.average < 1:
            raise ConfigError.about(
                "experiment", "must lie in [0, 1): a share of the last rounds", average=self.average
            )

    @property
    def count(self) -> int:
        """Number of rounds, once it is known."""
        if isinstance(self.rounds, str):
            raise ConfigError.about("experiment", "has not been found yet", "plan the experiment first", rounds=FIT)
        return self.rounds


def parse(text: str, overrides: tuple[str, ...] = ()) -> Experiment:
    """An experiment from TOML text.

    Args:
        text: The file's content.
        overrides: Assignments such as `privacy.epsilon=1.0`, in TOML syntax, applied last.

    Raises:
        ConfigError: Bad TOML, an unknown key, a wrong type or value.
    """
    table = _toml(text, "experiment")
    for assignment in overrides:
        override(table, assignment)
    return tables.build(Experiment, table, "experiment")


def read(path: Path, overrides: tuple[str, ...] = ()) -> Experiment:
    """An experiment from a file; see `parse`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "is not UTF-8 text"
        raise ConfigError.about(
            "experiment", f"cannot be read: {reason}", "start from `sordino init`", file=str(path)
        ) from None
    return parse(text, overrides)


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """The effective experiment as JSON-able values: what the run folder keeps and the digest covers."""
    result: dict[str, Any] = tables.plain(experiment)
    return result


def changed(experiment: Experiment, **values: Any) -> Experiment:
    """A copy with some fields changed; `privacy__epsilon=1` reaches into a table."""
    for name, value in values.items():
        outer, _, inner = name.partition("__")
        new = dataclasses.replace(getattr(experiment, outer), **{inner: value}) if inner else value
        experiment = dataclasses.replace(experiment, **{outer: new})
    return experiment


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError.about(where, f"is not valid TOML: {problem}") from None


def override(table: dict[str, Any], assignment: str) -> None:
    """Set one key of a nested table by an assignment such as `privacy.epsilon=1.0`, in TOML syntax.

    Raises:
        ConfigError: It is no assignment, or leads through something that is no table.
    """
    key, found, value = assignment.partition("=")
    if not found or not key.strip():
        raise ConfigError.about("--set", "must look like privacy.epsilon=1.0", assignment=assignment)
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    *outer, last = key.strip().split(".")
    for part in outer:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError.about("--set", f"{part!r} is not a table", assignment=assignment)
    table[last] = parsed
