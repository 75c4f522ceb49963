"""What was released, as plain data: `dp_accounting`'s own event classes, built and written in one place.

An event says what happened; an accountant says what it cost. Events can be re-priced years later by a better
accountant, which is why the ledger stores them and not an epsilon. Noise in whole numbers, which dp_accounting has no
events for, is described in `integer_noise.py`.
"""

from __future__ import annotations

import functools
import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import attr

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.privacy import integer_noise, selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_accounting import DpEvent

    Event: TypeAlias = DpEvent
    Events: TypeAlias = Sequence[tuple[DpEvent, int]]
    """Distinct events with how often each happens."""


def gaussian(noise_multiplier: float) -> Event:
    """One Gaussian release. `noise_multiplier` is σ over the add/remove L2 sensitivity, > 0."""
    checks.positive("gaussian", noise_multiplier=noise_multiplier)
    return _module().GaussianDpEvent(float(noise_multiplier))


def laplace(noise_multiplier: float) -> Event:
    """One Laplace release. `noise_multiplier` is the scale b over the add/remove L1 sensitivity, > 0."""
    checks.positive("laplace", noise_multiplier=noise_multiplier)
    return _module().LaplaceDpEvent(float(noise_multiplier))


def zcdp(rho: float) -> Event:
    """One release that is ρ-zCDP under add/remove, whatever its noise; ρ > 0.

    Source: Bun and Steinke (2016), arXiv:1605.02065.
    """
    checks.positive("zcdp", rho=rho)
    return _module().ZCDpEvent(float(rho))


def skellam(noise_multiplier: float, l2: float, l1: float) -> Event:
    """One release of whole numbers under Skellam noise.

    Args:
        noise_multiplier: Standard deviation over `l2`, > 0.
        l2: How far a unit moves the whole numbers in L2, > 0.
        l1: And in L1, > 0.

    Source: Agarwal, Kairouz and Liu (2021), arXiv:2110.04995.

    >>> noise_of(skellam(2.0, 1000.0, 1e6))
    ('skellam', 2.0)
    """
    event: Event = integer_noise.SkellamDpEvent(float(noise_multiplier), float(l2), float(l1))
    return integer_noise.check(event)


def discrete_gaussian(noise_multiplier: float, l2: float, l1: float, shares: int = 1, size: int = 1) -> Event:
    """One release of whole numbers under the sum of discrete Gaussians.

    Args:
        noise_multiplier: Square root of the summed squared parameters over `l2`, > 0.
        l2: How far a unit moves the whole numbers in L2, > 0.
        l1: And in L1, > 0.
        shares: How many draws are summed; one is a discrete Gaussian itself.
        size: Number of coordinates; it matters only for more than one share.

    Source: Kairouz, Liu and Steinke (2021), arXiv:2102.06387.
    """
    event: Event = integer_noise.DiscreteGaussianSumDpEvent(
        float(noise_multiplier), float(l2), float(l1), int(shares), int(size)
    )
    return integer_noise.check(event)


def poisson(rate: float, event: Event) -> Event:
    """An event over units that join independently with probability `rate`, in (0, 1]. Rate 1 is no sampling."""
    checks.rate("poisson", rate=rate)
    if rate == 1:
        return event
    integer_noise.refuse_sampling(event)
    return _module().PoissonSampledDpEvent(float(rate), event)


def without_replacement(population: int, size: int, event: Event) -> Event:
    """An event over exactly `size` units drawn from `population` without replacement (replace-one only)."""
    integer_noise.refuse_sampling(event)
    return _module().SampledWithoutReplacementDpEvent(population, size, event)


def truncated_poisson(population: int, rate: float, cap: int, noise_multiplier: float) -> Event:
    """A Gaussian event over a Poisson cohort cut at random to at most `cap` units.

    Source: Chua et al. (2025), arXiv:2508.15089, as implemented by dp_accounting.
    """
    return _module().TruncatedSubsampledGaussianDpEvent(population, rate, cap, noise_multiplier)


def composed(sequence: Events) -> Event:
    """Several events as one, to go inside another event; a plan lists them one by one instead.

    >>> key(composed([(gaussian(2.0), 3)]))
    '{"events":[{"count":3,"event":{"name":"GaussianDpEvent","noise_multiplier":2.0},"name":"SelfComposedDpEvent"}],"name":"ComposedDpEvent"}'
    """
    parts = sorted(grouped(sequence), key=lambda part: key(part[0]))
    return _module().ComposedDpEvent(tuple(_module().SelfComposedDpEvent(event, count) for event, count in parts))


def repeat_and_select(event: Event, mean: float, shape: float) -> Event:
    """The best outcome of a random number of trials of an event, the others and their number never shown.

    Args:
        event: One trial, its score included.
        mean: Expected number of trials, in (1, 10000].
        shape: Law of the number: 1 geometric, 0 logarithmic, inf Poisson, else truncated negative binomial.

    Source: Papernot and Steinke (2022), arXiv:2110.03620; priced in `privacy/selection.py`.

    >>> from_key(key(repeat_and_select(gaussian(2.0), 4, math.inf))).shape
    inf
    """
    selection.check(mean, shape)
    return _module().RepeatAndSelectDpEvent(event, float(mean), float(shape))


LARGEST_CAP = 1000
"""Records of one person that may count. More protects nobody, and the numbers of a price leave the floats."""

_INFINITY = "inf"

NEGLIGIBLE = 1e-24
"""Chance of more records than the listed ones; they are then priced as if all had joined."""


def records_of_person(records: int, rate: float, noise_multiplier: float) -> Event:
    """A Gaussian event over records of which a person has at most `records`, each joining with probability `rate`.

    Args:
        records: The cap K, 1 to 1000.
        rate: In (0, 1].
        noise_multiplier: Noise over the clip norm of *one record*, > 0.

    Source: Charles et al. (2024), arXiv:2407.07737.

    >>> records_of_person(1, 0.5, 2.0) == poisson(0.5, gaussian(2.0))
    True
    >>> records_of_person(2, 0.5, 4.0).sampling_probs
    (0.25, 0.5, 0.25)
    """
    checks.count("records_of_person", records=records)
    checks.rate("records_of_person", rate=rate)
    checks.positive("records_of_person", noise_multiplier=noise_multiplier)
    if records > LARGEST_CAP:
        raise ConfigError.about("records_of_person", f"is more than {LARGEST_CAP}", "cap at fewer", records=records)
    if records == 1:
        return poisson(rate, gaussian(noise_multiplier))
    chances = [math.comb(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)]
    last = next(j for j in range(records + 1) if j == records or math.fsum(chances[j:]) < NEGLIGIBLE)
    listed = (*range(last), records)
    return _module().MixtureOfGaussiansDpEvent(
        float(noise_multiplier),
        tuple(float(j) for j in listed),
        (*chances[:last], math.fsum(chances[last:])),
    )


_LAWS = {
    "GaussianDpEvent": "gaussian",
    "LaplaceDpEvent": "laplace",
    "SkellamDpEvent": "skellam",
    "DiscreteGaussianSumDpEvent": "discrete_gaussian",
}


def records_in(event: Event) -> int | None:
    """How many separately sampled records of one unit an event prices; None if it prices any number.

    >>> records_in(records_of_person(3, 0.1, 2.0)), records_in(poisson(0.1, gaussian(2.0))), records_in(gaussian(2.0))
    (3, 1, None)
    """
    if hasattr(event, "sensitivities"):
        return int(max(event.sensitivities))
    return None if type(event).__name__ in _LAWS else 1


def noise_of(event: Event) -> tuple[str, float]:
    """The law and multiplier of the noise inside an event, under whatever sampling: over the largest move of a unit.

    >>> noise_of(poisson(0.5, gaussian(2)))
    ('gaussian', 2.0)
    >>> noise_of(records_of_person(4, 0.5, 2.0))
    ('gaussian', 0.5)
    """
    if hasattr(event, "sensitivities"):
        return "gaussian", float(event.standard_deviation) / max(event.sensitivities)
    inner: Any = event
    while not hasattr(inner, "noise_multiplier"):
        inner = getattr(inner, "event", None)
        if inner is None:
            raise ConfigError.about("events", "has no noise multiplier", event=event)
    return _LAWS.get(type(inner).__name__, "gaussian"), float(inner.noise_multiplier)


@functools.cache
def key(event: Event) -> str:
    """Canonical JSON of an event: its name in the ledger, equal for equal events.

    >>> key(poisson(0.5, gaussian(2)))
    '{"event":{"name":"GaussianDpEvent","noise_multiplier":2.0},"name":"PoissonSampledDpEvent","sampling_probability":0.5}'
    """
    return json.dumps(_to_plain(event), sort_keys=True, separators=(",", ":"), allow_nan=False)


@functools.cache
def from_key(text: str) -> Event:
    """The event of a key: the inverse of `key`.

    >>> from_key(key(gaussian(2.0)))
    GaussianDpEvent(noise_multiplier=2.0)
    """
    return _from_plain(json.loads(text))


def grouped(events: Events) -> tuple[tuple[Event, int], ...]:
    """Equal events counted together, in order of first appearance, so that each kind is priced once."""
    counts: dict[str, int] = {}
    for event, count in events:
        checks.count("events", count=count)
        counts[key(event)] = counts.get(key(event), 0) + count
    return tuple((from_key(text), count) for text, count in counts.items())


def _to_plain(event: Any) -> Any:
    if not attr.has(type(event)):
        return [_to_plain(item) for item in event] if isinstance(event, (list, tuple)) else _number(event)
    fields = {f.name: _to_plain(getattr(event, f.name)) for f in attr.fields(type(event))}
    return {"name": type(event).__name__, **fields}


def _number(value: Any) -> Any:
    if value == math.inf:  # JSON has none
        return _INFINITY
    return float(value) if isinstance(value, float) else int(value) if isinstance(value, int) else value


def _from_plain(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_from_plain(item) for item in plain)
    if not isinstance(plain, dict):
        return math.inf if plain == _INFINITY else plain
    fields = {name: _from_plain(value) for name, value in plain.items() if name != "name"}
    name = plain.get("name", "")
    cls = integer_noise.CLASSES.get(name) or getattr(_module(), name, None)
    if cls is None or not attr.has(cls):
        raise ConfigError.about("events", "is not an event of dp_accounting", name=plain.get("name"))
    return cls(**fields)


def _module() -> Any:
    # dp_accounting takes a CPU second to import, so `sordino --help` must not.
    from dp_accounting import dp_event

    return dp_event
