"""Sums over public groups: each group keeps its own bound, and pays for the noise that it gets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from tiny_door import TinyGaussian, door, peek

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.privacy import events
from sordino.privacy.doors import GroupDoor
from sordino.privacy.kernel import GRID_BITS, Private
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

Z = 3.0


def clipped(norm, rows=2, dimension=2):
    """A sum of records, each clipped to `norm`."""
    return Private(np.ones((rows, dimension)), Unit.RECORD).clip(l2=norm)


def two_groups(strict=0.5, dimension=2):
    """Records that allow much, clipped to 1, and records that allow little, clipped to less."""
    return (
        clipped(1.0, dimension=dimension)
        .of_group("open")
        .merge(clipped(strict, dimension=dimension).of_group("strict"))
    )


def exit_of(multipliers, rates=None, *, noise=Z, charged=None):
    """A door whose groups pay for noise of these multipliers over their own bounds."""
    rates = rates or dict.fromkeys(multipliers, 0.1)
    charges = {g: (f"silo/{g}", events.poisson(rates[g], events.gaussian(z))) for g, z in multipliers.items()}
    lines = [
        Line(account, Unit.RECORD, events.key(event), 1)
        for group, (account, event) in charges.items()
        if charged is None or group in charged
    ]
    return GroupDoor(TinyGaussian(noise), charges, mint_reservation("t", lines, test=True), SeededNoise(0))


def test_each_group_keeps_its_bound():
    """
    The sum moves by the largest; a group by its own; scaling scales all; two sums of a group have the larger.
    """
    total = two_groups().merge(clipped(0.7).of_group("strict")).scaled(2.0)

    assert (total.l2, dict(total.groups)) == (2.0, {"open": 2.0, "strict": 1.4})
    assert peek(two_groups()) == pytest.approx(peek(clipped(1.0)) + peek(clipped(0.5)))


def test_noise_is_over_the_largest_bound():
    """
    z = 3 over 1: the strict group, clipped to a half, has six.
    """
    total = two_groups(dimension=20_000)
    released = exit_of({"open": Z, "strict": 2 * Z})(total)

    assert (released - peek(total)).std() == pytest.approx(Z, rel=0.03)


def test_groups_may_be_sampled_at_their_own_rates():
    """
    Same bound and noise, different events: one permit for both.
    """
    door_ = exit_of({"open": Z, "strict": Z}, {"open": 0.2, "strict": 0.05})

    assert door_(two_groups(strict=1.0)).shape == (2,)
    with pytest.raises(PrivacyError, match="another release"):
        door_(two_groups(strict=1.0))


REFUSED = {
    "a strict group clipped like the others": (two_groups(strict=1.0), exit_of({"open": Z, "strict": 2 * Z})),
    "less noise than charged": (two_groups(), exit_of({"open": Z, "strict": 2 * Z}, noise=Z * 0.99)),
    "shares that do not fit the clips": (two_groups(strict=0.51), exit_of({"open": Z, "strict": 2 * Z})),
    "a group that nobody pays for": (two_groups(), exit_of({"open": Z})),
    "a payer whose group is not there": (clipped(1.0).of_group("open"), exit_of({"open": Z, "strict": 2 * Z})),
    "a sum that says nothing of groups": (clipped(1.0), exit_of({"open": Z})),
    "a group that was not charged": (two_groups(), exit_of({"open": Z, "strict": 2 * Z}, charged=("open",))),
    "groups at an ordinary door": (two_groups(), door(Z)),
    "persons' records": (
        clipped(1.0).per_person(np.array([1, 1]), at_most=2),
        exit_of({"open": Z}),
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_refused(fault):
    """
    Each twin releases more than some group has paid for.
    """
    total, door_ = REFUSED[fault]

    with pytest.raises(PrivacyError):
        door_(total)


def test_sums_of_groups_and_others_do_not_mix():
    """
    What is of no group has no bound among theirs.
    """
    for join in (
        lambda: two_groups().merge(clipped(1.0)),
        lambda: clipped(1.0).merge(two_groups()),
        lambda: two_groups().of_group("all"),
        lambda: two_groups().beside(two_groups()),
        lambda: two_groups().per_person(np.array([1, 2, 3, 4]), at_most=1),
    ):
        with pytest.raises(PrivacyError):
            join()


@dataclass(frozen=True)
class Seen(TinyGaussian):
    """A mechanism that remembers the bound it was asked to cover."""

    bounds: list = field(default_factory=list)

    def scale(self, l2, l1):
        self.bounds.append(l2)
        return super().scale(l2, l1)


def test_rounding_is_covered_for_the_smallest_bound():
    """
    A grid step moves everybody alike, so the noise must cover it for a group that is clipped to a tenth: ten times.
    """
    seen = Seen(Z)
    charges = {"strict": ("silo/strict", events.gaussian(10 * Z)), "open": ("silo/open", events.gaussian(Z))}
    lines = [Line(account, Unit.RECORD, events.key(e), 1) for account, e in charges.values()]
    GroupDoor(seen, charges, mint_reservation("t", lines, test=True), SeededNoise(0))(
        two_groups(strict=0.1, dimension=4)
    )

    plain, covered = seen.bounds
    grid = 2.0 ** (math.floor(math.log2(Z)) - GRID_BITS)
    assert plain == 1.0
    assert covered - 1.0 == pytest.approx(10 * grid * math.sqrt(4), rel=1e-3)
