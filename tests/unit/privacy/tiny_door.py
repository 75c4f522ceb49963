"""A real, minimal mechanism and a charged door, for tests of the kernel without other rooms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.core.types import Unit
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.kernel import BoundedSum
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation


@dataclass(frozen=True)
class TinyGaussian:
    """Gaussian noise of `noise_multiplier` times the tracked L2 bound."""

    noise_multiplier: float

    def event(self):
        return events.gaussian(self.noise_multiplier)

    def scale(self, l2, l1):
        return self.noise_multiplier * l2

    def draw(self, source, permit, scale, size):
        return source.normal(permit, scale, size)


def reserved(event, *, count=1, unit=Unit.RECORD, test=True, account="a", txid="t"):
    """What a ledger would mint after charging `count` releases."""
    return mint_reservation(txid, [Line(account, unit, events.key(event), count)], test=test)


def door(noise_multiplier=1.0, *, count=1, unit=Unit.RECORD, test=True, source=None, txid="t"):
    """A door that may be used `count` times."""
    mechanism = TinyGaussian(noise_multiplier)
    reservation = reserved(mechanism.event(), count=count, unit=unit, test=test, txid=txid)
    return Door(mechanism, mechanism.event(), ("a",), reservation, source or SeededNoise(0))


def peek(total: BoundedSum) -> np.ndarray:
    """The private sum itself. Only a test may look."""
    return total._BoundedSum__vector
