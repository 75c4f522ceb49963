"""Our accounting: prices of plans, a ledger that is closed and opened again, and a live limit."""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sordino import __version__
from sordino.audit.conformance.protocol import Declared, Silent
from sordino.core.errors import BudgetRefused
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger
from sordino.privacy import accounting, events
from sordino.privacy.permits import Line


@dataclass(frozen=True)
class Books(Silent):
    """The ledger and its accountant."""

    name: str

    def claim(self) -> Declared:
        return Declared(by=f"Sordino {__version__}, ledger", noise_multiplier=None, clip=1.0, cohort=3)

    def price(self, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
        event = events.gaussian(noise_multiplier)
        if rate != 1:
            event = events.poisson(rate, event)
        return accounting.best_epsilon([(event, steps)], delta, adjacency=Adjacency.ADD_REMOVE).epsilon

    def restored(self, noise_multiplier: float, before: int, after: int, delta: float) -> float:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "ledger.db"
            for number, count in enumerate((before, after)):
                with Ledger(file) as ledger:
                    ledger.open_account(_account(1e6, delta))
                    ledger.open_run("r")
                    if count:
                        ledger.reserve(f"t{number}", "r", number, "train", [_line(noise_multiplier, count)])
            with Ledger(file, read_only=True) as ledger:
                return ledger.balance("a").epsilon_used

    def spent_by(self, folder: Path, noise_multiplier: float, releases: int, delta: float) -> float:
        with Ledger(folder / "ledger.db") as ledger:
            ledger.open_account(_account(1e6, delta))
            run = secrets.token_hex(4)
            ledger.open_run(run)
            ledger.reserve(f"{run}/0", run, 0, "train", [_line(noise_multiplier, releases)])
            return ledger.balance("a").epsilon_used

    def over_rounds(self, noise_multiplier: float, rate: float, rounds: int, steps: int, delta: float) -> float:
        line = Line("a", Unit.CLIENT, events.key(events.poisson(rate, events.gaussian(noise_multiplier))), steps)
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
            ledger.open_account(_account(1e6, delta))
            ledger.open_run("r")
            for number in range(rounds):
                ledger.reserve(f"t{number}", "r", number, "train", [line])
            return ledger.balance("a").epsilon_used

    def releases_within(self, noise_multiplier: float, epsilon: float, delta: float, most: int) -> int:
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
            ledger.open_account(_account(epsilon, delta))
            ledger.open_run("r")
            for count in range(most):
                try:
                    ledger.reserve(f"t{count}", "r", count, "train", [_line(noise_multiplier, 1)])
                except BudgetRefused:
                    return count
        return most


def _account(epsilon: float, delta: float) -> Account:
    return Account("a", Unit.CLIENT, Adjacency.ADD_REMOVE, epsilon, delta, currency="rdp", order=4.0)


def _line(noise_multiplier: float, count: int) -> Line:
    return Line("a", Unit.CLIENT, events.key(events.gaussian(noise_multiplier)), count)
