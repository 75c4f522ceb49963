"""The rates or clip shares at which every group of records spends its own budget, and the noise that goes with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sordino.experiment import config
from sordino.experiment.accounts import Account, releases
from sordino.experiment.config import Experiment
from sordino.experiment.pricing import Pricing
from sordino.privacy.individual import GroupBudget, clip_shares, sampling_rates


def found(pricing: Pricing, accounts: Sequence[Account]) -> tuple[Experiment, float]:
    """The experiment with every group's rate or share, and the noise multiplier over the largest clip.

    Raises:
        PrivacyError: No noise gives the batch that was asked for.
    """
    experiment = pricing.experiment
    budgets = _budgets(pricing, accounts)
    if experiment.local.individual == "sample":
        expected = experiment.local.rate * sum(budget.size for budget in budgets.values())
        rates, noise = sampling_rates(budgets, expected, pricing.delta, adjacency=pricing.adjacency)
        groups = {name: replace(experiment.groups[name], rate=rate) for name, rate in rates.items()}
    else:
        shares, noise = clip_shares(budgets, experiment.local.rate, pricing.delta, adjacency=pricing.adjacency)
        groups = {name: replace(experiment.groups[name], share=share) for name, share in shares.items()}
    return config.changed(experiment, groups=groups), noise


def _budgets(pricing: Pricing, accounts: Sequence[Account]) -> dict[str, GroupBudget]:
    """Per group, over all silos: the same rate and share everywhere, priced where most releases touch it."""
    experiment = pricing.experiment
    budgets: dict[str, GroupBudget] = {}
    for name, group in experiment.groups.items():
        mine = [account for account in accounts if account.group == name]
        steps = max(releases(experiment, account.client, pricing.clients, experiment.count) for account in mine)
        budgets[name] = GroupBudget(group.epsilon, sum(account.units for account in mine), max(1, steps))
    return budgets
