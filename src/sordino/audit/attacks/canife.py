"""CANIFE: one crafted record, present or absent over many rounds; what can be told apart bounds ε from below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.promise import Promise
from sordino.audit.stats.two_world import epsilon_bound, mu_bound
from sordino.audit.subjects.clients import Clients, Floats
from sordino.core import checks
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Unit
from sordino.privacy import events, gaussian

EPSILONS = (1.0, 4.5)
"""Claims that some hundred rounds can refute."""

Scores: TypeAlias = NDArray[np.float64]

CAUSES = (
    "noise below what is charged, or not drawn anew for every round",
    "updates are clipped at a larger norm, or by layer, than is certified",
    "weights or a realised divisor let one client move the sum further than its clip",
)


@attacks.register("canife")
@dataclass(frozen=True)
class Canife(Attack):
    """Lower bound on one round's epsilon for a client: a crafted record whose gradient nobody else's update covers.

    The record is made so that its gradient is orthogonal to held-out clients' updates. A client that holds nothing else
    joins half of the rounds; the score is the release's share along that gradient. A quarter of the rounds fixes the
    threshold, the others are counted.

    Args:
        rounds: Driven rounds with the client, and as many without.
        confidence: Of everything that is said, in (0, 1).
        delta: Where the run claims none.

    Source:
        Maddock, Sablayrolles and Stock (2023), arXiv:2210.02912.
    """

    example: ClassVar[dict[str, Any]] = {"rounds": 600, "confidence": 0.95}
    kind: ClassVar[Kind] = Kind.CLIENTS
    grade: ClassVar[Grade] = Grade.FALSIFICATION
    rounds: int = 600
    confidence: float = 0.95
    delta: float = 1e-5

    def __post_init__(self) -> None:
        checks.count("attack.canife", rounds=self.rounds)
        checks.fraction("attack.canife", confidence=self.confidence, delta=self.delta)

    def run(self, subject: Clients, progress: Progress) -> Finding:
        delta = subject.promise.delta if subject.promise is not None else self.delta
        progress("crafting a record")
        held = subject.held_out()
        direction = subject.gradient(held, subject.seed)
        promise, noise, own = _tested(subject, delta)
        progress(f"{2 * self.rounds} rounds")
        present, absent, seen = self._scores(subject, direction, noise)
        each = (1 + self.confidence) / 2
        bound = epsilon_bound(absent, present, delta=delta, confidence=each, seed=subject.seed)
        mu = mu_bound(absent, present, confidence=each, seed=subject.seed)
        # Only a claim of Gaussian noise is refuted by a Gaussian's bound.
        claims_gaussian = events.noise_of(subject.event(noise))[0] == "gaussian"
        fitted = gaussian.epsilon_of(mu, delta) if mu > 0 and claims_gaussian else 0.0
        refuted = max(bound, fitted) > promise.epsilon
        at = "its own noise" if own else f"noise multiplier {noise:.3g}"
        return Finding(
            attack="canife",
            grade=self.grade,
            verdict=Verdict.REFUTED if refuted else Verdict.HOLDS,
            says=f"one round of the run's own aggregation at {at}: {self.rounds} rounds with and {self.rounds} without "
            f"a crafted client show an epsilon of at least {bound:.3g} whatever the mechanism, and {fitted:.3g} if it "
            f"is Gaussian, while epsilon {promise.epsilon:.3g} is promised at delta {delta:.2g}; with "
            f"{self.confidence:.0%} confidence.",
            does_not_show="That the promise holds, or anything about the sampling of clients and many rounds together. "
            "The larger bound is for Gaussian noise, as promised; so few rounds show no more than about 4 for another.",
            promise=promise,
            lower_bound=max(bound, fitted),
            confidence=self.confidence,
            figures={
                "epsilon at least": Figure(bound, low=bound),
                "epsilon at least, if Gaussian": Figure(fitted, low=fitted),
                "largest cosine with a held-out update": Figure(_overlap(direction, held)),
                "share of the clip that the client moves": Figure(seen),
            },
            causes=CAUSES if refuted else (),
            local=not subject.public,
        )

    def _scores(self, subject: Clients, direction: Floats, noise: float) -> tuple[Scores, Scores, float]:
        """Scores with and without the client, and how far it moved the mean score over its noise-free reach."""
        rng = stream(subject.seed, "canife")
        joins = rng.permutation(np.arange(2 * self.rounds) % 2 == 0)
        client = (1e6 * direction)[None].astype(np.float32)  # a client with nothing but copies of the record
        nobody = np.zeros((0, subject.size), dtype=np.float32)
        sent = subject.sent(client)[0].astype(np.float64)
        reach = float(np.linalg.norm(sent))
        released = subject.released([client if one else nobody for one in joins], noise, int(rng.integers(2**31)))
        scores = np.array([float(sent @ change) for change in released]) / (reach if reach > 0 else 1.0)
        present, absent = scores[joins], scores[~joins]
        return present, absent, float(present.mean() - absent.mean()) / (reach if reach > 0 else 1.0)


def _tested(subject: Clients, delta: float) -> tuple[Promise, float, bool]:
    """What one round promises, at which noise it is driven, and whether that is the run's own."""

    def promised(noise: float) -> Promise:
        what = f"one round of the run's own aggregation at noise multiplier {noise:.3g}, every client taking part"
        sequence = [(subject.event(noise), 1)]
        return Promise.declared(sequence, delta, unit=Unit.CLIENT, adjacency=Adjacency.ADD_REMOVE, by=what)

    own = promised(subject.noise_multiplier)
    if EPSILONS[0] <= own.epsilon <= EPSILONS[1]:
        return own, subject.noise_multiplier, True
    noise = 1 / gaussian.mu_of(2.0, delta)
    return promised(noise), noise, False


def _overlap(direction: Floats, others: Floats) -> float:
    lengths = np.linalg.norm(others, axis=1)
    return float(np.max(np.abs(others @ direction) / np.where(lengths > 0, lengths, 1.0), initial=0.0))
