"""A run that a silo takes part in: what a round is, and charges, worked out from the plan and not read from letters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.core.errors import PrivacyError
from sordino.core.types import NoiseAt, RoundPlan
from sordino.experiment import accounts as paying
from sordino.experiment import asynchrony, released_metrics
from sordino.experiment.settings import Setting, Setup
from sordino.federation.post import Field
from sordino.ledger.grants import Request


@dataclass(frozen=True)
class Joined:
    """A run that the silo takes part in.

    Args:
        setup: Its fixed parts, with the silo's own records and the loaded model.
        setting: How it releases.
        client: The silo's position.
        fence: The coordinator's.
        by: Name of the coordinator's key; None where letters are not signed.
        clip: The largest clip that the silo's rules allow; None: any.
    """

    setup: Setup
    setting: Setting
    client: int
    fence: int
    by: str | None = None
    clip: float | None = None

    @property
    def run(self) -> str:
        """Its name in ledgers."""
        return self.setup.plan.run

    @property
    def figures(self) -> int | None:
        """The number that the release of held-out figures has in ledgers, after the rounds; None if none is planned."""
        experiment = self.setup.experiment
        return None if experiment.evaluation.release is None else experiment.count

    @property
    def noised(self) -> bool:
        """Whether the silo's updates carry noise of its own."""
        return self.setup.experiment.privacy.noise_at is NoiseAt.SILO

    def txid(self, number: int) -> str:
        """The name of a round's charge, or of the figures'."""
        if number == self.figures:
            return released_metrics.name_of(self.run)
        plan = self.setup.plan
        return asynchrony.name_of(plan.experiment, self.run, plan.clients[self.client], number)

    def planned(self, number: int) -> int:
        """The number, if the plan has such a round, and the silo a part in it.

        Raises:
            PrivacyError: It has none.
        """
        rounds = self.setup.experiment.count
        if not 0 <= number < rounds:
            raise PrivacyError.about("round", f"is not one of the plan's {rounds}", number=number)
        self.started(number)
        return number

    def charged(self, number: int) -> int:
        """The number, if the plan charges something under it: a round, or the figures after them.

        Raises:
            PrivacyError: It does not.
        """
        return number if number == self.figures else self.planned(number)

    def started(self, number: int) -> int:
        """The round whose model this round's update starts from: an earlier one where rounds are asynchronous.

        Raises:
            PrivacyError: The silo has no part in this round, by the plan's schedule.
        """
        return asynchrony.started(self.setup.experiment, len(self.setup.population), self.client, number)

    def round(self, number: int) -> RoundPlan:
        """What is announced for a round: worked out from the plan."""
        setup = self.setup
        expected = paying.sampler_of(setup.experiment).expected(len(setup.population))
        return RoundPlan(number, setup.experiment.count, setup.part(number).layout.groups, expected)

    def answering(self, number: int) -> dict[str, Field]:
        """What an answer says of what it answers: a release of this plan and number."""
        return {"plan": self.setup.plan.digest, "round": number}

    def request(self, number: int) -> Request:
        """What a round charges here, or the figures: worked out from the plan, not read from a letter."""
        setup, txid = self.setup, self.txid(number)
        if number == self.figures:
            lines, purpose = released_metrics.lines(setup, self.client), "metric"
        else:
            lines, purpose = self.setting.lines(np.array([self.client])), "train"
        return Request(txid, self.run, number, setup.plan.digest, self.fence, tuple(lines), purpose)
