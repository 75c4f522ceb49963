"""Andrew et al.'s canary clients: random directions, and how well each can be found in what was released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Attack, Kind, Progress, attacks
from sordino.audit.findings import Figure, Finding, Grade, Verdict
from sordino.audit.promise import Promise
from sordino.audit.stats.cosine import estimate
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.clients import Clients, Floats
from sordino.core import checks
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Unit

PER_CANARY = 50
"""Parameters for every canary, at least: they must not crowd each other."""

AT_ONCE = 2**26
"""Entries of all canaries together, at most: a quarter of a GiB."""

FEWEST = 20
"""Canaries from which an estimate says anything."""

FAR = 1.5
"""An estimate whose interval begins beyond so many times the claim is worth a look; a sound one can reach 1.3."""


@attacks.register("cosine_canaries")
@dataclass(frozen=True)
class CosineCanaries(Attack):
    """Estimate of a round's epsilon from crafted clients that send random directions. Not a bound: never gate on it.

    A random direction that nobody sent has a cosine near N(0, 1/d) with the release; those that were sent lie further
    out. Estimated for single rounds, and for the sum of some.

    Args:
        canaries: Crafted clients, at most; fewer where the model has less than 50 parameters for each.
        rounds: Rounds that are driven with the same canaries.
        delta: Where the run claims none.

    Source:
        Andrew et al. (2024), arXiv:2302.03098.
    """

    example: ClassVar[dict[str, Any]] = {"canaries": 400, "rounds": 4}
    kind: ClassVar[Kind] = Kind.CLIENTS
    grade: ClassVar[Grade] = Grade.LEAKAGE
    canaries: int = 400
    rounds: int = 4
    delta: float = 1e-5

    def __post_init__(self) -> None:
        checks.count("attack.cosine_canaries", canaries=self.canaries, rounds=self.rounds)
        checks.fraction("attack.cosine_canaries", delta=self.delta)

    def run(self, subject: Clients, progress: Progress) -> Finding:
        d = subject.size
        k = min(self.canaries, d // PER_CANARY, AT_ONCE // d)
        if k < FEWEST:
            raise DoesNotFit(
                f"{FEWEST} random directions need {PER_CANARY} parameters each, and room in memory; "
                f"the model has {d:,}. canife fits any number."
            )
        delta = subject.promise.delta if subject.promise is not None else self.delta
        progress(f"{self.rounds} rounds with {k} crafted clients")
        rng = stream(subject.seed, "cosine canaries")
        canaries = rng.standard_normal(size=(k, d), dtype=np.float32)
        canaries *= 1e6 / np.linalg.norm(canaries, axis=1, keepdims=True)  # so long that the run's clip shortens it
        # By what a client with this change would send: a clip by layers turns it.
        sent = subject.sent(canaries)
        seed = int(rng.integers(2**31))
        released = subject.released([canaries] * self.rounds, subject.noise_multiplier, seed)
        first = total = next(released)
        for change in released:
            total = total + change
        one, final = (estimate(_cosines(sent, seen), d, delta=delta, seed=subject.seed) for seen in (first, total))
        event = subject.event(subject.noise_multiplier)
        what = "one round of the run's own aggregation, every client taking part"
        promise = Promise.declared(
            [(event, 1)], delta, unit=Unit.CLIENT, adjacency=Adjacency.ADD_REMOVE, by=what, view="the released change"
        )
        far = one.low is not None and one.low > FAR * promise.epsilon
        return Finding(
            attack="cosine_canaries",
            grade=self.grade,
            verdict=Verdict.LEAKS if far else Verdict.HOLDS,
            says=f"{what}: {k} crafted clients look like epsilon {one.value:.3g} ({one.low:.3g} to {one.high:.3g}), "
            f"while {promise.epsilon:.3g} is what its noise is worth at delta {delta:.2g}. It is an estimate, no bound."
            + (" It is far above the claim: canife can refute it." if far else ""),
            does_not_show="A bound in either direction: estimates of sound rounds were seen at 0.8 to 1.8 times "
            "their epsilon, and random directions are not the worst. Sampling of clients is not tested.",
            promise=promise,
            figures={
                "estimate, one round": one,
                f"estimate, sum of {self.rounds} rounds": final,
                "epsilon of one round": Figure(promise.epsilon),
                "canaries": Figure(k),
            },
            local=not subject.public,
        )


def _cosines(sent: Floats, released: Floats) -> NDArray[np.float64]:
    """Of each canary with a released change. Shape (k,)."""
    lengths = np.linalg.norm(sent, axis=1) * np.linalg.norm(released)
    return np.asarray(sent @ released / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)
