"""Accounts: reserve, draw, commit, publish. SQLite on a local disk; imports no accountant until something is priced."""

from sordino.ledger.account import Account, Balance
from sordino.ledger.claim import Claim
from sordino.ledger.history import Entry
from sordino.ledger.ledger import Ledger, transaction
from sordino.ledger.reading import Charge
from sordino.ledger.verify import Report, verify

__all__ = ["Account", "Balance", "Charge", "Claim", "Entry", "Ledger", "Report", "transaction", "verify"]
