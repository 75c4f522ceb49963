"""A run that a silo takes part in: what a round is, and charges, worked out from the plan and not read from letters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.core.errors import PrivacyError
from sordino.core.types import RoundPlan
from sordino.experiment import accounts as paying
from sordino.experiment.settings import Setting, Setup
from sordino.ledger.grants import Request


@dataclass(frozen=True)
class Joined:
    """A run that the silo takes part in.

    Args:
        setup: Its fixed parts, with the silo's own records and the loaded model.
        setting: How it releases.
        client: The silo's position.
        fence: The coordinator's.
    """

    setup: Setup
    setting: Setting
    client: int
    fence: int

    @property
    def run(self) -> str:
        """Its name in ledgers."""
        return self.setup.plan.run

    def txid(self, number: int) -> str:
        """The name of a round's charge."""
        return f"{self.run}/{number}"

    def planned(self, number: int) -> int:
        """The number, if the plan has such a round.

        Raises:
            PrivacyError: It has none.
        """
        rounds = self.setup.experiment.count
        if not 0 <= number < rounds:
            raise PrivacyError.about("round", f"is not one of the plan's {rounds}", number=number)
        return number

    def round(self, number: int) -> RoundPlan:
        """What is announced for a round: worked out from the plan."""
        setup = self.setup
        expected = paying.sampler_of(setup.experiment).expected(len(setup.population))
        return RoundPlan(number, setup.experiment.count, setup.part(number).layout.groups, expected)

    def request(self, number: int) -> Request:
        """What a round charges here: worked out from the plan, not read from a letter."""
        lines = self.setting.lines(np.array([self.client]))
        return Request(self.txid(number), self.run, number, self.setup.plan.digest, self.fence, tuple(lines))
