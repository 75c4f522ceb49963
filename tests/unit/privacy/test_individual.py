"""Rates and clip shares at which groups spend their own budgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency
from sordino.privacy import events, individual
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.calibration import calibrate_noise
from sordino.privacy.individual import GroupBudget, clip_shares, sampling_rates

ADD = Adjacency.ADD_REMOVE
THREE = {
    "strict": GroupBudget(1.0, 340, 100),
    "usual": GroupBudget(2.0, 430, 100),
    "open": GroupBudget(3.0, 230, 100),
}
"""The paper's shares of people by attitude: 34 %, 43 % and 23 %."""


def spent(rate, noise, steps=100, adjacency=ADD):
    """The epsilon of so many sampled Gaussian releases, at delta 1e-5."""
    return best_epsilon([(events.poisson(rate, events.gaussian(noise)), steps)], 1e-5, adjacency=adjacency).epsilon


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE_ONE])
def test_sample_spends_every_budget(adjacency):
    """
    Each group at most its epsilon and nearly all of it, at one noise; the batch is the one that was wanted.
    """
    rates, noise = sampling_rates(THREE, 100.0, 1e-5, adjacency=adjacency)

    for name, group in THREE.items():
        assert 0.99 * group.epsilon < spent(rates[name], noise, adjacency=adjacency) <= group.epsilon
    assert sum(group.size * rates[name] for name, group in THREE.items()) == pytest.approx(100.0, rel=0.01)
    assert rates["strict"] < rates["usual"] < rates["open"]


def test_scale_spends_every_budget():
    """
    The group that allows most is clipped to the whole; the others to the share of the noise they need.
    """
    shares, noise = clip_shares(THREE, 1.0, 1e-5, adjacency=ADD)

    assert shares["open"] == 1.0
    for name, group in THREE.items():
        assert 0.98 * group.epsilon < spent(1.0, noise / shares[name]) <= group.epsilon


def test_one_group_is_ordinary_calibration():
    """
    Alone at rate 0.1, a group gets the rate 0.1, the share 1 and the noise of an ordinary plan.
    """
    one = {"all": GroupBudget(1.0, 1000, 50)}
    plain = calibrate_noise(lambda z: [(events.poisson(0.1, events.gaussian(z)), 50)], 1.0, 1e-5, adjacency=ADD)
    rates, sampled = sampling_rates(one, 100.0, 1e-5, adjacency=ADD)
    shares, scaled = clip_shares(one, 0.1, 1e-5, adjacency=ADD)

    assert (rates["all"], sampled) == (pytest.approx(0.1, rel=0.01), pytest.approx(plain, rel=0.01))
    assert (shares["all"], scaled) == (1.0, pytest.approx(plain, rel=0.01))


def test_equal_budgets_make_equal_groups():
    """
    Groups of one epsilon join alike, whatever their sizes.
    """
    groups = {"few": GroupBudget(1.0, 10, 20), "many": GroupBudget(1.0, 990, 20)}
    rates, _ = sampling_rates(groups, 100.0, 1e-5, adjacency=ADD)

    assert rates["few"] == pytest.approx(rates["many"], rel=0.01)


def test_a_generous_group_may_always_join():
    """
    A rate stops at one, and the others make up for it.
    """
    groups = {"strict": GroupBudget(1.0, 50, 10), "open": GroupBudget(8.0, 50, 10)}
    rates, noise = sampling_rates(groups, 80.0, 1e-5, adjacency=ADD)

    assert rates["open"] == 1.0
    assert spent(rates["strict"], noise, 10) <= 1.0
    assert 50 * sum(rates.values()) == pytest.approx(80.0, rel=0.01)


def test_a_whole_batch_cannot_be_sampled():
    """
    All records in every step leave no rate to choose.
    """
    with pytest.raises(PrivacyError, match="nothing to sample"):
        sampling_rates(THREE, 1000.0, 1e-5, adjacency=ADD)


@settings(max_examples=2)
@given(
    low=st.floats(0.3, 1.0),
    ratio=st.floats(1.1, 4.0),
    share=st.floats(0.1, 0.9),
    rate=st.floats(0.02, 0.3),
)
def test_never_above_the_budget(low, ratio, share, rate):
    """
    Whatever the groups, and the more a group allows, the more it joins.
    """
    sizes = max(1, round(2000 * share)), max(1, round(2000 * (1 - share)))
    groups = {"strict": GroupBudget(low, sizes[0], 30), "open": GroupBudget(low * ratio, sizes[1], 30)}
    rates, noise = sampling_rates(groups, rate * 2000, 1e-5, adjacency=ADD)

    for name, group in groups.items():
        assert spent(rates[name], noise, 30) <= group.epsilon
    assert rates["strict"] <= rates["open"]


SATURATING = {
    40.0: ((0.1114, 6.0e-5), (0.1466, 4.7e-3), (0.2107, 0.150), (0.2335, 0.477), (0.2431, 0.806), (0.2643, 1.0)),
    20.0: ((0.1114, 6.3e-6), (0.1466, 4.0e-5), (0.2107, 0.0048), (0.2629, 0.0354), (0.3403, 0.239), (0.43, 1.0)),
}
"""Rates that spend an epsilon in two steps, by the noise: measured, minutes of pricing."""


def test_the_batch_is_met_where_groups_saturate(monkeypatch):
    """
    With large budgets all records of a group may join. The batch is no power of the noise there, and is met.
    """

    def measured(group, noise, *_):
        noises, rates = zip(*SATURATING[group.epsilon], strict=True)
        return float(np.exp(np.interp(np.log(noise), np.log(noises), np.log(rates))))

    monkeypatch.setattr(individual, "_rate", measured)
    monkeypatch.setattr(individual, "_confirmed", lambda group, noise, rate, *_: rate)
    groups = {"strict": GroupBudget(20.0, 10, 2), "open": GroupBudget(40.0, 40, 2)}

    rates, _ = sampling_rates(groups, 20.0, 1e-5, adjacency=ADD)

    assert sum(groups[name].size * rate for name, rate in rates.items()) == pytest.approx(20.0, rel=0.01)


def test_a_batch_that_is_not_met_is_refused(monkeypatch):
    """
    Nothing far from what was asked for is planned in its place.
    """
    monkeypatch.setattr(individual, "_rate", lambda *_: 1e-6)

    with pytest.raises(PrivacyError, match="is met by no rates"):
        sampling_rates(THREE, 100.0, 1e-5, adjacency=ADD)
