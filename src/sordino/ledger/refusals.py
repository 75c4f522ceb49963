"""Refusals are written down, so that reports can count them: public numbers only, each once, never in the way."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select

from sordino.core.errors import BudgetRefused, SordinoError
from sordino.ledger import history, schema
from sordino.ledger.stores import Store

event = schema.event


@dataclass(frozen=True)
class Refusal:
    """Why an account cannot pay.

    Args:
        error: What the caller is told.
        account: Which account.
        lack: What is missing: budget, or releases that the plan allows; `state` where the account is closed.
        needs: How much was asked for, if that is a number.
        left: How much is left.
    """

    error: BudgetRefused
    account: str
    lack: Literal["epsilon", "delta", "units", "releases", "plan", "state"]
    needs: float | None = None
    left: float | None = None


def closed(name: str, state: str) -> Refusal:
    """The refusal of an account that its officers have closed."""
    error = BudgetRefused.about(f"account {name!r}", f"is {state}", "ask those who may thaw it, or leave it out")
    return Refusal(error, name, "state")


def note(store: Store, run: str, asked: Literal["admit", "reserve"], refusal: Refusal) -> None:
    """Write a refusal in a transaction of its own. The same one is written once, however often it is asked for.

    Whoever was refused is told so even if this fails: a full disk must not turn a refusal into another error.
    """
    body = {
        "run": run,
        "asked": asked,
        "account": refusal.account,
        "lack": refusal.lack,
        "needs": refusal.needs,
        "left": refusal.left,
    }
    txid = f"refused/{hashlib.sha256(history.canonical(body).encode()).hexdigest()}"
    with contextlib.suppress(SordinoError), store.write() as db:
        if db.execute(select(event.c.seq).where(event.c.txid == txid)).first() is None:
            history.append(db, "refused", body, txid)
