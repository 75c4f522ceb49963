"""A run charges the blocks whose records it reads: new records have a fresh budget, and nothing is read for free."""

from __future__ import annotations

import numpy as np
import pytest
from whole_runs import model, planned

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.experiment.run import claims_of, run
from sordino.ledger import Account, Ledger, verify

pd = pytest.importorskip("pandas")

TERMS = """
name = "blocks"
rounds = 2
ledger = "books.db"
[data.table]
path = "people.csv"
label = "ill"
client = "site"
features = ["age"]
classes = ["0", "1"]
ranges = { age = [0, 100] }
when = "day"
until = "2026-04-01"
[model.logistic]
[privacy]
noise_multiplier = 4.0
delta = 1e-3
silos_per_person = 1
[local]
lr = 0.1
steps = 1
clip = 1.0
[sampling.all]
[strategy.fedavg]
"""
SITES = ("north", "south")
WINDOWS = ("[..,2026-01-01)", "[2026-01-01,2026-04-01)")
SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": 1e-2}


def block(site, number):
    return f"{site}/day{WINDOWS[number]}"


def account(name, epsilon=30.0, **terms):
    return Account(name, epsilon=epsilon, **{**SHARED, **terms})


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Forty people a site came in on each of: a day of 2025, of early 2026, and of May 2026."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    days = np.repeat(["2025-06-01", "2026-02-01T08:00:00", "2026-05-01"], 80)
    ages = rng.integers(20, 90, size=days.size)
    frame = {
        "day": days,
        "number": np.arange(days.size),
        "site": np.tile(SITES, days.size // 2),
        "age": ages,
        "ill": (ages > 55).astype(int),
    }
    pd.DataFrame(frame).to_csv(tmp_path / "people.csv", index=False)
    file = tmp_path / "blocks.toml"
    file.write_text(TERMS, encoding="utf-8")
    return file


def divide(file, epsilon=30.0, **terms):
    """Both sites get blocks up to April."""
    with Ledger(file.parent / "books.db") as ledger:
        for site in SITES:
            ledger.open_account(account(site, **{"overlap": 1, **terms}))
            for number in (0, 1):
                ledger.open_account(account(block(site, number), epsilon, scope="block", parent=site, **terms))


def go(file, *overrides):
    plan, population = planned(file, *overrides)
    return plan, run(plan, population, "", file.parent / "runs", base=file.parent)


def used(file):
    with Ledger(file.parent / "books.db", read_only=True) as ledger:
        return {found.name: ledger.balance(found.name).epsilon_used for found in ledger.accounts()}


def test_each_block_that_is_read_pays_and_no_other(file):
    """
    A run over both, and one over the newer one alone. Claims are those of the blocks; the silo pays its worst record.
    """
    divide(file)
    plan, result = go(file)
    first = used(file)
    assert {claim.account for claim in result.claims} == {block(site, n) for site in SITES for n in (0, 1)}
    for claim in result.claims:
        assert claim.epsilon == pytest.approx(plan.accounts[0 if claim.account.startswith("north") else 1].epsilon)
    assert result.summary["epsilon"] == pytest.approx(max(a.epsilon for a in plan.accounts))
    assert all(silo["epsilon"] > 0 for silo in result.summary["silos"])
    assert all(first[block(site, n)] == first[site] > 0 for site in SITES for n in (0, 1))

    _, later = go(file, "data.table.since='2026-01-01'")
    assert {claim.account for claim in later.claims} == {block(site, 1) for site in SITES}
    second = used(file)
    assert all(second[block(site, 0)] == first[block(site, 0)] for site in SITES)
    assert all(second[block(site, 1)] > 1.5 * first[block(site, 1)] for site in SITES)
    assert verify(file.parent / "books.db", reprice=True).problems == ()
    assert claims_of(plan, file.parent / "books.db")


def test_the_blocks_change_nothing_but_who_pays(file):
    """
    The same noise and records without blocks give the same model.
    """
    seeded = ("simulation.noise_seed=3",)
    _, alone = go(file, *seeded)
    (file.parent / "books.db").unlink()
    divide(file, test=True)
    (file.parent / "runs").rename(file.parent / "before")
    _, divided = go(file, *seeded)
    assert {claim.account for claim in alone.claims} == set(SITES)
    assert {claim.account for claim in divided.claims} == {block(site, n) for site in SITES for n in (0, 1)}
    assert model(alone).tolist() == model(divided).tolist()


def test_records_outside_the_window_are_not_read(file):
    """
    Other values there, or none of them at all, change nothing of the plan and of the model.
    """
    seeded = ("simulation.noise_seed=3", "ledger='other.db'")
    plan, first = go(file, *seeded)
    assert sum(account.units for account in plan.accounts) < 160
    frame = pd.read_csv("people.csv")
    late = frame.day == "2026-05-01"
    frame.loc[late, "age"], frame.loc[late, "ill"] = 1, 1 - frame.ill[late]
    frame.loc[frame.index[late][:9], "day"] = ["", "soon", "7"] * 3
    pd.concat([frame[late], frame[~late]]).to_csv("people.csv", index=False)
    (file.parent / "runs").rename(file.parent / "before")
    (file.parent / "other.db").unlink()
    again, second = go(file, *seeded)
    assert again.digest == plan.digest
    assert model(first).tolist() == model(second).tolist()


@pytest.mark.parametrize(
    ("override", "match"),
    [
        (["data.table.until='2026-06-01'"], "lies in no block"),
        (["data.table.when='number'", "data.table.until='95'"], "does not say which"),
    ],
)
def test_what_lies_in_no_block_is_not_read(file, override, match):
    """
    Later records, or another column: nothing is charged.
    """
    divide(file)
    with pytest.raises(PrivacyError, match=match) as refused:
        go(file, *override)
    assert "north" in str(refused.value)
    assert set(used(file).values()) == {0.0}


def test_a_plan_that_does_not_say_what_it_reads_is_refused(file):
    """
    Its silos have blocks.
    """
    divide(file)
    text = file.read_text().replace('when = "day"\n', "").replace('until = "2026-04-01"\n', "")
    file.write_text(text)
    with pytest.raises(PrivacyError, match="when, since and until"):
        go(file)


def test_a_block_that_cannot_pay_stops_the_plan(file):
    """
    Nobody is charged, though the silo itself could pay.
    """
    divide(file, epsilon=0.01)
    with pytest.raises(BudgetRefused, match=r"day\["):
        go(file)
    assert set(used(file).values()) == {0.0}


def test_blocks_of_persons_all_add_up(tmp_path):
    """
    A person may have records in each: a silo that counts on one block a person cannot have them.
    """
    with Ledger(tmp_path / "books.db") as ledger:
        ledger.open_account(account("north", unit=Unit.USER, overlap=1))
        with pytest.raises(ConfigError, match="may be in other blocks"):
            ledger.open_account(account(block("north", 0), unit=Unit.USER, scope="block", parent="north"))
        ledger.open_account(account("south", unit=Unit.USER))
        ledger.open_account(account(block("south", 0), unit=Unit.USER, scope="block", parent="south"))
