"""The heart table as a silo would declare it, and ledgers with an account over its people."""

from __future__ import annotations

from importlib import resources

from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger
from sordino.query import Declared, Session, Source, read

SEXES = ("Female", "Male", "Other")
PAINS = ("typical angina", "atypical angina", "non-anginal", "asymptomatic")
FILE = resources.files("sordino.data").joinpath("files/heart.csv")

DECLARED = Declared(
    name="patients",
    ranges={"age": (20, 90), "chol": (120, 360), "oldpeak": (-2, 4)},
    categories={"sex": SEXES, "cp": PAINS},
    person="id",
    missing="indicator",
    candidates={"age": 71},
)

TOML = f"""
[data.table]
path = '{FILE}'
label = "num"
user = "id"
ranges = {{ age = [20, 90], chol = [120, 360], oldpeak = [-2, 4] }}
categories = {{ sex = {list(SEXES)}, cp = {list(PAINS)} }}
classes = ["0", "1", "2", "3", "4"]
missing = "indicator"
[query]
name = "patients"
candidates = {{ age = 71 }}
"""

BY_SEX = "SELECT sex, COUNT(*), AVG(age) FROM patients GROUP BY sex"


def source(folder):
    file = folder / "patients.toml"
    file.write_text(TOML)
    return read(file)


def account(name="north", currency="pure", epsilon=2.0, **changes):
    terms = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": 0.0 if currency == "pure" else 1e-6}
    order = 8.0 if currency == "rdp" else None
    return Account(name=name, epsilon=epsilon, currency=currency, order=order, **{**terms, **changes})


def books(folder, *accounts):
    ledger = Ledger(folder / "north.db")
    ledger.open_accounts(accounts or [account()])
    return ledger


def session(folder, *accounts, table: Source | None = None, **options):
    """A session on the first account."""
    ledger = books(folder, *accounts)
    name = accounts[0].name if accounts else "north"
    return Session(table or source(folder), ledger, name, answers=folder / "answers", **options)
