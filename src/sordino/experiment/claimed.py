"""A run's guarantee from its claims alone."""

from __future__ import annotations

from sordino.core.types import Unit
from sordino.experiment.groups import accounts_per_person
from sordino.experiment.plan import Plan
from sordino.ledger import Claim
from sordino.ledger.windows import Window
from sordino.privacy import events
from sordino.privacy.silos import federation_epsilon


def account_of(plan: Plan, payer: str) -> str:
    """For which account of the plan an account of the ledger paid: itself, or the silo whose block it is."""
    names, window = {account.name for account in plan.accounts}, Window.parse(payer)
    return window.silo if payer not in names and window is not None and window.silo in names else payer


def claimed_epsilon(plan: Plan, claims: tuple[Claim, ...]) -> float:
    """What one person risks, from the claims alone: composed over as many silos as a person can be in."""
    if plan.experiment.privacy.unit is Unit.CLIENT:
        return max(claim.epsilon for claim in claims)
    charged = {account_of(plan, c.account): [(events.from_key(key), count) for key, count in c.planned] for c in claims}
    at_most = accounts_per_person(plan.experiment, len(plan.clients))
    return federation_epsilon(charged, plan.delta, adjacency=plan.adjacency, silos_per_person=at_most)
