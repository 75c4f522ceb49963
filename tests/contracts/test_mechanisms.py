"""Every registered mechanism, through the door: the noise has the law that is charged, and the charge is enough.

False alarms: each test compares p-values of exact tests with ALARM (Bonferroni where there are many), so a sound
mechanism fails with probability below 1e-8 per run. Broken twins show that the same checks find real faults.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sordino.core.types import Adjacency, Unit
from sordino.federation.mechanisms import mechanisms
from sordino.federation.mechanisms.laplace import Laplace
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.doors import Door
from sordino.privacy.kernel import certify
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line, mint_reservation

ALARM = 1e-9
RELEASES, SIZE = 200, 100
L1, L2 = 0.75, 0.5
CENTRE = 3.0


def released(mechanism, charged=None) -> np.ndarray:
    """Many releases of one constant sum. Shape (RELEASES, SIZE)."""
    charged = charged or mechanism.event()
    line = Line("silo", Unit.CLIENT, events.key(charged), RELEASES)
    door = Door(mechanism, charged, ("silo",), mint_reservation("tx", [line], test=False), SystemNoise())
    total = certify(np.full(SIZE, CENTRE), unit=Unit.CLIENT, l2=L2, l1=L1)
    return np.stack([door(total) for _ in range(RELEASES)]).astype(np.float64)


def law(event) -> stats.rv_continuous:
    """The law that an event promises for a sum with these bounds. In steps this fine, whole numbers are Gaussian."""
    if type(event).__name__ == "LaplaceDpEvent":
        return stats.laplace(CENTRE, event.noise_multiplier * L1)
    return stats.norm(CENTRE, event.noise_multiplier * L2)


def findings(values: np.ndarray, promised) -> set[str]:
    """What is wrong with releases that should follow a law independently. Empty for a sound mechanism."""
    found = set()
    if stats.kstest(values.ravel(), promised.cdf).pvalue < ALARM:
        found.add("law")
    if abs(values.std() / promised.std() - 1) > 6.2 * math.sqrt((promised.stats("k") + 2) / (4 * values.size)):
        found.add("std")
    if min(stats.kstest(column, promised.cdf).pvalue for column in values.T) < ALARM / SIZE:
        found.add("coordinate")
    centred = (values - CENTRE) / promised.std()
    for first, second in [(centred[:-1], centred[1:]), (centred[:, :-1], centred[:, 1:])]:
        products = first * second
        if abs(products.sum()) / math.sqrt(products.size) > 7:
            found.add("independence")
    return found


@pytest.mark.parametrize("name", mechanisms.names())
class TestMechanism:
    def test_the_noise_has_the_law_that_is_charged(self, name):
        """Std, law, every coordinate on its own, and independence between neighbours and between releases."""
        mechanism = mechanisms.example(name)
        assert findings(released(mechanism), law(mechanism.event())) == set()

    def test_the_price_is_never_below_the_exact_curve(self, name):
        """The epsilon that is charged for the event, put into the exact trade-off curve, gives at most delta."""
        for multiplier in (0.7, 1.0, 3.0):
            event = mechanisms.build(name, {"noise_multiplier": multiplier}).event()
            for delta in (1e-3, 1e-6):
                epsilon = best_epsilon([(event, 1)], delta, adjacency=Adjacency.ADD_REMOVE).epsilon
                assert EXACT[name](epsilon, multiplier) <= delta * (1 + 1e-9)

    def test_scale_grows_with_the_bound(self, name):
        """Twice the bound needs twice the noise; nothing else enters the scale."""
        mechanism = mechanisms.example(name)
        assert mechanism.scale(2 * L2, 2 * L1) == pytest.approx(2 * mechanism.scale(L2, L1))

    @pytest.mark.parametrize(
        ("fault", "finding"),
        [
            ("halved", "std"),
            ("bare coordinate", "coordinate"),
            ("copied", "independence"),
            ("replayed", "independence"),
            ("wrong law", "law"),
        ],
    )
    def test_broken_twins_are_found(self, name, fault, finding):
        """Negative controls: each fault is found by the check that is meant for it."""
        mechanism = mechanisms.example(name)
        assert finding in findings(released(twin(mechanism, fault)), law(mechanism.event()))


def exact_gaussian(epsilon: float, z: float) -> float:
    """Balle and Wang (2018), theorem 8, with sensitivity 1."""
    return float(stats.norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon + stats.norm.logcdf(-0.5 / z - epsilon * z)))


def exact_laplace(epsilon: float, b: float) -> float:
    """Hockey-stick divergence of two Laplace laws of scale b at distance 1."""
    return max(0.0, -math.expm1((epsilon - 1 / b) / 2))


EXACT = {
    "gaussian": exact_gaussian,
    "laplace": exact_laplace,
    # Never less private than the Gaussian they approach with ever finer steps.
    "skellam": exact_gaussian,
    "discrete_gaussian": exact_gaussian,
}


def twin(mechanism, fault: str):
    """The mechanism with one fault."""
    first: dict[str, np.ndarray] = {}

    class Twin(type(mechanism)):
        def draw(self, source, permit, scale, size):
            if fault == "halved":
                return super().draw(source, permit, scale / 2, size)
            if fault == "wrong law" and isinstance(self, Laplace):
                return source.normal(permit, scale * math.sqrt(2), size)
            if fault == "wrong law":
                return source.laplace(permit, scale / math.sqrt(2), size)  # the same standard deviation
            noise = super().draw(source, permit, scale, size)
            if fault == "bare coordinate":
                noise[7] = 0.0
            if fault == "copied":
                noise[1::2] = noise[::2]
            return first.setdefault("noise", noise) if fault == "replayed" else noise

    return Twin(mechanism.noise_multiplier)
