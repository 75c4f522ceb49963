"""Private values and sums whose bound is known. With `doors.py`, the only way from private to public.

    Private ──clip──► BoundedSum ──┐                     (merge, scaled: the bound is tracked, never typed)
    engine ──certify─► BoundedSum ─┴── Door(total) ──► Vector   noise std = noise_multiplier × tracked bound

A `Private` or `BoundedSum` has no arithmetic, no `__array__`, and shows no values. The two files are short enough to
be read in one sitting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import PrivacyError
from sordino.core.types import Unit, Vector
from sordino.privacy.noise import NoiseSource, Words, apart
from sordino.privacy.permits import Permit, SharePermit

if TYPE_CHECKING:
    from sordino.privacy.doors import Mechanism
    from sordino.privacy.shares import Encoder, SharedMechanism

GRID_BITS = 30
"""Sums and noise are rounded to a grid 2^-30 of the noise: no low bits of a float leak (Mironov 2012)."""

BLOCK = 2**14
"""Coordinates rounded and added at once."""


class _Sealed:
    """Refuses every implicit way of looking at or computing with a private value."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PrivacyError.about(
            type(self).__name__, "is private: no arithmetic, indexing or conversion", "clip it and release it by a door"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __neg__ = __delattr__ = __matmul__ = __rmatmul__ = __getitem__ = __len__ = __iter__ = __array__ = __float__ = (
        _refuse
    )
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __reduce__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):  # set once: a bound that could be overwritten would be a bound typed by hand
            self._refuse()
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: private>"


class Private(_Sealed):
    """One vector per protected unit. Shape (units, d). Non-finite units become zero when clipped.

    Args:
        rows: The values, copied.
        unit: Whose presence one row stands for.
    """

    __slots__ = ("__rows", "unit")

    def __init__(self, rows: NDArray[Any], unit: Unit) -> None:
        values = np.array(rows, dtype=np.float64, ndmin=2)
        if values.ndim != 2:
            raise PrivacyError.about(
                "Private", "must be flat, one row per unit", "flatten each row", shape=values.shape
            )
        self.__rows = values
        self.unit = Unit(unit)

    def clip(self, *, l2: float | None = None, l1: float | None = None) -> BoundedSum:
        """The sum of the rows, each scaled down to norm at most `l2` (or `l1`).

        Guarantee:
            Adding or removing one unit moves the result by at most the bound, non-finite rows included:
            they count as zero, with no other effect on the control flow.
        """
        if (l2 is None) == (l1 is None):
            raise PrivacyError.about("clip", "takes exactly one of l2 and l1", l2=l2, l1=l1)
        order, bound = (2, l2) if l2 is not None else (1, cast("float", l1))
        checks.positive("clip", bound=bound)
        rows = np.where(np.isfinite(self.__rows).all(axis=1, keepdims=True), self.__rows, 0.0)
        # By the largest entry first, so that neither a norm nor a ratio overflows, whatever the row and the bound.
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        shape = rows / np.where(largest > 0, largest, 1.0)
        norms = np.maximum(np.linalg.norm(shape, ord=order, axis=1, keepdims=True), 1.0)
        total = (shape * np.minimum(largest, bound / norms)).sum(axis=0)
        return certify(total, unit=self.unit, l2=l2 if l2 is not None else l1, l1=l1, alone=len(rows) == 1)


class BoundedSum(_Sealed):
    """A private sum that one unit can move by at most `l2` (and `l1`, where known). Made by `certify` or `clip`.

    `records` is in how many equal shares a unit moves it, each of which may be sampled on its own. `groups` is what a
    unit of each public group moves it by in L2, where it is a sum over groups. `alone` says that it is one unit's own,
    so that its length is within the bound as well.
    """

    __slots__ = ("__vector", "alone", "groups", "l1", "l2", "records", "unit")

    def __init__(
        self,
        proof: object,
        vector: NDArray[np.float64],
        unit: Unit,
        l2: float,
        l1: float | None,
        records: int = 1,
        groups: Mapping[str, float] = MappingProxyType({}),
        *,
        alone: bool = False,
    ) -> None:
        if proof is not _PROOF:
            raise PrivacyError.about("sensitivity", "cannot be typed by hand", "clip, and let the bound be derived")
        self.__vector, self.unit, self.l2, self.l1, self.records = vector, unit, l2, l1, records
        self.groups, self.alone = MappingProxyType(dict(groups)), alone

    def scaled(self, factor: float) -> BoundedSum:
        """The sum times a public factor > 0; its bound scales with it."""
        checks.positive("scaled", factor=factor)
        l1 = None if self.l1 is None else self.l1 * factor
        groups = {name: bound * factor for name, bound in self.groups.items()}
        vector, l2 = self.__vector * factor, self.l2 * factor
        return BoundedSum(_PROOF, vector, self.unit, l2, l1, self.records, groups, alone=self.alone)

    def merge(self, other: BoundedSum) -> BoundedSum:
        """The sum of two sums over disjoint units: one unit moves only its own, so the larger bound holds."""
        if (self.unit, self.records, bool(self.groups)) != (other.unit, other.records, bool(other.groups)):
            raise PrivacyError.about("merge", "joins different units", unit=self.unit, other=other.unit)
        l1 = None if self.l1 is None or other.l1 is None else max(self.l1, other.l1)
        groups = {
            name: max(part.groups.get(name, 0.0) for part in (self, other)) for name in self.groups | other.groups
        }
        l2 = max(self.l2, other.l2)
        return BoundedSum(_PROOF, self.__vector + other.__vector, self.unit, l2, l1, self.records, groups)

    def of_group(self, name: str) -> BoundedSum:
        """The same sum, said to be over units of one public group: merged with others, each keeps its own bound.

        Raises:
            PrivacyError: It is of a group already.
        """
        if self.groups:
            raise PrivacyError.about("of_group", "is of another group already", groups=sorted(self.groups))
        return BoundedSum(_PROOF, self.__vector, self.unit, self.l2, self.l1, self.records, {name: self.l2})

    def beside(self, *others: BoundedSum) -> BoundedSum:
        """The sums of disjoint units side by side: one unit moves only its own part, so the largest bound holds.

        How many parts there are, and whose each is, must be public: neighbours replace a unit or zero it out.
        """
        parts = (self, *others)
        for part in parts:
            if (part.unit, part.records) != (self.unit, self.records) or part.groups:
                raise PrivacyError.about("beside", "joins different units", unit=self.unit, other=part.unit)
        l1s = [part.l1 for part in parts if part.l1 is not None]
        vector = np.concatenate([part.__vector for part in parts])  # noqa: SLF001 - of this class
        l1 = max(l1s) if len(l1s) == len(parts) else None
        return BoundedSum(_PROOF, vector, self.unit, max(part.l2 for part in parts), l1, self.records)

    def per_person(self, owners: NDArray[Any], *, at_most: int) -> BoundedSum:
        """The same sum of records, bounded for persons: one with K records moves it K times as far as a record.

        Args:
            owners: The person of every record that could have been sampled into the sum, not of those that were.
            at_most: The cap K that the owners keep.

        Raises:
            PrivacyError: Somebody owns more than `at_most` of the records, or the sum is not one of records.
        """
        checks.count("per_person", at_most=at_most)
        if self.unit is not Unit.RECORD or self.groups:
            raise PrivacyError.about("per_person", "is not a sum of records", "clip each record", unit=self.unit)
        if np.unique(owners, return_counts=True)[1].max(initial=0) > at_most:
            raise PrivacyError.about("per_person", "is exceeded by a person's records", "drop some", at_most=at_most)
        l1 = None if self.l1 is None else self.l1 * at_most
        return BoundedSum(_PROOF, self.__vector, Unit.USER, self.l2 * at_most, l1, at_most)

    def released_by(self, mechanism: Mechanism, permit: Permit, source: NoiseSource) -> Vector:
        """Sum plus noise on a common grid, as float32. Called by a `Door` only."""
        if permit.unit != self.unit:
            raise PrivacyError.about("release", "protects another unit than the account", unit=self.unit)
        d = self.__vector.size
        rough = mechanism.scale(self.l2, self.l1)
        grid = 2.0 ** (math.floor(math.log2(rough)) - GRID_BITS)
        # Rounding can move each coordinate of neighbouring sums apart by one more grid step: for a single record of
        # a person, or a unit of a group with a small bound, that is the larger share of what the noise is for.
        step = grid * self.records * self.l2 / min(self.groups.values(), default=self.l2)
        scale = mechanism.scale(self.l2 + step * math.sqrt(d), None if self.l1 is None else self.l1 + step * d)
        noise = mechanism.draw(source, permit, scale, d)
        return _on_grid(self.__vector, noise, grid)

    def shared_by(
        self, mechanism: SharedMechanism, encoding: Encoder, permit: SharePermit, source: NoiseSource, *, honest: int
    ) -> Words:
        """Whole numbers of the sum plus one share of the noise, modulo the encoding's. Called by `shares.py` only.

        All parties draw for one bound, the encoding's clip: the tracked bound must be within it.
        """
        if permit.unit != self.unit:
            raise PrivacyError.about("share", "protects another unit than the account", unit=self.unit)
        if self.groups or self.l2 > encoding.clip * (1 + 1e-9):
            raise PrivacyError.about("share", "may move further than the noise is for", l2=self.l2, clip=encoding.clip)
        if encoding.alone and not self.alone:
            raise PrivacyError.about("share", "is rounded as one unit's own, which it is not", "use alone = false")
        scale = mechanism.scale(*encoding.bound())
        noise = mechanism.share(source, permit, scale, encoding.length, honest=honest)
        whole = encoding.encode(self.__vector, apart(source, f"{permit.txid}/{permit.stream}"))
        return encoding.wrapped(whole + noise)


def _on_grid(exact: NDArray[np.float64], noise: NDArray[np.float64], grid: float) -> Vector:
    """Both rounded to whole numbers of steps, added, and only then turned into float32: a block in the cache at a time.

    A step is a power of two, so that dividing by it, and multiplying by what it goes into one, is exact.
    """
    released, per_unit = np.empty(exact.size, dtype=np.float32), 1.0 / grid
    for start in range(0, exact.size, BLOCK):
        block = slice(start, start + BLOCK)
        steps = exact[block] * per_unit
        np.rint(steps, out=steps)
        drawn = noise[block] * per_unit
        steps += np.rint(drawn, out=drawn)
        np.multiply(steps, grid, out=released[block], casting="same_kind")
    return released


_PROOF = object()


def certify(
    vector: NDArray[Any], *, unit: Unit, l2: float | None, l1: float | None = None, alone: bool = False
) -> BoundedSum:
    """A sum whose per-unit bound an engine or pipeline has just enforced.

    Only `local/clipping`, `federation/pipeline.py` and this file may call it (a lint test holds the list).

    Args:
        vector: Shape (d,), finite.
        unit: Whose presence moves the sum by at most the bound.
        l2: Bound on the L2 move under add/remove.
        l1: Bound on the L1 move, if known; then it bounds the L2 move too.
        alone: It is one unit's own: without the unit it would be zero.
    """
    bound = l2 if l2 is not None else l1
    checks.positive("certify", l2=cast("float", bound))
    total = np.array(vector, dtype=np.float64).ravel()
    if not np.isfinite(total).all():
        raise PrivacyError.about("certify", "is not finite, so it has no bound", "clip non-finite units to zero")
    return BoundedSum(_PROOF, total, Unit(unit), cast("float", bound), l1, alone=alone)


def total_of(sums: Iterable[BoundedSum]) -> BoundedSum:
    """The merged sum of a stream over disjoint units; memory does not grow with its length."""
    stream = iter(sums)
    result = next(stream, None)
    if result is None:
        raise PrivacyError.about("total", "has nothing to sum", "an empty cohort still sums a zero vector")
    for item in stream:
        result = result.merge(item)
    return result
