"""A ledger's accounts and claims as JSON-able values, for `sordino ledger show`."""

from __future__ import annotations

from typing import Any

from sordino.ledger import Account, Claim, Ledger
from sordino.ledger.forecast import Outlook
from sordino.ledger.stores import Place


def statement(place: Place) -> dict[str, Any]:
    """Balances of every account with what is to come, and the claims of every run."""
    with Ledger(place, read_only=True) as ledger:
        outlooks = {outlook.account: outlook for outlook in ledger.outlooks()}
        return {
            "accounts": [_balance(ledger, account, outlooks[account.name]) for account in ledger.accounts()],
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


def account_entry(ledger: Ledger, name: str) -> dict[str, Any]:
    """One account as `statement` lists it."""
    outlook = next(found for found in ledger.outlooks() if found.account == name)
    return _balance(ledger, next(found for found in ledger.accounts() if found.name == name), outlook)


def _balance(ledger: Ledger, account: Account, outlook: Outlook) -> dict[str, Any]:
    balance = ledger.balance(account.name)
    return {
        "name": account.name,
        "unit": str(account.unit),
        "adjacency": str(account.adjacency),
        "test": account.test,
        "scope": account.scope,
        "parent": account.parent,
        "overlap": account.overlap,
        "tier": account.tier,
        "currency": account.currency,
        "order": account.order,
        "state": balance.state,
        "epsilon_limit": balance.epsilon_limit,
        "epsilon_used": balance.epsilon_used,
        "epsilon_left": balance.epsilon_left,
        "delta_limit": balance.delta_limit,
        "delta_used": balance.delta_used,
        "held": balance.held,
        "committed": balance.committed,
        "forfeited": balance.forfeited,
        "aborted": balance.aborted,
        "present_plan": outlook.run,
        "runs_left": outlook.runs,
        "held_back_by": outlook.by,
        "binding": outlook.binding,
        "kept_until": None if outlook.kept_until is None else outlook.kept_until.isoformat(),
    }
