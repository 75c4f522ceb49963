"""What a run may show after each round: public and released numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sordino.experiment import accounts as paying
from sordino.experiment.plan import Plan
from sordino.privacy.accounting import epsilon
from sordino.privacy.relations import Accountant, plan_of, supports

QUICK: tuple[Accountant, ...] = ("gdp", "rdp")
"""Accountants that answer between two rounds, the exact one first."""


@dataclass(frozen=True)
class Progress:
    """What may be shown after a round: public and released numbers only."""

    round: int
    rounds: int
    spent: float
    limit: float


class Spent:
    """Epsilon so far of the account with the weakest guarantee: an upper bound that is cheap to show.

    Exact where no sampling is involved; otherwise by RDP, which is quick, and never above the plan's own epsilon,
    which is what the ledger charged at the start. At the end it is that epsilon.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._rounds = plan, plan.experiment.count
        if plan.private:
            events_ = plan.worst.events
            self._accountant: Accountant | None = next(
                (a for a in QUICK if supports(a, plan.adjacency, plan_of(events_))), None
            )

    def at(self, round_: int) -> Progress:
        """What may be shown after `round_` rounds."""
        plan = self._plan
        if not plan.private:
            return Progress(round_, self._rounds, math.inf, math.inf)
        limit = plan.worst.epsilon
        return Progress(round_, self._rounds, min(limit, self._price(round_)), limit)

    def _price(self, round_: int) -> float:
        plan, worst = self._plan, self._plan.worst
        charged, planned = (
            paying.releases(plan.experiment, worst.client, len(plan.clients), rounds)
            for rounds in (round_, plan.experiment.count)
        )
        if charged == 0:
            return 0.0
        if charged >= planned or self._accountant is None:
            return worst.epsilon
        event = paying.charged_event(plan.experiment, worst.noise_multiplier, len(plan.clients), worst.group)
        return epsilon([(event, charged)], plan.delta, adjacency=plan.adjacency, accountant=self._accountant)
