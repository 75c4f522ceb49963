"""A run's books: what others still hold is committed before the rest of a crash is forfeited."""

from __future__ import annotations

import pytest

from sordino.experiment.books import open_books
from sordino.experiment.config import read
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.ledger import Ledger
from sordino.ledger.grants import Grant, Request
from sordino.ledger.keys import SigningKey
from sordino.privacy.permits import Line

TERMS = """
name = "books"
rounds = 3
[data.heart]
[model.logistic]
[privacy]
epsilon = 2.0
delta = 1e-5
[local]
steps = 1
noise_walk = 0.9
clip = 0.3
lr = 0.1
[sampling.all]
[strategy.fedavg]
"""


@pytest.fixture
def plan(tmp_path):
    file = tmp_path / "books.toml"
    file.write_text(TERMS, encoding="utf-8")
    experiment = read(file)
    return make_plan(experiment, load(experiment))


@pytest.mark.parametrize("settles", [True, False])
def test_what_silos_hold_is_settled_before_the_rest_is_forfeited(plan, tmp_path, settles):
    """
    Two rounds were open in the process that died; the silos hold the first.
    """
    lines = [
        Line(account.name, plan.experiment.privacy.unit, key, 1)
        for account in plan.accounts
        for key, _ in account.charges
    ]
    place, silo = tmp_path / "ledger.db", SigningKey.generate("silo")
    asked = Request("t0", plan.run, 0, plan.digest, 1, tuple(lines))
    grant = Grant.of(asked, silo.public, expires=2**40).signed(silo).text
    with Ledger(place) as ledger:
        books = open_books(ledger, plan, plan.run)
        for number in range(2):
            books.reserve(f"t{number}", number, lines)

    with Ledger(place) as ledger:
        books = open_books(ledger, plan, plan.run, forfeit=not settles)
        if settles:
            ledger.found("t0", b"what they hold", {line.account: grant for line in lines})
            ledger.forfeit_open(plan.run)
        assert [charge.state for charge in ledger.charges(plan.run)] == [
            "committed" if settles else "forfeited",
            "forfeited",
        ]
        assert books.earlier("t0") == (b"what they hold" if settles else True)
