"""What was released, as plain data: `dp_accounting`'s own event classes, built and written in one place.

An event says what happened; an accountant says what it cost. Events can be re-priced years later by a better
accountant, which is why the ledger stores them and not an epsilon.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, TypeAlias

import attr

from sordino.core import checks
from sordino.core.errors import ConfigError

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


def poisson(rate: float, event: Event) -> Event:
    """An event over units that join independently with probability `rate`, in (0, 1]. Rate 1 is no sampling."""
    checks.rate("poisson", rate=rate)
    return event if rate == 1 else _module().PoissonSampledDpEvent(float(rate), event)


def without_replacement(population: int, size: int, event: Event) -> Event:
    """An event over exactly `size` units drawn from `population` without replacement (replace-one only)."""
    return _module().SampledWithoutReplacementDpEvent(population, size, event)


def truncated_poisson(population: int, rate: float, cap: int, noise_multiplier: float) -> Event:
    """A Gaussian event over a Poisson cohort cut at random to at most `cap` units.

    Source: Chua et al. (2025), arXiv:2508.15089, as implemented by dp_accounting.
    """
    return _module().TruncatedSubsampledGaussianDpEvent(population, rate, cap, noise_multiplier)


def noise_of(event: Event) -> tuple[str, float]:
    """The law and multiplier of the noise inside an event, under whatever sampling.

    >>> noise_of(poisson(0.5, gaussian(2)))
    ('gaussian', 2.0)
    """
    inner: Any = event
    while not hasattr(inner, "noise_multiplier"):
        inner = getattr(inner, "event", None)
        if inner is None:
            raise ConfigError.about("events", "has no noise multiplier", event=event)
    return "laplace" if "Laplace" in type(inner).__name__ else "gaussian", float(inner.noise_multiplier)


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
    return float(value) if isinstance(value, float) else int(value) if isinstance(value, int) else value


def _from_plain(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_from_plain(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    fields = {name: _from_plain(value) for name, value in plain.items() if name != "name"}
    cls = getattr(_module(), plain.get("name", ""), None)
    if cls is None or not attr.has(cls):
        raise ConfigError.about("events", "is not an event of dp_accounting", name=plain.get("name"))
    return cls(**fields)


def _module() -> Any:
    # dp_accounting takes a CPU second to import, so `sordino --help` must not.
    from dp_accounting import dp_event

    return dp_event
