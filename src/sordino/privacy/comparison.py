"""The same plan under every accountant, side by side: what better accounting is worth, and what is not valid."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import gaussian
from sordino.privacy.accounting import Accountant, best_epsilon, epsilon
from sordino.privacy.events import from_key
from sordino.privacy.relations import Plan, form, moves, plan_of

if TYPE_CHECKING:
    from sordino.privacy.events import Events

_NOTES: dict[Accountant, tuple[str, str]] = {
    "pld": ("PLD", "tight; fixed plans only"),
    "rdp": ("RDP", "adds up, so it also serves adaptive plans and ledgers"),
    "gdp": ("GDP (exact)", "closed form, unsampled Gaussians"),
    "zcdp": ("zCDP", "unsampled Gaussians, tight conversion"),
}


@dataclass(frozen=True)
class Row:
    """One method's answer. `epsilon` is `None` where the method does not apply; `valid` says it may be claimed."""

    method: str
    epsilon: float | None
    valid: bool
    note: str


def composition_table(events: Events, delta: float, *, adjacency: Adjacency) -> list[Row]:
    """The ε of a plan at `delta` by every method, best first in principle, the textbook formula last.

    Args:
        events: Distinct events with how often each happens.
        delta: In (0, 1).
        adjacency: The neighbouring relation.
    """
    checks.fraction("composition_table", delta=delta)
    relation, plan = Adjacency(adjacency), plan_of(events)
    rows = [_accounted(events, delta, relation, accountant) for accountant in _NOTES]
    with contextlib.suppress(PrivacyError):  # a release's share of δ may be below what its accountant resolves
        rows += _composed(plan, delta, relation)
    return [*rows, _classic(plan, delta, relation)]


def _accounted(events: Events, delta: float, adjacency: Adjacency, accountant: Accountant) -> Row:
    name, note = _NOTES[accountant]
    try:
        return Row(name, epsilon(events, delta, adjacency=adjacency, accountant=accountant), valid=True, note=note)
    except PrivacyError:
        forms = ", ".join(sorted({form(event) for event, _ in events}))
        return Row(name, None, valid=False, note=f"does not apply to {forms} under {adjacency} at this δ")


def _composed(plan: Plan, delta: float, adjacency: Adjacency) -> list[Row]:
    """Basic and advanced composition of single releases, each priced as well as it can be.

    Source: Kairouz, Oh and Viswanath (2015), arXiv:1311.0776, theorem 3.5.
    """
    releases = max(1, sum(count for _, count in plan))

    def singles(share: float) -> list[tuple[float, int]]:
        return [(best_epsilon([(from_key(key), 1)], share, adjacency=adjacency).epsilon, count) for key, count in plan]

    basic = sum(count * one for one, count in singles(delta / releases))
    half = singles(delta / 2 / releases)
    squares = sum(count * one**2 for one, count in half)
    drift = sum(count * one * math.tanh(one / 2) for one, count in half)
    advanced = min(sum(count * one for one, count in half), drift + math.sqrt(2 * squares * math.log(2 / delta)))
    return [
        Row("advanced composition", advanced, valid=True, note="half of δ for the releases, half for composing"),
        Row("basic composition", basic, valid=True, note="δ split equally, ε added up"),
    ]


def _classic(plan: Plan, delta: float, adjacency: Adjacency) -> Row:
    """√(2 ln(1.25/δ))/z per release, δ split, added up: what tutorials do. Sampling only helps, so it is ignored."""
    method = "classic formula"
    share = delta / max(1, sum(count for _, count in plan))
    total, worst = 0.0, 0.0
    for key, count in plan:
        event = from_key(key)
        noise = getattr(getattr(event, "event", event), "noise_multiplier", None)
        if noise is None or "Laplace" in key:
            return Row(method, None, valid=False, note="applies to Gaussian releases only")
        one = gaussian.sigma_classic(1.0, share) * moves(adjacency) / noise
        total, worst = total + count * one, max(worst, one)
    breaks = gaussian.classic_breaks_at(share)
    note = f"per release ε = {worst:.3g}; its proof ends at 1, and it violates DP above {breaks:.2f}"
    return Row(method, total, valid=worst <= breaks, note=note)
