"""What the policy in force says of accounts that pay: their tier, and for how long a block's records are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger.windows import Window

if TYPE_CHECKING:
    from sordino.ledger.account import Account
    from sordino.ledger.policy import Policy

SEARCH = "RepeatAndSelectDpEvent"
"""The event of a search for settings, in its key."""


def now() -> datetime:
    """The time by which retention ends."""
    return datetime.now(UTC)


def bound(accounts: Iterable[Account]) -> bool:
    """Whether a policy may say something of one of these accounts beyond its limits."""
    return any(account.tier is not None or account.scope == "block" for account in accounts)


def check_plan(
    policy: Policy | None,
    account: Account,
    *,
    epsilon: float,
    delta: float,
    rounds: int | None,
    keys: Collection[str],
) -> None:
    """Return only if a plan stays within an account's tier.

    Args:
        policy: The one in force.
        account: Who pays.
        epsilon: What the plan costs it.
        delta: The plan's.
        rounds: How many the plan has.
        keys: Its events.

    Raises:
        PrivacyError: It does not, or the policy knows no such tier.
    """
    if account.tier is None:
        return
    where = f"account {account.name!r}"
    if policy is None or account.tier not in policy.tiers:
        raise PrivacyError.about(
            where, "is no tier of the policy in force", "install one that has it", tier=account.tier
        )
    if rounds is None:
        raise ConfigError.about(where, f"is of tier {account.tier}: say how many rounds the plan has", rounds=rounds)
    policy.tiers[account.tier].check(where, epsilon=epsilon, delta=delta, rounds=rounds, search=_searches(keys))


def check_release(policy: Policy | None, account: Account, *, number: int | None, keys: Collection[str]) -> None:
    """Return only if a release stays within the tier of an account that pays release by release; else as for a plan.

    Args:
        policy: The one in force.
        account: Who pays.
        number: The round, from 0; none for what belongs to none.
        keys: The release's events.
    """
    rounds = 1 if number is None else number + 1
    check_plan(policy, account, epsilon=0.0, delta=0.0, rounds=rounds, keys=keys)


def kept_until(policy: Policy | None, account: Account) -> datetime | None:
    """When the records of a block are read no more; none where its age ends nothing.

    A block of numbers, or of cohorts, has no age.
    """
    days = None if policy is None else policy.retention_days
    window = Window.parse(account.name) if account.scope == "block" and days is not None else None
    if window is None or days is None or not isinstance(window.end, datetime):
        return None
    try:
        return window.end + timedelta(days=days)
    except OverflowError:  # after the year 9999
        return None


def check_age(policy: Policy | None, account: Account, at: datetime) -> None:
    """Return only if the records of an account may still be read.

    Raises:
        PrivacyError: Its retention has ended.
    """
    end = kept_until(policy, account)
    if end is not None and at >= end:
        raise PrivacyError.about(
            f"account {account.name!r}", "is past the policy's retention_days", "retire it", until=end.isoformat()
        )


def _searches(keys: Collection[str]) -> bool:
    return any(SEARCH in key for key in keys)
