"""Which accountant may price which event under which neighbouring relation. The one place that handles adjacency.

Events are written relative to the add/remove bound C; replacing one unit moves a clipped sum by 2C. dp_accounting
0.6 doubles that for Gaussians under PLD and does not under RDP (google/differential-privacy issue 378), so the
factor is put in here, and what is not listed is refused, never approximated by a neighbour of other meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import events

if TYPE_CHECKING:
    from sordino.privacy.events import Event

Accountant: TypeAlias = Literal["pld", "rdp", "gdp", "zcdp"]
Plan: TypeAlias = tuple[tuple[str, int], ...]
"""Distinct events as keys with their counts, sorted: equal for equal plans, whatever their order."""

_SAMPLED = frozenset({"PoissonSampled(Gaussian)", "TruncatedSubsampledGaussian"})
_PLD = frozenset({"Gaussian", "Laplace", "PoissonSampled(Laplace)", "MixtureOfGaussians"}) | _SAMPLED
_WHOLE = frozenset({"Skellam", "DiscreteGaussianSum"})
_RDP = frozenset({"Gaussian", "Laplace", "PoissonSampled(Gaussian)", "ZCDpEvent"}) | _WHOLE
_SUPPORTED: dict[tuple[str, Adjacency], frozenset[str]] = {
    ("pld", Adjacency.ADD_REMOVE): _PLD,
    ("pld", Adjacency.ZERO_OUT): _PLD,
    ("pld", Adjacency.REPLACE_ONE): frozenset({"Gaussian", "Laplace"}) | _SAMPLED,
    ("rdp", Adjacency.ADD_REMOVE): _RDP,
    ("rdp", Adjacency.ZERO_OUT): _RDP | {"SingleEpochTreeAggregation"},
    ("rdp", Adjacency.REPLACE_ONE): frozenset(
        {"Gaussian", "Laplace", "ZCDpEvent", "SampledWithoutReplacement(Gaussian)"}
    )
    | _WHOLE,
}
_GAUSSIANS = frozenset({"Gaussian"})


def plan_of(sequence: events.Events) -> Plan:
    """Equal events grouped and sorted, as keys."""
    return tuple(sorted((events.key(event), count) for event, count in events.grouped(sequence)))


def form(event: Event) -> str:
    """An event's shape without its numbers.

    >>> form(events.poisson(0.1, events.gaussian(1.0)))
    'PoissonSampled(Gaussian)'
    """
    name = type(event).__name__
    name = name if name == "ZCDpEvent" else name.removesuffix("DpEvent")
    inner = getattr(event, "event", None)
    return name if inner is None else f"{name}({form(inner)})"


def supported(accountant: str, adjacency: Adjacency) -> frozenset[str]:
    """The forms an accountant can price under a relation."""
    checks.one_of("accountant", get_args(Accountant), accountant=accountant)
    return _SUPPORTED.get((accountant, adjacency), _GAUSSIANS)


def supports(accountant: str, adjacency: Adjacency, plan: Plan) -> bool:
    """Whether an accountant can price every event of a plan."""
    known = supported(accountant, adjacency)
    return all(_known(event, known, adjacency) for whole in _events(plan) for event in inside(whole, accountant))


def require(accountant: str, adjacency: Adjacency, plan: Plan) -> None:
    """Refuse a plan that an accountant cannot price.

    Raises:
        PrivacyError: Names the event and what the accountant does support.
    """
    known = supported(accountant, adjacency)
    for event in (part for whole in _events(plan) for part in inside(whole, accountant)):
        if not _known(event, known, adjacency):
            raise PrivacyError.about(
                "accounting",
                "cannot be priced",
                f"under {adjacency} {accountant} prices {', '.join(sorted(known))}",
                event=events.key(event),
            )


def inside(event: Event, accountant: str) -> list[Event]:
    """The events that an accountant must know: an event itself, or what a selection repeats, which Rényi alone prices.

    >>> [form(e) for e in inside(events.repeat_and_select(events.gaussian(1.0), 4, 1), "rdp")]
    ['Gaussian']
    """
    if accountant != "rdp" or type(event).__name__ != "RepeatAndSelectDpEvent":
        return [event]
    return [part for part, _ in repeated(event)]


def repeated(event: Event) -> list[tuple[Event, int]]:
    """What one trial of a selection consists of, as (event, count)."""
    trial = event.event
    return [(part.event, part.count) for part in trial.events] if hasattr(trial, "events") else [(trial, 1)]


def gaussian_part(plan: Plan, adjacency: Adjacency) -> tuple[float, Plan]:
    """μ² of all unsampled Gaussians together, which is exact, and the rest of the plan."""
    gaussians = [(events.from_key(key), count) for key, count in plan if _is_gaussian(key)]
    squared = sum(count * (moves(adjacency) / event.noise_multiplier) ** 2 for event, count in gaussians)
    return float(squared), tuple((key, count) for key, count in plan if not _is_gaussian(key))


def moves(adjacency: Adjacency) -> int:
    """How many clip norms one unit moves a clipped sum: 1, or 2 when it is replaced by another."""
    return 2 if adjacency is Adjacency.REPLACE_ONE else 1


def fitted(event: Event, adjacency: Adjacency, accountant: str) -> tuple[Event, Any]:
    """The event and relation to hand to dp_accounting so that its answer is the one we mean."""
    from dp_accounting import NeighboringRelation, dp_event

    relation = {
        Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
        Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
        Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    }[adjacency]
    if adjacency is not Adjacency.REPLACE_ONE:
        return event, relation
    if form(event) == "Laplace":  # dp_accounting knows no replace-one Laplace; halving the scale is the same
        return events.laplace(event.noise_multiplier / 2), NeighboringRelation.ADD_OR_REMOVE_ONE
    if form(event) == "ZCDpEvent":  # two steps apart: zCDP grows with the square of the distance
        return dp_event.ZCDpEvent(4 * event.rho), NeighboringRelation.ADD_OR_REMOVE_ONE
    if accountant == "rdp" and form(event) == "Gaussian":
        return events.gaussian(event.noise_multiplier / 2), relation
    if accountant == "rdp":
        half = events.gaussian(event.event.noise_multiplier / 2)
        return events.without_replacement(event.source_dataset_size, event.sample_size, half), relation
    return event, relation


def _events(plan: Plan) -> list[Event]:
    return [events.from_key(key) for key, _ in plan]


def _is_gaussian(key: str) -> bool:
    return form(events.from_key(key)) == "Gaussian"


def _known(event: Event, known: frozenset[str], adjacency: Adjacency) -> bool:
    return form(event) in known and _exact_zcdp(event, adjacency)


def _exact_zcdp(event: Event, adjacency: Adjacency) -> bool:
    # Group privacy of (ξ, ρ)-zCDP with ξ > 0 is another formula; nothing here needs it.
    return adjacency is not Adjacency.REPLACE_ONE or getattr(event, "xi", 0) == 0
