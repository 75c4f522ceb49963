"""Vectors as whole numbers: a bound that holds for every rounding, a sum that comes back, and the error it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import linalg

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.core.seeds import stream
from sordino.federation.secure.encoding import BETA, Crowd, Encoding, hadamard
from sordino.privacy import discrete
from sordino.privacy.noise import SeededNoise, _Keystream

SOURCE = SeededNoise(3)


def unit_vectors(count, size, seed=0):
    drawn = stream(seed, "vectors").normal(size=(count, size))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def summed(encoding, vectors):
    """Modulo 2^bits, as a secure sum would."""
    total = np.zeros(encoding.length, np.uint64)
    for vector in vectors:
        total = encoding.wrapped((total + encoding.wrapped(encoding.encode(vector, SOURCE))).astype(np.int64))
    return total


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_the_transform_is_hadamards(size):
    """Orthonormal, and its own inverse."""
    x = stream(1, "x").normal(size=size)
    assert np.allclose(hadamard(x.copy()), linalg.hadamard(size) @ x / math.sqrt(size))
    assert np.allclose(hadamard(hadamard(x.copy())), x)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_sum_comes_back(size, alone):
    """To the rounding: one step each, over the scale."""
    encoding = Encoding.fitting(24, 1.0, size, Crowd(6), noise_multiplier=1.0, alone=alone).at("t")
    vectors = unit_vectors(6, size)
    error = encoding.decode(summed(encoding, vectors)) - vectors.sum(0)
    assert np.linalg.norm(error) < 6 * math.sqrt(encoding.length) / encoding.scale + 1e-6
    other = encoding.at("u").decode(summed(encoding, vectors)) - vectors.sum(0)
    assert size < 5 or np.linalg.norm(other) > 0.1  # the signs of another round (negative control)


def test_negative_sums_and_overflows_come_back_modulo():
    """-1 is 2^bits - 1; what leaves the range returns at the other end."""
    encoding = Encoding(bits=8, clip=100.0, size=1, scale=1.0, alone=False)
    sign = encoding.decode(np.array([1], np.uint64))[0]
    assert encoding.decode(np.array([255], np.uint64))[0] == -sign
    assert encoding.decode(np.array([128], np.uint64))[0] == -128 * sign


@pytest.mark.parametrize("beta", [BETA, 0.1, 0.9])
@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0, 1000.0])
def test_one_units_numbers_keep_the_bound(scale, beta):
    """Every rounding; the bound is the published one, and without rejection (the twin) some would break it."""
    encoding = Encoding(bits=16, clip=1.0, size=64, scale=scale, beta=beta)
    c, d = scale, 64
    published = min(
        c + math.sqrt(d), math.sqrt(c**2 + d / 4 + math.sqrt(2 * math.log(1 / beta)) * (c + math.sqrt(d) / 2))
    )
    assert encoding.bound()[0] == pytest.approx(published)
    assert encoding.bound()[1] == pytest.approx(published * min(math.sqrt(d), published))
    for vector in unit_vectors(50, 64):
        whole = encoding.encode(vector, SOURCE).astype(float)
        assert np.linalg.norm(whole) <= encoding.bound()[0]
        assert np.abs(whole).sum() <= encoding.bound()[1]


def test_without_rejection_some_roundings_are_too_long():
    """The twin that rounds once and sends."""
    encoding = Encoding(bits=16, clip=1.0, size=64, scale=40.0, beta=0.9)
    rotated = hadamard(unit_vectors(1, 64)[0]) * 40.0
    lengths = [np.linalg.norm(np.floor(rotated + SOURCE.uniform(64))) for _ in range(200)]
    assert max(lengths) > encoding.bound()[0]


def test_too_long_a_vector_is_never_rounded_short():
    """It ends in an error, not in a broken bound."""
    encoding = Encoding(bits=16, clip=1.0, size=64, scale=1000.0)
    with pytest.raises(PrivacyError, match="longer than the clip"):
        encoding.encode(2 * unit_vectors(1, 64)[0], SOURCE)


@pytest.mark.parametrize("scale", [0.5, 3.0, 1000.0])
def test_one_unit_of_many_moves_a_sum_by_the_bound(scale):
    """Sums with and without it; at small scales rounding adds most of the move."""
    encoding = Encoding(bits=30, clip=1.0, size=64, scale=scale, alone=False)
    base = 7 * unit_vectors(20, 64, seed=1)
    moves = [
        encoding.encode(b + v, SOURCE) - encoding.encode(b, SOURCE) for b in base for v in unit_vectors(10, 64, seed=2)
    ]
    longest = np.linalg.norm(moves, axis=1).max()
    assert longest <= encoding.bound()[0]
    assert np.abs(moves).sum(1).max() <= encoding.bound()[1]
    if scale == 0.5:
        assert longest > scale  # without the term for rounding it would be exceeded


def test_rounding_is_unbiased():
    """On average the vector itself, to six standard errors."""
    encoding = Encoding(bits=16, clip=1.0, size=16, scale=2.0, beta=1e-6).at("t")
    vector = unit_vectors(1, 16)[0]
    found = np.stack([encoding.decode(encoding.wrapped(encoding.encode(vector, SOURCE))) for _ in range(4000)])
    assert np.abs(found.mean(0) - vector).max() < 6 * 0.5 / 2.0 / math.sqrt(4000)


class TestFitting:
    """The largest scale at which the sum fits."""

    @pytest.mark.parametrize(("bits", "slack"), [(12, 0.02), (18, 1e-4)])
    def test_scale(self, bits, slack):
        """s = √(2^2b - n k²) / (2 k √(c² n² / d + n σ²)), k = 4, less what rounding adds to the noise."""
        n, d, c, z, k = 20, 2**14, 0.5, 1.0, 4
        published = math.sqrt(2 ** (2 * bits) - n * k**2) / (2 * k * math.sqrt(c**2 * n**2 / d + (z * c) ** 2))
        found = Encoding.fitting(bits, c, d, Crowd(n), noise_multiplier=z).scale
        assert published * (1 - slack) < found <= published

    def test_more_shares_than_planned_fit(self):
        """Nobody lost, nobody lying: then there is the most noise."""
        tight = Encoding.fitting(16, 1.0, 1024, Crowd(20, honest=10), noise_multiplier=1.0)
        assert tight.scale < 0.8 * Encoding.fitting(16, 1.0, 1024, Crowd(20), noise_multiplier=1.0).scale

    def test_too_few_bits_are_refused(self):
        """Noise alone would go round."""
        with pytest.raises(ConfigError, match="too few"):
            Encoding.fitting(6, 1.0, 2**14, Crowd(20), noise_multiplier=1.0)

    def test_overflows_are_as_rare_as_stated(self):
        """Alike vectors and full noise, the worst case: counted over a quarter million coordinates."""
        crowd, size = Crowd(20), 2**14
        encoding = Encoding.fitting(14, 1.0, size, crowd, noise_multiplier=1.0)
        stated = encoding.overflow(1.0, crowd)
        assert stated == pytest.approx(6.3e-5, rel=0.01)
        keystream, left = _Keystream(bytes(32)), 0
        for round_ in range(16):
            one = encoding.at(str(round_)).encode(unit_vectors(1, size)[0], SOURCE)
            noise = discrete.skellam(keystream, encoding.bound()[0] ** 2, size)
            left += int((np.abs(20 * one + noise) >= 2**13).sum())
        expected = stated * 16 * size
        assert expected / 3 < left < 3 * expected


@pytest.mark.parametrize(
    "broken",
    [
        {"bits": 3},
        {"bits": 41},
        {"clip": 0.0},
        {"clip": math.inf},
        {"scale": -1.0},
        {"size": 0},
        {"beta": 0.0},
        {"beta": 1.0},
    ],
)
def test_values_out_of_range_are_refused(broken):
    """In words."""
    with pytest.raises(ConfigError):
        Encoding(**{"bits": 16, "clip": 1.0, "size": 4, "scale": 10.0, **broken})


def test_wrong_lengths_are_refused():
    """Both ways."""
    encoding = Encoding(bits=16, clip=1.0, size=3, scale=10.0)
    with pytest.raises(EngineError):
        encoding.encode(np.zeros(4), SOURCE)
    with pytest.raises(EngineError):
        encoding.decode(np.zeros(3, np.uint64))


def mean_square(bits, spread=1.0, reps=24, n=20, size=2**14):
    """Error of the noised sum over that of the central Gaussian, noise multiplier 1."""
    encoding = Encoding.fitting(bits, 1.0, size, Crowd(n), noise_multiplier=1.0)
    vectors, keystream = unit_vectors(n, size), _Keystream(bytes(32))
    found = []
    for rep in range(reps):
        own = encoding.at(str(rep))
        noise = discrete.skellam(keystream, (spread * own.bound()[0]) ** 2, size)
        total = own.wrapped((summed(own, vectors) + own.wrapped(noise)).astype(np.int64))
        found.append(np.mean((own.decode(total) - vectors.sum(0)) ** 2))
    return float(np.mean(found))


def test_at_18_bits_the_error_is_the_gaussians():
    """Within 2 %; the twin with 2 % more noise, and 10 bits, are further away. Standard error 0.23 %."""
    assert abs(mean_square(18) - 1) < 0.02
    assert mean_square(18, spread=1.02) > 1.03
    assert mean_square(10, reps=4) > 1.2
