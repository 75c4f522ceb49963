"""What a plan costs. Events in, an ε (or δ) out, under a named neighbouring relation.

    events ──grouped──► plan ──┬─ gdp   exact, unsampled Gaussians only
                               ├─ pld   privacy loss distributions: tight, fixed plans, the default
                               ├─ rdp   looser, additive; fixed-size sampling exists only here
                               └─ zcdp  for comparison with older work

Every number is an upper bound. What an accountant cannot price under a relation is refused (`relations.py`).
PLD time depends on how many *different* events there are, hardly on how often each happens: 10,000 equal steps take
a fraction of a second, forty different rounds half a minute. Single events are cached; unsampled Gaussians merge.

Source: Koskela et al. (2020), arXiv:1906.03049, and Doroshenko et al. (2022), arXiv:2207.04380, for the pessimistic
"connect the dots" distributions of dp_accounting.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import events as data
from sordino.privacy import gaussian, people, renyi
from sordino.privacy.relations import Accountant, Plan, fitted, form, gaussian_part, plan_of, require, supports
from sordino.privacy.renyi import Floats, best_order, rdp_to_epsilon, rdp_units

if TYPE_CHECKING:
    from sordino.privacy.events import Events

__all__ = [
    "COARSE",
    "GRID",
    "PLD_FLOOR",
    "Accountant",
    "Price",
    "best_accountant",
    "best_epsilon",
    "best_order",
    "delta",
    "delta_curve",
    "epsilon",
    "rdp_to_epsilon",
    "rdp_units",
]

GRID = 1e-4
"""Grid of the privacy loss for numbers that are reported."""
COARSE = 1e-3
"""Grid for searches: five to ten times faster, still an upper bound, up to 1.4 % higher."""
PLD_FLOOR = 1e-11
"""Below this δ the rounding of the Fourier transform would show; other accountants take over."""


@dataclass(frozen=True)
class Price:
    """What a plan costs, with everything that gives the number its meaning."""

    epsilon: float
    delta: float
    accountant: str
    adjacency: Adjacency


def epsilon(events: Events, delta: float, *, adjacency: Adjacency, accountant: Accountant = "pld") -> float:
    """The ε of a fixed plan at `delta`, by one named accountant.

    Args:
        events: Distinct events with how often each happens; repeated ones are added up.
        delta: In (0, 1).
        adjacency: The neighbouring relation.
        accountant: `pld`, `rdp`, `gdp` or `zcdp`.

    Returns:
        ε in nats, an upper bound; 0 for an empty plan.

    Raises:
        PrivacyError: The accountant cannot price an event under this relation.

    >>> steps = [(data.poisson(0.01, data.gaussian(1.0)), 1000)]
    >>> round(epsilon(steps, 1e-5, adjacency=Adjacency.ADD_REMOVE), 3)
    1.828
    """
    checks.fraction("epsilon", delta=delta)
    return _epsilon(plan_of(events), float(delta), Adjacency(adjacency), accountant, GRID)


def delta(events: Events, epsilon: float, *, adjacency: Adjacency, accountant: Accountant = "pld") -> float:
    """The δ of a fixed plan at `epsilon` ≥ 0, by one named accountant. An upper bound."""
    checks.non_negative("delta", epsilon=epsilon)
    return float(_deltas(plan_of(events), np.array([epsilon]), Adjacency(adjacency), accountant)[0])


def delta_curve(events: Events, epsilons: ArrayLike, *, adjacency: Adjacency) -> Floats:
    """The δ at each of many ε ≥ 0, by the best accountant. Shape of `epsilons`."""
    plan, relation = plan_of(events), Adjacency(adjacency)
    return _deltas(plan, np.asarray(epsilons, dtype=np.float64), relation, _best(plan, 1.0, relation))


def best_epsilon(events: Events, delta: float, *, adjacency: Adjacency, grid: float = GRID) -> Price:
    """The ε of a fixed plan by the best valid accountant, and which that is.

    Args:
        events: Distinct events with how often each happens.
        delta: In (0, 1).
        adjacency: The neighbouring relation.
        grid: Resolution of the privacy loss; `COARSE` for searches.

    >>> best_epsilon([(data.gaussian(1.0), 1)], 1e-5, adjacency=Adjacency.ADD_REMOVE).accountant
    'gdp'
    """
    checks.fraction("best_epsilon", delta=delta)
    plan, relation = plan_of(events), Adjacency(adjacency)
    accountant = _best(plan, delta, relation)
    return Price(_epsilon(plan, float(delta), relation, accountant, grid), float(delta), accountant, relation)


def best_accountant(events: Events, delta: float, *, adjacency: Adjacency) -> Accountant:
    """Exact for unsampled Gaussians, else PLD, else RDP; refused when none can price the plan."""
    return _best(plan_of(events), delta, Adjacency(adjacency))


def _best(plan: Plan, delta: float, adjacency: Adjacency) -> Accountant:
    if supports("gdp", adjacency, plan):
        return "gdp"
    if supports("pld", adjacency, plan) and delta >= PLD_FLOOR:
        return "pld"
    if not supports("rdp", adjacency, plan):
        require("pld", adjacency, plan)  # names the event that PLD cannot price
        require("rdp", adjacency, plan)
    return "rdp"


@functools.lru_cache(maxsize=4096)
def _epsilon(plan: Plan, delta: float, adjacency: Adjacency, accountant: Accountant, grid: float) -> float:
    require(accountant, adjacency, plan)
    if not plan:
        return 0.0
    if accountant == "rdp":
        return float(renyi.epsilons(np.array(renyi.ORDERS), renyi.rdp_of(plan, adjacency), delta).min())
    if accountant == "pld":
        if delta < PLD_FLOOR:
            raise PrivacyError.about("pld", f"is below {PLD_FLOOR}, where its rounding shows", "use rdp", delta=delta)
        return float(_composed(plan, adjacency, _affordable(plan, adjacency, grid)).get_epsilon_for_delta(delta))
    squared, _ = gaussian_part(plan, adjacency)
    exact = accountant == "gdp"
    return gaussian.epsilon_of(math.sqrt(squared), delta) if exact else renyi.zcdp_epsilon(squared / 2, delta)


def _deltas(plan: Plan, at: Floats, adjacency: Adjacency, accountant: Accountant) -> Floats:
    require(accountant, adjacency, plan)
    if not plan:
        return np.zeros_like(at)
    if accountant == "rdp":
        return renyi.deltas(np.array(renyi.ORDERS), renyi.rdp_of(plan, adjacency), at)
    if accountant == "pld":
        composed = _composed(plan, adjacency, _affordable(plan, adjacency, GRID))
        return np.asarray(composed.get_delta_for_epsilon(at), dtype=np.float64)
    squared, _ = gaussian_part(plan, adjacency)
    if accountant == "zcdp":
        return renyi.zcdp_deltas(squared / 2, at)
    return np.array([gaussian.delta_of(float(one), math.sqrt(squared)) for one in at])


def _affordable(plan: Plan, adjacency: Adjacency, grid: float) -> float:
    """A grid that keeps hopeless plans affordable: coarser (still an upper bound) once ε is far above any use."""
    spans = [people.loss_span(data.from_key(key)) for key, _ in plan if "MixtureOfGaussians" in key]
    if spans:
        return grid * 2.0 ** math.ceil(math.log2(max(1.0, max(spans) / grid / people.POINTS)))
    if not supports("rdp", adjacency, plan):
        return grid
    rough = float(renyi.epsilons(np.array(renyi.ORDERS), renyi.rdp_of(plan, adjacency), 1e-5).min())
    hopeless = 64.0
    # In powers of two, so that neighbouring plans share their cached distributions.
    return grid * 2.0 ** math.ceil(math.log2(min(max(1.0, rough / hopeless), 2.0**40)))


@functools.lru_cache(maxsize=16)
def _composed(plan: Plan, adjacency: Adjacency, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    squared, rest = gaussian_part(plan, adjacency)
    parts = [_loss(key, adjacency, grid).self_compose(count) for key, count in rest]
    if squared > 0:
        parts.append(pld.from_gaussian_mechanism(squared**-0.5, value_discretization_interval=grid))
    return functools.reduce(lambda one, other: one.compose(other), parts)


@functools.lru_cache(maxsize=64)
def _loss(key: str, adjacency: Adjacency, grid: float) -> Any:
    """The privacy loss distribution of one event, once per process."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    event, relation = fitted(data.from_key(key), adjacency, "pld")
    rate, inner = getattr(event, "sampling_probability", 1.0), getattr(event, "event", event)
    common = {"value_discretization_interval": grid}
    if form(event) == "TruncatedSubsampledGaussian":
        return pld.from_truncated_subsampled_gaussian_mechanism(
            event.dataset_size,
            rate,
            event.truncated_batch_size,
            event.noise_multiplier,
            neighboring_relation=relation,
            **common,
        )
    if form(event) == "MixtureOfGaussians":
        return people.loss_distribution(event, grid)
    if form(inner) == "Laplace":
        return pld.from_laplace_mechanism(inner.noise_multiplier, sampling_prob=rate, **common)
    return pld.from_gaussian_mechanism(
        inner.noise_multiplier, sampling_prob=rate, neighboring_relation=relation, **common
    )
