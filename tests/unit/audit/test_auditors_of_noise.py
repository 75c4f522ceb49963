"""The tests of noise and mechanisms: sound noise passes, each fault is seen, classics that are broken are refuted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from known_worlds import limit
from scipy import stats as laws

from sordino.audit.stats import mechanism, two_world
from sordino.core.seeds import stream

STEPS, WIDTH = 40, 200
ALPHA = 1e-3


def noise(seed, *shape):
    return stream(seed, "noise under test").normal(size=shape or (STEPS, WIDTH))


EXACT = {
    "scale": lambda z: mechanism.scale(z, 1.0),
    "scale above": lambda z: mechanism.scale_above(z, 1.0),
    "smallest step": lambda z: mechanism.smallest_step(z, 1.0),
    "blocks": mechanism.blocks,
    "pairs": lambda z: mechanism.blocks(z, 2),
}
CHECKS = EXACT | {
    "law": lambda z: mechanism.law(z, 1.0),
    "repeated": mechanism.repeated,
    "freshness": mechanism.freshness,
    "crossed": lambda z: mechanism.crossed([z[:, : WIDTH // 2], z[:, WIDTH // 2 :]]),
    "lattice": lambda z: mechanism.lattice(z, 1.0),
}


@pytest.mark.parametrize("name", CHECKS)
def test_sound_noise_is_accused_at_the_stated_rate(name):
    """At 5 % and at 0.5 % within the 99.9 % limits, on 400 worlds; p-values with an exact law are uniform."""
    levels = np.array([CHECKS[name](noise(seed, 20, WIDTH)) for seed in range(400)])
    assert np.count_nonzero(levels < 0.05) <= limit(400)
    assert np.count_nonzero(levels < 0.005) <= limit(400, 0.005)
    if name in EXACT:
        assert laws.kstest(levels, "uniform").pvalue > ALPHA


def skipped(z):
    z[7] *= 0.5
    return z


def frozen(z):
    return np.tile(z[:1], (STEPS, 1))


def drawn_again(z):
    z[31] = z[3]
    return z


def leaning(z):
    for t in range(1, STEPS):
        z[t] = 0.1 * z[t - 1] + np.sqrt(1 - 0.01) * z[t]
    return z


def alternating(z):
    return np.where(np.arange(STEPS)[:, None] % 2 == 0, z[:1], z[1:2])


def one_for_all(z):
    return np.tile(z[:, :1], (1, WIDTH))


def antithetic(z):
    z[:, 1::2] = -z[:, ::2]
    return z


def drifting(z):
    return (z + 0.5 * z[:, :1]) / np.sqrt(1.25)


def shared(z):
    z[:, WIDTH // 2 :] = z[:, : WIDTH // 2]
    return z


def uniform(z):
    return np.sqrt(12) * (laws.norm.cdf(z) - 0.5)


def cut_off(z):
    return np.clip(z, -2, 2) / 0.9587


def coarse(z):
    return np.round(z * 256) / 256


def half_silent(z):
    z[:, ::2] = 0
    return z


FAULTS = {
    "0.95": (lambda z: z * 0.95, "scale"),
    "1.05": (lambda z: z * 1.05, "scale above"),
    "one step of half": (skipped, "smallest step"),
    "drawn once": (frozen, "freshness"),
    "drawn once, any two": (frozen, "repeated"),
    "a draw used again": (drawn_again, "repeated"),
    "a tenth of the last": (leaning, "freshness"),
    "two draws in turn": (alternating, "freshness"),
    "one scalar": (one_for_all, "blocks"),
    "antithetic": (antithetic, "blocks"),
    "a common part": (drifting, "blocks"),
    "one draw for two tensors": (shared, "crossed"),
    "uniform": (uniform, "law"),
    "truncated": (cut_off, "law"),
    "coarse grid": (coarse, "lattice"),
    "half of them none": (half_silent, "law"),
    "not a number": (lambda z: np.where(np.arange(WIDTH) == 3, np.nan, z), "scale"),
    "infinite": (lambda z: np.where(np.arange(WIDTH) == 3, np.inf, z), "scale"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen(name):
    """Each fault, in 20 worlds of 20, by the check that is there for it, at 0.1 %."""
    fault, seen_by = FAULTS[name]
    assert all(CHECKS[seen_by](fault(noise(seed))) < ALPHA for seed in range(20))


@pytest.mark.parametrize("name", CHECKS)
def test_nothing_shows_nothing(name):
    """No releases, or none of any width, accuse nobody; silence, infinities and huge values never stumble."""
    for empty in (np.zeros((0, WIDTH)), np.zeros((0, 0))):
        assert CHECKS[name](empty) == 1.0
    for odd in (np.zeros((3, 50)), np.full((3, 50), np.nan), np.full((3, 50), -np.inf), noise(1, 3, 50) * 1e300):
        assert 0 <= CHECKS[name](odd) <= 1


def test_a_grid_as_coarse_as_allowed_is_accused_at_the_stated_rate():
    """Noise on the very grid that may just be is the null of the lattice test; ten times coarser is always seen."""
    step, draws = 2.0**-16, [noise(seed, 1000) for seed in range(400)]
    levels = [mechanism.lattice(np.round(z / step) * step, 1.0, step=step) for z in draws]
    assert 0.02 * 400 < np.count_nonzero(np.array(levels) < 0.1) <= limit(400, 0.1)
    assert all(mechanism.lattice(np.round(z / step / 10) * step * 10, 1.0, step=step) < ALPHA for z in draws[:20])


def test_freshness_of_the_longest_lag_is_one_cosine():
    """Of two steps only their cosine is left: times √n it is the normal that the p-value stands for."""
    two = noise(5, 2, 400) + 0.2
    cosine = float(two[0] @ two[1] / np.linalg.norm(two[0]) / np.linalg.norm(two[1]))
    assert mechanism.freshness(two, [1]) == pytest.approx(2 * laws.norm.sf(abs(cosine) * 20))


def test_a_hundred_thousand_values_see_what_is_missing():
    """χ² at 0.1 %: noise × 0.985 in at least 99 of 100 worlds, sound noise in at most 2 of 200."""
    assert sum(mechanism.scale(0.985 * noise(seed, 100_000), 1.0) < ALPHA for seed in range(100)) >= 99
    assert sum(mechanism.scale(noise(seed, 100_000), 1.0) < ALPHA for seed in range(200)) <= 2


RUNS = 20_000
SURE = 1 - ALPHA


def gaussian_refuted(seed, multiplier):
    """Whether a release that claims z = 1 is refuted by 20,000 runs with and without the unit."""
    draws = stream(seed, "gaussian worlds")
    absent, present = (multiplier * draws.normal(size=RUNS) for _ in range(2))
    return two_world.mu_bound(absent, present + 1, confidence=SURE) > 1


def test_two_worlds_see_a_tenth_of_the_noise_missing():
    """0.9 z is refuted in at least 90 of 100, z in none of 200."""
    assert sum(gaussian_refuted(seed, 0.9) for seed in range(100)) >= 90
    assert sum(gaussian_refuted(seed, 1.0) for seed in range(200)) == 0


def sparse_vector(draws, answers, *, query_noise, cut_off):
    """Whether each answer lies above a noisy threshold of a half, at a claimed ε of 1; in rows of runs."""
    threshold = 0.5 + draws.laplace(scale=2.0, size=(RUNS, 1))
    noisy = answers + draws.laplace(scale=query_noise, size=(RUNS, len(answers))) if query_noise else answers
    above = noisy > threshold
    if cut_off:  # nothing is answered after the first one above
        above &= np.cumsum(above, axis=1) == 1
    return above


def counts(above):
    """How many of each half were above: a summary fixed in advance, so that few cells hold many runs."""
    return above.reshape(RUNS, 2, -1).sum(axis=2)


HALVES = np.repeat([0.0, 1.0], 10), np.repeat([1.0, 0.0], 10)


def sound_sparse_vector(draws):
    return [counts(sparse_vector(draws, answers, query_noise=4.0, cut_off=True)) for answers in HALVES]


def silent_queries(draws):
    return [sparse_vector(draws, answers, query_noise=0, cut_off=True) for answers in ([0.0, 1.0], [1.0, 0.0])]


def no_cut_off(draws):
    return [counts(sparse_vector(draws, answers, query_noise=2.0, cut_off=False)) for answers in HALVES]


def noisy_max(draws, answers):
    return answers + draws.laplace(scale=2.0, size=(RUNS, len(answers)))


def noisy_max_index(draws):
    neighbours = [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]
    return [noisy_max(draws, np.array(answers)).argmax(axis=1) for answers in neighbours]


def noisy_max_value(draws):
    return [np.floor(2 * noisy_max(draws, np.full(10, answer)).max(axis=1)) for answer in (0.0, 1.0)]


def laplace_of(sensitivity):
    def mechanism_under_test(draws):
        return [np.floor(2 * (draws.laplace(size=RUNS) + moved)) for moved in (0.0, sensitivity)]

    return mechanism_under_test


def randomised_response(draws):
    truth = draws.random(RUNS) < np.e / (1 + np.e)
    return [truth, ~(draws.random(RUNS) < np.e / (1 + np.e))]


CLAIMED = 1.0
SOUND = [sound_sparse_vector, noisy_max_index, laplace_of(1.0), randomised_response]
BROKEN = [silent_queries, no_cut_off, noisy_max_value, laplace_of(2.0)]


def bound(broken, seed):
    """On three pairs of neighbours: as released, the other way round, and once more."""
    draws = stream(seed, "classics")
    pairs = [broken(draws) for _ in range(3)]
    pairs[1].reverse()
    return two_world.cells_epsilon_bound(pairs, delta=0.0, confidence=SURE)


@pytest.mark.parametrize("sound", SOUND)
def test_sound_classics_are_accepted(sound):
    """Claimed ε of 1: never above it, and above a fifth of it, so the audit does look."""
    found = [bound(sound, seed) for seed in range(5)]
    assert max(found) <= CLAIMED
    assert min(found) > CLAIMED / 5


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_classics_are_refuted(broken):
    """SVT without query noise or without cut-off, noisy max with its value, Laplace with twice the sensitivity."""
    assert all(bound(broken, seed) > CLAIMED for seed in range(5))


def test_thresholds_bound_continuous_outputs_too():
    """Noisy max with its value, as a number: the threshold is found on the fixing runs, in either direction."""
    draws = stream(3, "noisy max")
    absent, present = (noisy_max(draws, np.full(10, answer)).max(axis=1) for answer in (0.0, 1.0))
    for one, other in itertools.permutations((absent, present)):
        assert two_world.epsilon_bound(one, other, delta=0.0, confidence=SURE) > 1.5 * CLAIMED
    halves = absent[: RUNS // 2], absent[RUNS // 2 :]
    assert two_world.epsilon_bound(*halves, delta=0.0, confidence=SURE) == 0
