"""A run's guarantee from its claims alone."""

from __future__ import annotations

from sordino.core.types import Unit
from sordino.experiment.groups import accounts_per_person
from sordino.experiment.plan import Plan
from sordino.ledger import Claim
from sordino.privacy import events
from sordino.privacy.silos import federation_epsilon


def claimed_epsilon(plan: Plan, claims: tuple[Claim, ...]) -> float:
    """What one person risks, from the claims alone: composed over as many silos as a person can be in."""
    if plan.experiment.privacy.unit is Unit.CLIENT:
        return max(claim.epsilon for claim in claims)
    charged = {c.account: [(events.from_key(key), count) for key, count in c.planned] for c in claims}
    at_most = accounts_per_person(plan.experiment, len(plan.clients))
    return federation_epsilon(charged, plan.delta, adjacency=plan.adjacency, silos_per_person=at_most)
