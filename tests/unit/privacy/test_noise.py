"""Where noise comes from: unpredictable by default, reproducible only by name, never the same twice."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from tiny_door import reserved

from sordino.core.errors import ConfigError, PrivacyError
from sordino.privacy import events, noise
from sordino.privacy.noise import SeededNoise, SystemNoise, choice, coins

FALSE_ALARM = 1e-9
EVENT = events.gaussian(1.0)
SOURCES = [SystemNoise, lambda: SeededNoise(7)]


def permits(count=1, *, test=True, txid="t"):
    reservation = reserved(EVENT, count=count, test=test, txid=txid)
    return [reservation.take(["a"], events.key(EVENT)) for _ in range(count)]


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("kind", ["normal", "laplace"])
def test_no_permit_no_noise(make, kind):
    """An object that merely looks like a permit is refused, and a permit serves once."""
    source, (permit,) = make(), permits()
    with pytest.raises(PrivacyError, match="only under a permit"):
        getattr(source, kind)(None, 1.0, 3)
    getattr(source, kind)(permit, 1.0, 3)
    with pytest.raises(PrivacyError, match="already drawn"):
        getattr(source, kind)(permit, 1.0, 3)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scale_is_positive(scale):
    """Zero noise is no noise."""
    (permit,) = permits()
    with pytest.raises(ConfigError):
        SystemNoise().normal(permit, scale, 3)


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_any_size(make, size):
    """Odd sizes too, although normals come in pairs."""
    assert make().normal(permits()[0], 1.0, size).shape == (size,)


@pytest.mark.parametrize("kind", ["normal", "laplace"])
def test_laws(kind):
    """Kolmogorov-Smirnov against the named law, and (negative control) against the other one."""
    sample = getattr(SeededNoise(5), kind)(permits()[0], 2.0, 20_000) / 2.0
    law, other = ("norm", "laplace") if kind == "normal" else ("laplace", "norm")
    assert stats.kstest(sample, law).pvalue > FALSE_ALARM
    assert stats.kstest(sample, other).pvalue < FALSE_ALARM


@pytest.mark.parametrize("words", [0, 2**64 - 1])
def test_no_word_gives_a_draw_of_0_or_1(monkeypatch, words):
    """
    The last of 2^53 steps, moved by half, would be rounded to 1.
    """
    monkeypatch.setattr(noise._Keystream, "fill", lambda self, out: np.full_like(out, words))
    drawn = noise._Keystream(bytes(32)).uniform(1)
    assert 0 < drawn[0] < 1


def test_uniform_is_open_and_uniform():
    """Never 0 or 1, so that a rate of 1 takes everybody and logarithms are finite."""
    sample = SeededNoise(5).uniform(20_000)
    assert 0 < sample.min() < sample.max() < 1
    assert stats.kstest(sample, "uniform").pvalue > FALSE_ALARM


class TestSystemNoise:
    """The replay attack: nothing that an attacker can set or copy repeats the draws."""

    def test_numpy_and_torch_seeds_do_not_matter(self):
        """Seeding the framework's generators before each draw does not repeat it."""
        torch = pytest.importorskip("torch")
        drawn = []
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002, TID251 - the attack itself
            torch.manual_seed(0)
            drawn.append(SystemNoise().normal(permits()[0], 1.0, 8))
        assert not np.intersect1d(*drawn).size

    def test_framework_seeds_do_repeat_framework_noise(self):
        """Negative control: the same attack succeeds on numpy's generator."""
        drawn = []
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002, TID251 - the attack itself
            drawn.append(np.random.normal(size=8))  # noqa: NPY002 - the attack itself
        assert np.array_equal(*drawn)

    def test_forks_differ(self):
        """Parent and children share the object, not the stream."""
        script = """
import os
from sordino.privacy.noise import SystemNoise
source = SystemNoise()
source.uniform(1)
for _ in range(2):
    if os.fork() == 0:
        print(source.uniform(1)[0].hex(), flush=True)
        os._exit(0)
    os.wait()
print(source.uniform(1)[0].hex())
"""
        printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        assert len(set(printed.split())) == 3

    def test_successive_draws_differ(self):
        """One stream goes on."""
        source, (one, two) = SystemNoise(), permits(2)
        assert not np.intersect1d(source.normal(one, 1.0, 8), source.normal(two, 1.0, 8)).size


class TestSeededNoise:
    """Reproducible, for accounts marked as tests only."""

    def test_refused_on_a_real_account(self):
        """And the permit is not used up by the attempt."""
        (permit,) = permits(test=False)
        with pytest.raises(PrivacyError, match="seeded source"):
            SeededNoise(0).normal(permit, 1.0, 3)
        SystemNoise().normal(permit, 1.0, 3)

    def test_same_charge_same_noise(self):
        """A resumed run repeats the interrupted draw, in whatever order charges come."""
        one = SeededNoise(3).normal(permits(txid="x")[0], 1.0, 5)
        source = SeededNoise(3)
        source.normal(permits(txid="y")[0], 1.0, 5)
        assert np.array_equal(source.normal(permits(txid="x")[0], 1.0, 5), one)

    def test_charges_that_take_turns_share_no_noise(self):
        """Two silos drawing step by step: six releases, six different draws."""
        source, turns = SeededNoise(3), zip(permits(3, txid="x"), permits(3, txid="y"), strict=True)
        drawn = [source.normal(permit, 1.0, 1)[0] for pair in turns for permit in pair]
        assert len(set(drawn)) == 6

    def test_seeds_differ(self):
        """Another seed, other noise."""
        draws = [SeededNoise(seed).normal(permits()[0], 1.0, 1)[0] for seed in range(5)]
        assert len(set(draws)) == 5

    def test_coins_do_not_disturb_noise(self):
        """Sampling and noise have streams of their own."""
        source = SeededNoise(3)
        source.uniform(100)
        assert np.array_equal(source.normal(permits()[0], 1.0, 5), SeededNoise(3).normal(permits()[0], 1.0, 5))


class TestSampling:
    """Cohorts come from the same source as noise."""

    def test_coins_have_the_stated_rate(self):
        """Counts per unit and per draw are binomial; a shuffled cohort of fixed size is not (negative control)."""
        source, rate, draws, units = SeededNoise(1), 0.1, 2000, 100
        sizes = np.array([len(coins(source, rate, units)) for _ in range(draws)])
        variance = units * rate * (1 - rate)
        assert abs(sizes.mean() - units * rate) < stats.norm.isf(FALSE_ALARM) * np.sqrt(variance / draws)
        assert 0.8 < sizes.var() / variance < 1.2
        fixed = np.array([len(choice(source, units, 10)) for _ in range(50)])
        assert fixed.var() == 0

    def test_rate_one_takes_everybody(self):
        """No sampling."""
        assert np.array_equal(coins(SeededNoise(1), 1.0, 5), range(5))

    def test_choice_is_a_uniform_subset(self):
        """Exactly `size`, distinct, sorted, each unit equally often."""
        source = SeededNoise(1)
        draws = [choice(source, 10, 3) for _ in range(3000)]
        assert all(len(set(d)) == 3 and list(d) == sorted(d) for d in draws)
        counts = np.bincount(np.concatenate(draws), minlength=10)
        assert stats.chisquare(counts).pvalue > FALSE_ALARM


class _Stream:
    """A keystream whose words are chosen: by default from numpy's generator, `first` for the first of every draw."""

    def __init__(self, first=None, rest=None):
        self._rng, self._first, self._rest = np.random.default_rng(0), first, rest

    def fill(self, words):
        words[:] = self._rng.integers(2**64, size=words.size, dtype=np.uint64)
        third = len(words) // 3
        if self._first is not None:
            words[:third] = self._rng.integers(self._first, size=third, dtype=np.uint64)
        if self._rest is not None:
            words[third : 2 * third] = self._rest
        return words


def radii(drawn):
    """Of the pairs in one block of normal draws."""
    return np.hypot(*drawn.reshape(2, -1))


def test_the_tail_is_not_a_few_circles():
    """Far out, radii still take as many values as there are draws; with one word alone (the twin) they take two.

    First words of 0 to 3 are what happens once in 2^62 draws.
    """
    drawn = radii(noise._normal(_Stream(first=4), 1.0, 2000))
    twin = radii(noise._normal(_Stream(first=4, rest=2**63), 1.0, 2000))

    assert len(np.unique(drawn)) > 990
    assert drawn.min() > 9.2
    assert len(np.unique(np.round(twin, 9))) == 2


def test_the_rarest_words_are_finite():
    """A uniform of the least bits is not zero, one of the most bits is at most one, and every angle has a tangent."""
    words = np.array([0, 2**64 - 1], dtype=np.uint64)
    angles = np.array([0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    every = np.stack(np.meshgrid(words, words, angles)).reshape(3, -1)

    class Rare:
        def fill(self, words):
            words[:] = every.ravel()
            return words

    drawn = noise._normal(Rare(), 1.0, 2 * every.shape[1])
    assert np.isfinite(drawn).all()
    assert radii(drawn).max() == pytest.approx(np.sqrt(2 * 127 * np.log(2)))


def test_pairs_have_every_direction_and_none_more_than_another():
    """A pair's angle is uniform and says nothing of its radius; half the circle (the twin) is found out."""
    x, y = noise._normal(_Stream(), 1.0, 8000).reshape(2, -1)
    angle, radius = np.arctan2(y, x), np.hypot(x, y)
    law = stats.uniform(-np.pi, 2 * np.pi).cdf

    assert stats.kstest(angle, law).pvalue > FALSE_ALARM
    assert stats.kstest(radius**2 / 2, "expon").pvalue > FALSE_ALARM
    assert stats.spearmanr(radius, angle).pvalue > FALSE_ALARM
    assert stats.spearmanr(radius, np.abs(angle)).pvalue > FALSE_ALARM
    assert stats.kstest(angle / 2, law).pvalue < FALSE_ALARM


def test_the_tangent_gives_cosine_and_sine():
    """To the last bits, at every angle."""
    words = np.random.default_rng(1).integers(2**64, size=3 * 4000, dtype=np.uint64)

    class Known:
        def fill(self, own):
            own[:] = words
            return own

    x, y = noise._normal(Known(), 1.0, 8000).reshape(2, -1)
    angle = words[-4000:].view(np.int64) * (2 * np.pi * 2.0**-64)
    assert np.abs(x / np.hypot(x, y) - np.cos(angle)).max() < 2.0**-49
    assert np.abs(y / np.hypot(x, y) - np.sin(angle)).max() < 2.0**-49


@pytest.mark.parametrize("kind", ["normal", "laplace"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 100])
def test_blocks_join(monkeypatch, kind, size):
    """Every place is filled with a draw of its own, whatever the size is of blocks."""
    monkeypatch.setattr(noise, "PAIRS", 8)
    drawn = getattr(SystemNoise(), kind)(permits()[0], 1.0, size)
    assert drawn.shape == (size,)
    assert np.isfinite(drawn).all()
    assert len(np.unique(np.abs(drawn))) == size


def test_blocks_keep_the_law(monkeypatch):
    """Small blocks, the last one not full: each coordinate of each place is normal."""
    monkeypatch.setattr(noise, "PAIRS", 8)
    stream = _Stream()
    drawn = np.stack([noise._normal(stream, 2.0, 37) / 2.0 for _ in range(2000)])
    assert min(stats.kstest(place, "norm").pvalue for place in drawn.T) > FALSE_ALARM
    correlations = np.corrcoef(drawn.T) - np.eye(37)
    assert np.abs(correlations).max() < 0.15


def test_a_keystream_takes_a_new_key_before_its_counter_ends(monkeypatch):
    """Draws go on past the limit, and do not repeat."""
    monkeypatch.setattr(noise, "REKEY_BYTES", 256)
    stream = noise._Keystream(bytes(32))

    drawn = np.concatenate([stream.uniform(20) for _ in range(50)])

    assert len(np.unique(drawn)) == drawn.size
