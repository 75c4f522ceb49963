"""Our doors, opened by a real ledger in a temporary folder, with noise that repeats or noise as in production."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger
from sordino.privacy import discrete, events
from sordino.privacy.doors import Door, Mechanism
from sordino.privacy.noise import Floats, Integers, NoiseSource, SystemNoise, Words
from sordino.privacy.permits import Line, Permit, Reservation, SharePermit

if TYPE_CHECKING:
    from sordino.privacy.events import Event

BLOCK = 32
"""Releases that are charged at once."""


class Repeating:
    """Noise that repeats whoever asks: permits are used up, their identity is not looked at. For comparisons only."""

    test = True

    def __init__(self, seed: int) -> None:
        self._rng, self._coins = stream(seed, "conformance noise"), stream(seed, "conformance coins")

    def normal(self, permit: Permit, std: float, size: int) -> Floats:
        permit.use()
        return self._rng.normal(0.0, std, size)

    def laplace(self, permit: Permit, scale: float, size: int) -> Floats:
        permit.use()
        return self._rng.laplace(0.0, scale, size)

    def skellam(self, permit: Permit | SharePermit, variance: float, size: int) -> Integers:
        permit.use()
        return discrete.skellam(self, variance, size)

    def discrete_gaussian(self, permit: Permit | SharePermit, sigma: float, size: int) -> Integers:
        permit.use()
        return discrete.discrete_gaussian(self, sigma, size)

    def fill(self, words: Words) -> Words:
        """64 random bits for each, in place."""
        words[:] = self._rng.integers(2**64, size=words.size, dtype=np.uint64)
        return words

    def uniform(self, size: int) -> Floats:
        return self._coins.random(size)


@dataclass
class Exits:
    """Charges blocks of releases and hands out doors over them.

    The system's noise source is one for all doors, as in a run.
    """

    _system: SystemNoise = field(default_factory=SystemNoise)
    _number: itertools.count[int] = field(default_factory=itertools.count)
    _ledger: Ledger | None = None
    _blocks: dict[tuple[str, Unit, bool], tuple[Reservation, str, int]] = field(default_factory=dict)

    def source(self, seed: int | None) -> NoiseSource:
        """Noise that repeats, or the production source."""
        return self._system if seed is None else Repeating(seed)

    def door(
        self, mechanism: Mechanism, unit: Unit, source: NoiseSource, *, charged: Event | None = None, releases: int = 1
    ) -> Door:
        """A door for so many releases, each charged as the mechanism's event or as `charged`."""
        event = charged or mechanism.event()
        key = (events.key(event), unit, source.test)
        reservation, account, left = self._blocks.get(key, (None, "", 0))
        if reservation is None or left < releases:
            left = max(BLOCK, releases)
            reservation, account = self._charge(event, unit, left, test=source.test)
        self._blocks[key] = (reservation, account, left - releases)
        return Door(mechanism, event, (account,), reservation, source)

    def _charge(self, event: Event, unit: Unit, count: int, *, test: bool) -> tuple[Reservation, str]:
        if self._ledger is None:
            folder = tempfile.mkdtemp(prefix="conformance-")
            self._ledger = Ledger(Path(folder) / "ledger.db")
            weakref.finalize(self, _gone, self._ledger, folder)
            self._ledger.open_run("conformance")
        name = f"a{next(self._number)}"
        self._ledger.open_account(
            Account(name, unit, Adjacency.ADD_REMOVE, 2e6, 1e-5, currency="rdp", order=2.0, test=test)
        )
        lines = [Line(name, unit, events.key(event), count)]
        return self._ledger.reserve(name, "conformance", None, "train", lines), name


def _gone(ledger: Ledger, folder: str) -> None:
    ledger.close()
    shutil.rmtree(folder, ignore_errors=True)
