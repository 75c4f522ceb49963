"""A ledger's accounts and claims as JSON-able values, for `sordino ledger show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sordino.ledger import Account, Claim, Ledger


def statement(file: Path) -> dict[str, Any]:
    """Balances of every account, and the claims of every run."""
    with Ledger(file, read_only=True) as ledger:
        return {
            "accounts": [_balance(ledger, account) for account in ledger.accounts()],
            "claims": [_claim(claim) for run in ledger.runs() for claim in ledger.claims(run)],
        }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "run": claim.run,
        "account": claim.account,
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": str(claim.unit),
        "adjacency": str(claim.adjacency),
        "noise_at": None if claim.noise_at is None else str(claim.noise_at),
        "view": claim.view,
        "accountant": claim.accountant,
        "complete": claim.complete,
        "spent_so_far": claim.spent_so_far,
        "test": claim.test,
        "plan": claim.plan,
        "events": [list(pair) for pair in claim.events],
        "ledger_sha256": claim.ledger_sha256,
    }


def _balance(ledger: Ledger, account: Account) -> dict[str, Any]:
    balance = ledger.balance(account.name)
    return {
        "name": account.name,
        "unit": str(account.unit),
        "adjacency": str(account.adjacency),
        "test": account.test,
        "epsilon_limit": balance.epsilon_limit,
        "epsilon_used": balance.epsilon_used,
        "epsilon_left": balance.epsilon_left,
        "delta_limit": balance.delta_limit,
        "delta_used": balance.delta_used,
        "held": balance.held,
        "committed": balance.committed,
        "forfeited": balance.forfeited,
    }
