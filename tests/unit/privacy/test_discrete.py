"""Whole-number noise has its law to the last detail that samples show, and nothing less passes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats
from tiny_door import reserved

from sordino.core.errors import ConfigError, PrivacyError
from sordino.privacy import discrete, events
from sordino.privacy.noise import SeededNoise, SystemNoise, _Keystream

FALSE_ALARM = 1e-9
DRAWS = 60_000
EVENT = events.gaussian(1.0)


def stream(first: int = 1) -> _Keystream:
    return _Keystream(bytes([first]) * 32)


def permit(txid: str = "t"):
    return reserved(EVENT, txid=txid).take(["a"], events.key(EVENT))


def skellam_law(variance: float, at: np.ndarray) -> np.ndarray:
    """Probabilities e^-μ I_k(μ), written down anew."""
    return special.ive(np.abs(at), variance)


def gaussian_law(sigma: float, at: np.ndarray) -> np.ndarray:
    every = np.arange(-int(12 * sigma) - 30, int(12 * sigma) + 31)
    return np.exp(-(at**2) / (2 * sigma**2)) / np.exp(-(every**2) / (2 * sigma**2)).sum()


def p_value(drawn: np.ndarray, std: float, law) -> float:
    """Chi-square over single numbers where they are few, and over runs of them where they are many."""
    far = int(9 * std) + 8
    numbers = np.arange(-far, far + 1)
    chances = law(numbers)
    cells = np.searchsorted(np.linspace(0, 1, 60), np.minimum(np.cumsum(chances), 1.0))
    expected = np.bincount(cells, weights=chances)
    observed = np.bincount(cells[np.clip(drawn, -far, far) + far], minlength=expected.size)
    kept = expected * drawn.size > 5
    cut = np.append(expected[kept], max(1 - expected[kept].sum(), 0.0)) * drawn.size
    seen = np.append(observed[kept], observed[~kept].sum())
    if cut[-1] < 5:
        cut, seen = np.append(cut[:-2], cut[-2:].sum()), np.append(seen[:-2], seen[-2:].sum())
    return float(stats.chisquare(seen, cut * seen.sum() / cut.sum()).pvalue)


@pytest.mark.parametrize("variance", [0.3, 4.0, 19.9, 20.1, 31.0, 400.0, 2.0**20])
def test_skellam_draws_have_the_law(variance):
    """Counted arrivals, small and large means; with half the variance (the twin) the same test fails."""

    def law(at):
        return skellam_law(variance, at)

    std = variance**0.5
    assert p_value(discrete.skellam(stream(), variance, DRAWS), std, law) > FALSE_ALARM
    assert p_value(discrete.skellam(stream(), variance / 2, DRAWS), std, law) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.5, 20.0, 1000.0])
def test_discrete_gaussians_have_the_law(sigma):
    """Narrow ones too; the twin draws with half of σ², and, where that differs, rounds a Gaussian."""

    def law(at):
        return gaussian_law(sigma, at)

    assert p_value(discrete.discrete_gaussian(stream(), sigma, DRAWS), sigma, law) > FALSE_ALARM
    assert p_value(discrete.discrete_gaussian(stream(), sigma / 2**0.5, DRAWS), sigma, law) < FALSE_ALARM
    if sigma < 1:
        rounded = np.rint(np.random.default_rng(0).normal(0, sigma, DRAWS)).astype(int)
        assert p_value(rounded, sigma, law) < FALSE_ALARM


def test_shares_of_skellam_noise_add_up_to_skellam_noise():
    """Seven shares of a seventh of the variance each; seven of an eighth (the twin) are found out."""

    def law(at):
        return skellam_law(90.0, at)

    own, rng = stream(), range(7)
    assert p_value(sum(discrete.skellam(own, 90 / 7, DRAWS) for _ in rng), 90**0.5, law) > FALSE_ALARM
    assert p_value(sum(discrete.skellam(own, 90 / 8, DRAWS) for _ in rng), 90**0.5, law) < FALSE_ALARM


@pytest.mark.parametrize("mean", [10.0, 13.258, 17.3, 21.8, 100.25, 1e4, 1e9, 2.0**60])
def test_proposals_come_from_above_the_law(mean):
    """The chance to keep a proposal is nowhere above one: there, probabilities would be cut. As published it is."""
    hat, edge = discrete.Hat(mean), np.concatenate([np.geomspace(1e-9, 0.5, 20_000), np.linspace(1e-6, 0.5, 60_000)])
    sides = [np.full(edge.size, side) for side in (-1.0, 1.0)]
    highest = max(hat.log_ratio(hat.proposal(edge, side), edge).max() for side in sides)

    assert -0.02 < highest <= 0
    if mean == 17.3:
        assert highest + discrete._MARGIN > 0


@pytest.mark.parametrize("mean", [10.5, 40.0, 1e3, 1e6])
def test_probabilities_are_exact(mean):
    """Against scipy's, over ten standard deviations; and far beyond its reach their sum is still one."""
    hat = discrete.Hat(mean)
    at = np.arange(max(0, int(mean - 10 * mean**0.5)), int(mean + 10 * mean**0.5)) - float(hat.whole)
    assert np.allclose(hat.log_probability(at), stats.poisson.logpmf(at + hat.whole, mean), rtol=0, atol=1e-8)
    huge = discrete.Hat(2.0**32 + 0.25)
    wide = np.arange(-9 * 2**16, 9 * 2**16, dtype=np.float64)
    if mean == 1e6:
        assert np.exp(huge.log_probability(wide)).sum() == pytest.approx(1.0, abs=1e-9)


def test_nothing_below_zero_arrivals():
    """A proposal of fewer than none is never kept."""
    assert discrete.Hat(10.0).log_ratio(np.array([-11.0, -10.0]), np.array([0.01, 0.01])).tolist()[0] == -np.inf
    assert discrete.centred_poisson(stream(), 10.0, DRAWS).min() >= -10


@pytest.mark.parametrize("make", [SystemNoise, lambda: SeededNoise(7)])
@pytest.mark.parametrize("kind", ["skellam", "discrete_gaussian"])
class TestSources:
    """The same rules as for other noise."""

    def test_no_permit_no_noise(self, make, kind):
        """A permit serves once, whole or as a share."""
        source, whole = make(), permit()
        (share,) = permit("u").shares(["a"])
        with pytest.raises(PrivacyError, match="only under a permit"):
            getattr(source, kind)(None, 1.0, 3)
        for one in (whole, share):
            assert getattr(source, kind)(one, 4.0, 3).dtype == np.int64
            with pytest.raises(PrivacyError, match="already drawn"):
                getattr(source, kind)(one, 4.0, 3)

    @pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
    def test_scale_is_positive(self, make, kind, scale):
        """Zero noise is no noise."""
        with pytest.raises(ConfigError):
            getattr(make(), kind)(permit(), scale, 3)

    def test_too_wide_is_refused(self, make, kind):
        """Where doubles no longer tell whole numbers apart."""
        with pytest.raises(PrivacyError, match="fewer bits"):
            getattr(make(), kind)(permit(), 2.0**80, 3)

    @pytest.mark.parametrize("size", [0, 1, 7])
    def test_any_size(self, make, kind, size):
        """None too."""
        assert getattr(make(), kind)(permit(), 9.0, size).shape == (size,)


def test_seeded_noise_is_refused_on_a_real_account():
    """Shares as well."""
    real = reserved(EVENT, test=False).take(["a"], events.key(EVENT))
    (share,) = real.shares(["a"])
    with pytest.raises(PrivacyError, match="seeded source"):
        SeededNoise(0).skellam(share, 4.0, 3)


def test_a_share_draws_no_other_noise():
    """Normal noise in shares would be a release with too little of it."""
    (share,) = permit().shares(["a"])
    with pytest.raises(PrivacyError, match="only under a permit"):
        SystemNoise().normal(share, 1.0, 3)
