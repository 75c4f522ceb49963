"""Apple's pfl 0.6: its mechanisms as postprocessors of users' statistics and of the cohort's sum; its accountants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from pfl.common_types import Population
from pfl.context import CentralContext, UserContext
from pfl.internal.ops import numpy_ops, selector
from pfl.metrics import Metrics
from pfl.privacy import privacy_accountant
from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from pfl.stats import MappedVectorStatistics

from sordino.audit.conformance.protocol import BUFFERS, Declared, Refused, Silent, Target, Tensors
from sordino.core.types import Adjacency
from sordino.privacy import gaussian


def targets() -> list[Target]:
    """Central and local mechanisms, adaptive clipping, accountants."""
    selector.set_framework_module(numpy_ops)
    return [
        Central("central Gaussian", lambda: CentrallyAppliedPrivacyMechanism(GaussianMechanism(1.0, 1.0))),
        Central("central Laplace", lambda: CentrallyAppliedPrivacyMechanism(LaplaceMechanism(1.0, 1.0)), law="laplace"),
        Adaptive("adaptive clipping", _adaptive, clip=0.1, cohort=20),
        Local("local Gaussian"),
        Local("local Laplace", law="laplace"),
        *(Accountant(f"{kind}PrivacyAccountant", kind) for kind in ("PLD", "PRV", "RDP")),
    ]


def _adaptive() -> Any:
    # A tenth of the cohort, as its documentation recommends.
    return AdaptiveClippingGaussianMechanism(
        lambda clip: GaussianMechanism(clip, 1.0),
        initial_clipping_bound=0.1,
        clipping_indicator_noise_stddev=2.0,
        adaptive_clipping_norm_quantile=0.5,
    )


@dataclass(frozen=True)
class Central:
    """Each user's statistics are bounded, the cohort's sum is noised.

    Args:
        name: In the table.
        make: The mechanism.
        law: Of its noise.
    """

    name: str
    make: Callable[[], Any] = field(repr=False)
    law: Literal["gaussian", "laplace"] = "gaussian"
    clip: float = 1.0
    cohort: int = 10

    def claim(self) -> Declared:
        return Declared(
            by=f"pfl {version('pfl')}, {self.name}",
            noise_multiplier=1.0,
            clip=self.clip,
            cohort=self.cohort,
            law=self.law,
            norm=1 if self.law == "laplace" else 2,
        )

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        return self._round(self.make(), updates, weights, seed)

    def _round(self, mechanism: Any, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None) -> Tensors:
        if any(name.endswith(BUFFERS) for update in updates for name in update):
            raise Refused("PyTorchModel sends what `named_parameters` lists, no buffers")
        total: Any = None
        for update, weight in zip(updates, weights, strict=True):
            user = UserContext(num_datapoints=1, seed=None)
            own = MappedVectorStatistics({name: np.array(value) for name, value in update.items()}, weight)
            bounded, _ = mechanism.postprocess_one_user(stats=own, user_context=user)
            total = bounded if total is None else total + bounded
        noised, _ = mechanism.postprocess_server(
            stats=total, central_context=_central(self.cohort, seed), aggregate_metrics=Metrics()
        )
        return {name: np.asarray(noised[name]) for name in noised}


@dataclass(frozen=True)
class Adaptive(Central):
    """A bound that follows the users' norms."""

    def with_cohort(self, count: int) -> Adaptive:
        return replace(self, cohort=count)

    def norms(self, model: Tensors, updates: Sequence[Tensors], rounds: int, seed: int) -> list[float]:
        mechanism = self.make()
        norms = [float(mechanism.mutable_clipping_bound.value())]
        for t in range(rounds):
            self._round(mechanism, updates, [1.0] * len(updates), 1000 * seed + t)
            norms.append(float(mechanism.mutable_clipping_bound.value()))
        return norms


@dataclass(frozen=True)
class Local:
    """One user's statistics, noised before they leave: any two of them must be alike."""

    name: str
    law: Literal["gaussian", "laplace"] = "gaussian"
    epsilon: float = 1.0
    delta: float = 1e-5

    def claim(self) -> Declared:
        exact = None
        if self.epsilon > 0 and self.law == "laplace":
            exact = 1 / self.epsilon
        elif self.epsilon > 0 and self.delta > 0:
            exact = gaussian.sigma_exact(self.epsilon, self.delta)
        return Declared(
            by=f"pfl {version('pfl')}, {self.name} at epsilon {self.epsilon:g}",
            noise_multiplier=exact,
            clip=1.0,
            cohort=1,
            adjacency=Adjacency.REPLACE_ONE,
            law=self.law,
            norm=1 if self.law == "laplace" else 2,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def with_budget(self, epsilon: float, delta: float) -> Local:
        made = replace(self, epsilon=epsilon, delta=delta)
        made._mechanism()  # noqa: SLF001 - of this class: refuses what it refuses
        return made

    def _mechanism(self) -> Any:
        if self.law == "laplace":
            return LaplaceMechanism(1.0, self.epsilon)
        return GaussianMechanism.construct_single_iteration(1.0, self.epsilon, self.delta)

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        (update,) = updates
        if any(name.endswith(BUFFERS) for name in update):
            raise Refused("PyTorchModel sends what `named_parameters` lists, no buffers")
        own = MappedVectorStatistics({name: np.array(value) for name, value in update.items()}, weights[0])
        noised, _ = self._mechanism().privatize(own, seed=seed)
        return {name: np.asarray(noised[name]) for name in noised}


@dataclass(frozen=True)
class Accountant(Silent):
    """One of its accountants."""

    name: str
    kind: str

    def claim(self) -> Declared:
        return Declared(by=f"pfl {version('pfl')}, {self.name}", noise_multiplier=None, clip=1.0, cohort=3)

    def price(self, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
        made = getattr(privacy_accountant, f"{self.kind}PrivacyAccountant")(
            num_compositions=steps,
            sampling_probability=rate,
            mechanism="gaussian",
            delta=delta,
            noise_parameter=noise_multiplier,
        )
        return float(made.epsilon)


def _central(cohort: int, seed: int | None) -> CentralContext[Any, Any]:
    return CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=cohort,
        population=Population.TRAIN,
        algorithm_params=None,
        model_train_params=None,
        seed=seed,
    )
