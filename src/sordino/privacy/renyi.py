"""Rényi differential privacy: additive, instant, and 8 to 27 % above the truth. For ledgers and odd events.

RDP at one fixed order is a number that only adds up, so a ledger may charge events that were chosen adaptively
(a privacy loss distribution may not: its plan must be fixed in advance).

Source: Mironov (2017), arXiv:1702.07476; Mironov, Talwar and Zhang (2019), arXiv:1908.10530; the conversion is
proposition 12 of Canonne, Kamath and Steinke (2020), arXiv:2004.00010.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency
from sordino.privacy import events, integer_noise, selection
from sordino.privacy.relations import Plan, fitted, moves, plan_of, repeated, require

if TYPE_CHECKING:
    from sordino.privacy.events import Event, Events

Floats = NDArray[np.float64]

ORDERS: tuple[float, ...] = (*(1 + x / 10 for x in range(1, 100)), *map(float, range(11, 64)), 128, 256, 512, 1024)
"""The orders tried: those of dp_accounting."""

_CONTINUUM = 1 + np.geomspace(1e-6, 1e9, 6001)


def rdp_units(event: Event, order: float, adjacency: Adjacency) -> float:
    """The Rényi divergence that one event costs at a fixed order > 1: what a ledger adds up.

    >>> rdp_units(events.gaussian(2.0), 8.0, Adjacency.ADD_REMOVE)
    1.0
    """
    _require_order(order)
    plan = plan_of([(event, 1)])
    require("rdp", Adjacency(adjacency), plan)
    return float(_curve(plan[0][0], Adjacency(adjacency), (float(order),))[0])


def rdp_to_epsilon(rho: float, order: float, delta: float) -> float:
    """The ε at `delta` of a divergence of at most `rho` at one order. Tight conversion.

    >>> round(rdp_to_epsilon(1.0, 8.0, 1e-5), 3)
    2.214
    """
    checks.fraction("rdp_to_epsilon", delta=delta)
    _require_order(order)
    return float(epsilons(np.array([order]), np.array([rho]), delta)[0])


def best_order(plan_events: Events, delta: float, adjacency: Adjacency) -> float:
    """The order at which a plan is cheapest: what a ledger fixes before its first charge."""
    rho = rdp_of(plan_of(plan_events), Adjacency(adjacency))
    return ORDERS[int(np.argmin(epsilons(np.array(ORDERS), rho, delta)))]


def rdp_of(plan: Plan, adjacency: Adjacency) -> Floats:
    """The divergence of a whole plan at each of `ORDERS`; infinite where it is not known."""
    require("rdp", adjacency, plan)
    total = np.zeros(len(ORDERS))
    for key, count in plan:
        total = total + count * _curve(key, adjacency, ORDERS)
    return total


def epsilons(orders: Floats, rho: Floats, delta: float) -> Floats:
    """The valid ε of each order, at least 0. The smallest counts."""
    with np.errstate(over="ignore", invalid="ignore"):
        tight = rho + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        # Total variation is at most √(1 − e^−KL), and KL at most the divergence of any order.
        indistinct = -np.expm1(-rho) <= delta**2
    return np.where(indistinct, 0.0, np.maximum(tight, 0.0))


def deltas(orders: Floats, rho: Floats, at: ArrayLike) -> Floats:
    """The smallest valid δ at each ε of `at`, over all orders. Shape of `at`."""
    epsilon = np.asarray(at, dtype=np.float64)[..., None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_delta = (orders - 1) * (rho - epsilon + np.log1p(-1 / orders)) - np.log(orders)
        variation = np.log(-np.expm1(-rho)) / 2
    smallest: Floats = np.exp(np.minimum(np.minimum(log_delta, variation).min(axis=-1), 0.0))
    return smallest


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The ε at `delta` of ρ-zCDP, minimised over a fine continuum of orders. Tight conversion.

    >>> round(zcdp_epsilon(0.81, 1e-10), 2)
    8.92
    """
    checks.fraction("zcdp_epsilon", delta=delta)
    checks.non_negative("zcdp_epsilon", rho=rho)
    return float(epsilons(_CONTINUUM, rho * _CONTINUUM, delta).min())


def zcdp_deltas(rho: float, at: ArrayLike) -> Floats:
    """The smallest valid δ of ρ-zCDP at each ε of `at`."""
    return deltas(_CONTINUUM, rho * _CONTINUUM, at)


@functools.lru_cache(maxsize=1024)
def _curve(key: str, adjacency: Adjacency, orders: tuple[float, ...]) -> Floats:
    from dp_accounting.rdp import RdpAccountant

    if type(events.from_key(key)).__name__ == "RepeatAndSelectDpEvent":
        return _selected(events.from_key(key), adjacency, orders)
    if integer_noise.is_whole(events.from_key(key)):
        return integer_noise.divergence(events.from_key(key), np.array(orders), moves(adjacency))
    event, relation = fitted(events.from_key(key), adjacency, "rdp")
    accountant = RdpAccountant(orders, relation)
    with _quiet():
        accountant.compose(event)
    # A negative divergence is lost precision; dp_accounting would read it as ε = 0, here it drops the order.
    curve: Floats = np.where(accountant.rdp < 0, np.inf, accountant.rdp)
    curve.setflags(write=False)
    return curve


def _selected(event: Event, adjacency: Adjacency, orders: tuple[float, ...]) -> Floats:
    """A selection's curve. The theorem looks at every order of a trial, whichever are asked for."""
    every = tuple(sorted({*ORDERS, *orders}))
    trial = sum(count * _curve(events.key(part), adjacency, every) for part, count in repeated(event))
    found = selection.divergences(np.array(every), np.asarray(trial), event.mean, event.shape)
    curve: Floats = found[[every.index(order) for order in orders]]
    curve.setflags(write=False)
    return curve


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide dp_accounting's notes about orders it drops: they are sound and would drown the rest."""

    def other(record: logging.LogRecord) -> bool:
        return "failed to converge" not in str(record.msg)

    logger = logging.getLogger("absl")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _require_order(order: float) -> None:
    if not (math.isfinite(order) and order > 1):
        raise ConfigError.about("rdp", "must be a finite number above 1", order=order)
