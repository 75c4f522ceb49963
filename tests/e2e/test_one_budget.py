"""The same people have one budget, and what the data say is not contradicted."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from whole_runs import one_line, planned, ran, sordino

from sordino.core.errors import ConfigError, PrivacyError
from sordino.data import Examples, FederatedData
from sordino.data.split import coin_split, train_test
from sordino.ledger import Ledger

CLIENTS = (
    "privacy={ unit = 'client', noise_at = 'coordinator', epsilon = 20.0 }",
    "stages=[{ clip = { norm = 1.0 } }]",
)


@pytest.mark.parametrize(
    "second",
    [
        ("sampling={ all = {} }", "local={ lr = 1.0 }", *CLIENTS),
        ("local={ lr = 1.0, clip = 0.3 }",),
    ],
    ids=["clients by name", "records"],
)
def test_the_same_people_have_one_budget_in_a_ledger(heart, second):
    """
    Accounts of all clients, of each client and of each client's records stand for the same people.
    """
    shared = f"ledger={heart.parent / 'shared.db'}"
    ran(heart, shared, "sampling={ poisson = { rate = 0.5 } }", "local={ lr = 1.0 }", *CLIENTS)

    with pytest.raises(PrivacyError, match="two budgets"):
        ran(heart, shared, *second)
    with Ledger(heart.parent / "shared.db", read_only=True) as ledger:
        assert [account.name for account in ledger.accounts()] == ["clients"]


def test_other_names_are_no_second_budget(heart):
    """
    The same people dealt to other clients are refused; fewer of the known clients are not.
    """
    shared = (f"ledger={heart.parent / 'shared.db'}", "budget={ epsilon = 9.0, delta = 1e-4 }")
    ran(heart, *shared)

    with pytest.raises(PrivacyError, match="under other names"):
        ran(heart, *shared, "partition={ iid = { clients = 4 } }")
    ran(heart, *shared, "seed=9")


def test_private_records_are_not_dealt_at_random(table):
    """
    A shuffle couples all records: one more moves the others.
    """
    text = table.read_text(encoding="utf-8").replace("public = true\n", "")
    table.write_text(text, encoding="utf-8")

    with pytest.raises(PrivacyError, match="for public data"):
        planned(table, "local.clip=0.5", "partition={ iid = { clients = 4 } }")


def test_a_silos_own_epsilon_is_not_ignored(heart):
    """
    Where anybody may be drawn, all share one account: a silo's own epsilon is refused there and kept elsewhere.
    """
    own = ("silos={ hungary = { epsilon = 9.0 } }", "local={ lr = 1.0 }", *CLIENTS)

    with pytest.raises(ConfigError, match="share one account"):
        planned(heart, "sampling={ poisson = { rate = 0.5 } }", *own)
    plan, _ = planned(heart, "sampling={ all = {} }", *own)
    assert {a.name: a.epsilon for a in plan.accounts}["hungary"] <= 9.0


def test_a_declaration_that_the_data_refute_is_refused(table, tmp_path):
    """
    Persons in two hospitals, and a plan that says one; without the declaration all silos are composed.
    """
    rows = "".join(f"{i % 7 / 7:.3f},0.5,{i % 2},h{i % 3},p{i // 3}\n" for i in range(120))
    (tmp_path / "patients.csv").write_text("a,b,ill,hospital,patient\n" + rows, encoding="utf-8")

    with pytest.raises(PrivacyError, match="refuted"):
        planned(table, "local.clip=0.5")
    plan, _ = planned(table, "local.clip=0.5", "privacy={ noise_multiplier = 9.0 }")
    alone = max(account.epsilon for account in plan.accounts)
    assert plan.epsilon > 1.5 * alone
    one = planned(table, "local.clip=0.5", "privacy={ noise_multiplier = 9.0, silos_per_person = 3 }")[0]
    assert one.attack == plan.attack


def test_attack_bounds_are_those_of_a_person_in_all_silos(heart):
    """
    Without a declaration a person may be in every silo: the attacker's bound grows with epsilon.
    """
    declared, _ = planned(heart)
    unknown, _ = planned(heart, "privacy={ epsilon = 2.0 }")

    assert unknown.epsilon > declared.epsilon
    assert unknown.attack.auc > declared.attack.auc


def test_a_shared_ledger_lies_beside_its_experiment(heart, monkeypatch, capsys):
    """
    From whatever folder the command is run: a second budget is not a matter of `cd`.
    """
    text = 'ledger = "shared.db"\n' + heart.read_text(encoding="utf-8")
    heart.write_text(text, encoding="utf-8")
    codes = []
    for seed, folder in enumerate(("one", "two")):
        (heart.parent / folder).mkdir()
        monkeypatch.chdir(heart.parent / folder)
        codes.append(sordino(capsys, "run", os.path.relpath(heart), "--set", f"seed={seed}", "--json"))

    (first, _, said), (second, _, refused) = codes
    assert (first, second) == (0, 3)
    assert "opening a new ledger" in said
    assert "account" in one_line(refused)
    assert (heart.parent / "shared.db").exists()


def test_training_without_privacy_does_not_pass_by_a_ledger(heart):
    """
    People whose budget is kept are not trained on without it.
    """
    with pytest.raises(PrivacyError, match="passes by the ledger"):
        planned(heart, f"ledger={heart.parent / 'l.db'}", "privacy={ non_private = true }", "local.lr=1.0")


def test_figures_on_private_records_are_not_public(table, heart, capsys):
    """
    A public training set does not make a private test set public.
    """
    test = f"evaluation={{ data = {{ table = {{ path = '{table.parent / 'patients.csv'}', label = 'ill', "
    test += "features = ['a', 'b'], classes = ['0', '1'] } } }"

    code, out, error = sordino(
        capsys, "run", table, "--runs", table.parent / "runs", "--json", "--set", "local.clip=0.5", "--set", test
    )

    assert code == 0, error
    assert json.loads(out)["metrics"]["visibility"] == "local"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ("privacy.delta=1e-300", "can honour"),
        ("local.clip=1e308", "between 1e-12 and 1e12"),
        ("privacy.noise_multiplier=1e300", "between 1e-12 and 1e12"),
        ('name=".."', "letter or digit first"),
    ],
)
def test_numbers_that_no_run_can_bear_are_refused_by_plan(heart, capsys, terms, said):
    """
    Before anything is charged.
    """
    code, _, error = sordino(capsys, "plan", heart, "--set", terms)

    assert code == 2
    assert said in one_line(error)


def test_stages_that_do_not_fit_the_model_charge_nothing(heart):
    """
    The stages are tried on a zero update before the plan is admitted.
    """
    own = (*CLIENTS[:1], "stages=[{ clip_per_layer = { norm = 1.0, shares = [1, 2, 3] } }]", "local={ lr = 1.0 }")

    with pytest.raises(ConfigError, match="shares"):
        ran(heart, *own)
    assert not any((heart.parent / "runs").glob("*/ledger.db"))


def people(n: int, extra: int = 0) -> FederatedData:
    """One silo of n records, and perhaps more behind them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n + extra, 3)).astype(np.float32)
    user = np.array([f"p{i // 2}" for i in range(n + extra)])
    examples = Examples(x, np.arange(n + extra) % 2, classes=2, user=user)
    return FederatedData(examples, ("a", "b"), (np.arange(n + extra - 2), np.arange(n + extra - 2, n + extra)))


def test_where_a_record_goes_depends_on_it_alone():
    """
    One more record moves nobody else between training and testing; stratified parts (the twin) move many.
    """

    def training(split, data):
        return {row for row in split(data, 0.3, 1)[0].rows[0].tolist() if row < 300}

    assert training(coin_split, people(302)) == training(coin_split, people(302, extra=1)) - {300}
    assert len(training(train_test, people(302)) ^ training(train_test, people(302, extra=1))) > 20


def test_a_persons_records_stay_together():
    """
    With the unit user, nobody is on both sides.
    """
    data = people(402)
    train, test = coin_split(data, 0.3, 1, by_user=True)
    sides = [set(data.examples.user[np.concatenate(part.rows)].tolist()) for part in (train, test)]

    assert sides[0] & sides[1] == set()
    assert 0.2 < len(sides[1]) / 201 < 0.4
