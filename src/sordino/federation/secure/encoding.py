"""Vectors as whole numbers for a secure sum, and the sum back as a vector.

    vector ──► random signs, Hadamard ──► × scale ──► round ──► (+ noise) ──► modulo 2^bits ──► secure sum
    total  ◄── Hadamard, random signs ◄── / scale ◄── centred around zero ◄──────────────────────────┘

The rotation makes every coordinate about as large as any other, whatever the vector, so that few bits serve all. Its
signs are public and the same for everybody in a round. What rounding adds to how far a unit moves the sum is in the
bound, and noise is drawn for that bound.

Source:
    Kairouz, Liu and Steinke (2021), arXiv:2102.06387, for rotation, conditional rounding and its bound.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.core.types import Vector
from sordino.privacy.noise import Floats, Integers, NoiseSource, Words

LEAST_BITS, MOST_BITS = 4, 40
DEVIATIONS = 4.0
"""How many standard deviations of a coordinate of the sum fit into half the range."""
BETA = math.exp(-0.5)
_ATTEMPTS = 1000


@dataclass(frozen=True)
class Crowd:
    """Who sends to a sum.

    Args:
        parties: How many send a share, if nobody is lost.
        honest: How many of their shares carry the planned noise; all, if not given.
        units: How many clipped vectors are summed; one per party, if not given.
    """

    parties: int
    honest: int | None = None
    units: float | None = None

    @property
    def surplus(self) -> float:
        """Variance of the noise over what is planned, if nobody is lost and all are honest."""
        return self.parties / (self.honest or self.parties)

    @property
    def vectors(self) -> float:
        """How many clipped vectors are summed."""
        return self.parties if self.units is None else self.units


@dataclass(frozen=True)
class Encoding:
    """How all parties of a sum turn vectors into whole numbers. Public.

    Args:
        bits: Numbers are taken modulo 2^bits, 4 to 40.
        clip: The L2 bound that a unit's vector, or a unit's move of a party's sum, keeps; > 0.
        size: Coordinates of a vector, d.
        scale: Whole steps per unit of length, 1/γ; `fitting` chooses it.
        alone: A party encodes one unit's own vector: rounded at random until it is short. Otherwise a party encodes a
            sum over many units, which is rounded to the nearest, at a looser bound.
        beta: Chance that an attempt at rounding is thrown away, at most, in (0, 1): smaller is a looser bound.
        seed: Names the round's signs, e.g. by its transaction; see `at`.

    Raises:
        ConfigError: A value out of its range.

    >>> encoding = Encoding(bits=16, clip=1.0, size=3, scale=100.0)
    >>> encoding.length, [round(bound, 1) for bound in encoding.bound()]
    (4, [100.5, 201.0])
    """

    bits: int
    clip: float
    size: int
    scale: float
    alone: bool = True
    beta: float = BETA
    seed: str = ""

    def __post_init__(self) -> None:
        checks.count("encoding", size=self.size)
        checks.positive("encoding", clip=self.clip, scale=self.scale)
        checks.fraction("encoding", beta=self.beta)
        if not LEAST_BITS <= self.bits <= MOST_BITS:
            raise ConfigError.about("encoding", f"must lie between {LEAST_BITS} and {MOST_BITS}", bits=self.bits)

    @classmethod
    def fitting(
        cls,
        bits: int,
        clip: float,
        size: int,
        crowd: Crowd,
        *,
        noise_multiplier: float,
        alone: bool = True,
        beta: float = BETA,
    ) -> Self:
        """The encoding with the largest scale at which four standard deviations of the sum fit.

        Args:
            bits: As in the class, like clip, size, alone and beta.
            clip: The L2 bound.
            size: Coordinates of a vector.
            crowd: Who sends.
            noise_multiplier: Noise of the honest shares over the bound.
            alone: Whether a party encodes one unit's vector.
            beta: Chance to round again.

        Raises:
            ConfigError: The noise alone does not fit into so few bits.
        """
        room = 2.0 ** (bits - 1)
        low, high = 0.0, room / clip
        for _ in range(60):
            middle = (low + high) / 2
            fits = DEVIATIONS * cls(bits, clip, size, middle, alone, beta).std(noise_multiplier, crowd) <= room
            low, high = (middle, high) if fits else (low, middle)
        if low * clip < 1:
            raise ConfigError.about("encoding", "are too few for the noise and the coordinates", "add some", bits=bits)
        return cls(bits, clip, size, low, alone, beta)

    def std(self, noise_multiplier: float, crowd: Crowd) -> float:
        """Standard deviation of a coordinate of the sum in steps, at most, over signs, rounding and noise.

        Vectors may all be alike: then they add up to as many clips, of which the rotation gives each coordinate its
        share. With nobody lost there is more noise than planned.
        """
        signal = (self.scale * self.clip * crowd.vectors) ** 2 / self.length
        noise = (noise_multiplier * self.bound()[0]) ** 2 * crowd.surplus
        return math.sqrt(signal + crowd.parties / 4 + noise)

    def overflow(self, noise_multiplier: float, crowd: Crowd) -> float:
        """The chance that a coordinate of the sum leaves the range and comes back at the other end.

        That of a normal law with `std`, which fits many coordinates; an overflow spoils the result, never the privacy.
        """
        return math.erfc(2.0 ** (self.bits - 1) / self.std(noise_multiplier, crowd) / math.sqrt(2))

    @property
    def length(self) -> int:
        """How many whole numbers a vector becomes: the next power of two."""
        return 1 << (self.size - 1).bit_length()

    def at(self, seed: str) -> Self:
        """The same with a round's signs."""
        return replace(self, seed=seed)

    def bound(self) -> tuple[float, float]:
        """How far one unit moves the whole numbers by joining, in L2 and L1.

        Guarantee:
            It holds for every outcome of the rounding. The L1 bound holds for whole numbers only.
        """
        reach, root = self.scale * self.clip, math.sqrt(self.length)
        # Both rounded: a coordinate moves by less than one step more than it would.
        l2 = (reach + root) * (1 + 1e-9)
        if self.alone:
            spread = math.sqrt(2 * math.log(1 / self.beta)) * (reach + root / 2)
            l2 = min(l2, math.sqrt(reach**2 + self.length / 4 + spread))
        return l2, l2 * min(root, l2)

    def encode(self, vector: Floats, source: NoiseSource) -> Integers:
        """Whole numbers of one party's vector, not yet modulo anything.

        Args:
            vector: Shape (size,), finite.
            source: Coins for the rounding.

        Returns:
            Shape (length,), int64.

        Raises:
            PrivacyError: It is not within the clip, although it is said to be a unit's own.
        """
        if vector.shape != (self.size,):
            raise EngineError.about("encoding", f"must have {self.size} coordinates", shape=vector.shape)
        padded = np.zeros(self.length)
        padded[: self.size] = vector
        padded *= self._signs()
        rotated = hadamard(padded)
        rotated *= self.scale
        if not self.alone:
            np.rint(rotated, out=rotated)
            # Sums of very many units: modulo here, exactly, before they leave the range of integers.
            return np.asarray(np.fmod(rotated, 2.0**self.bits), dtype=np.int64)
        below = np.floor(rotated)
        rest, longest = rotated - below, self.bound()[0] ** 2
        for _ in range(_ATTEMPTS):
            rounded = below + (source.uniform(self.length) < rest)
            if rounded @ rounded <= longest:
                return rounded.astype(np.int64)
        raise PrivacyError.about("encoding", "is longer than the clip", "clip each unit first", clip=self.clip)

    def wrapped(self, whole: Integers) -> Words:
        """Modulo 2^bits, as uint64."""
        return whole.astype(np.uint64) & np.uint64(2**self.bits - 1)

    def decode(self, total: Words) -> Vector:
        """The sum of vectors, from the sum of whole numbers modulo 2^bits.

        Args:
            total: Shape (length,).

        Returns:
            Shape (size,), float32.
        """
        if total.shape != (self.length,):
            raise EngineError.about("encoding", f"must have {self.length} whole numbers", shape=total.shape)
        half = 2 ** (self.bits - 1)
        centred = ((total + np.uint64(half)) & np.uint64(2**self.bits - 1)).astype(np.int64) - half
        rotated = hadamard(centred / self.scale)
        rotated *= self._signs()
        return rotated[: self.size].astype(np.float32)

    def _signs(self) -> Floats:
        """Public signs, the same on every machine."""
        drawn = hashlib.shake_256(f"signs/{self.seed}".encode()).digest((self.length + 7) // 8)
        bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8))[: self.length]
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)


def hadamard(vector: NDArray[np.float64]) -> Floats:
    """The orthonormal Walsh-Hadamard transform, its own inverse, in place. The length is a power of two.

    >>> hadamard(np.array([3.0, 1.0, 0.0, 0.0]))
    array([2., 1., 2., 1.])
    """
    half = 1
    while half < vector.size:
        left, right = vector.reshape(-1, 2, half).swapaxes(0, 1)
        left += right
        right *= -2.0
        right += left
        half *= 2
    vector *= vector.size**-0.5
    return np.asarray(vector)
