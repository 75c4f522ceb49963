"""A ledger that cannot pay refuses before anything is trained; what a run reports is what its ledger claims."""

from __future__ import annotations

import json
import sqlite3

import pytest
from whole_runs import model, one_line, planned, ran, sordino

from sordino.core.errors import BudgetRefused, PrivacyError, VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.experiment.run import run
from sordino.ledger import Account, Ledger, verify


def test_a_shared_ledger_pays_for_one_run_only(heart, capsys):
    """
    A second run with another seed is another release: the ledger's accounts are empty, and nothing is left behind.
    """
    shared = heart.parent / "shared.db"
    runs = heart.parent / "runs"
    own = ("--runs", runs, "--set", f"ledger={shared}")
    assert sordino(capsys, "run", heart, *own)[0] == 0
    before = sorted(runs.iterdir())

    code, out, error = sordino(capsys, "run", heart, *own, "--set", "seed=2", "--json")

    assert (code, out) == (3, "")
    assert "is left" in one_line(error)
    assert sorted(runs.iterdir()) == before
    with Ledger(shared, read_only=True) as ledger:
        (only,) = ledger.runs()
        assert len(ledger.charges(only)) == 3
    assert verify(shared).ok


def test_one_silo_with_too_little_left_stops_all_of_them(heart, capsys):
    """
    Every account or none: a silo that has spent its budget elsewhere keeps the others' untouched.
    """
    shared = heart.parent / "shared.db"
    with Ledger(shared) as ledger:
        ledger.open_account(
            Account(name="hungary", unit=Unit.RECORD, adjacency=Adjacency.ADD_REMOVE, epsilon=0.5, delta=1e-5)
        )

    code, _, error = sordino(capsys, "run", heart, "--set", f"ledger={shared}", "--runs", heart.parent / "runs")

    assert code == 3
    assert "'hungary'" in one_line(error)
    with Ledger(shared, read_only=True) as ledger:
        assert ledger.balance("cleveland").epsilon_used == 0
        assert ledger.runs() == []


def test_an_account_of_another_unit_is_refused(heart):
    """
    A ledger of persons does not pay for records.
    """
    shared = heart.parent / "shared.db"
    with Ledger(shared) as ledger:
        ledger.open_account(
            Account(name="hungary", unit=Unit.USER, adjacency=Adjacency.ADD_REMOVE, epsilon=9.0, delta=1e-5)
        )

    with pytest.raises(PrivacyError, match="two budgets"):
        ran(heart, f"ledger={shared}")
    assert list((heart.parent / "runs").iterdir()) == []


def test_a_budget_below_the_plan_is_refused_by_plan_and_run(heart, capsys):
    """
    Not even an untouched account could pay: the plan says so before there is a ledger.
    """
    terms = ("--set", "budget={ epsilon = 1.0, delta = 1e-5 }")
    for verb in (("plan", heart), ("run", heart, "--runs", heart.parent / "runs")):
        code, out, error = sordino(capsys, *verb, *terms)
        assert (code, out) == (3, "")
        assert "cannot pay for this plan" in one_line(error)
    assert not (heart.parent / "runs").exists()


def test_a_budget_of_two_runs_pays_for_two(heart):
    """
    Plans add up in a shared ledger until the budget is spent.
    """
    terms = (f"ledger={heart.parent / 'shared.db'}", "budget={ epsilon = 4.0, delta = 2e-5 }")
    for seed in (1, 2):
        assert ran(heart, *terms, f"seed={seed}").fresh
    with pytest.raises(BudgetRefused):
        ran(heart, *terms, "seed=3")


def test_noise_rounds_and_epsilon_that_do_not_fit_are_refused(heart, capsys):
    """
    All three given and too expensive: exit code 3, with what would be spent.
    """
    code, _, error = sordino(capsys, "plan", heart, "--set", "privacy.noise_multiplier=1.0")

    assert code == 3
    assert 'rounds = "fit"' in one_line(error)


def test_the_same_plan_again_trains_and_charges_nothing(heart):
    """
    The folder of a finished run is read; its model, ledger and figures stay as they are.
    """
    first = ran(heart)
    bytes_ = {file.name: file.read_bytes() for file in first.folder.iterdir() if "-" not in file.name}

    second = ran(heart)

    assert (first.fresh, second.fresh) == (True, False)
    assert second.summary == first.summary
    assert {file.name: file.read_bytes() for file in first.folder.iterdir() if "-" not in file.name} == bytes_


@pytest.mark.parametrize("name", ["plan.json", "summary.json"])
def test_an_edited_folder_does_not_change_what_is_claimed(heart, name):
    """
    A run's guarantee comes from its ledger: an epsilon edited into its folder is not repeated.
    """
    plan, population = planned(heart)
    folder = ran(heart).folder
    edited = json.loads((folder / name).read_text(encoding="utf-8"))
    edited["epsilon"] = 0.01
    for silo in edited["silos"]:
        silo["epsilon"] = 0.01
    (folder / name).write_text(json.dumps(edited), encoding="utf-8")

    again = run(plan, population, "", heart.parent / "runs")

    assert again.summary["epsilon"] == plan.epsilon
    assert {silo["epsilon"] for silo in again.summary["silos"]} == {account.epsilon for account in plan.accounts}


def test_a_result_without_its_ledger_is_not_reported(heart, capsys):
    """
    No epsilon without a charge: a finished run whose ledger is gone claims nothing.
    """
    folder = ran(heart).folder
    for file in folder.glob("ledger.db*"):
        file.unlink()

    code, out, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs", "--json")

    assert (code, out) != (0, "")
    assert code in (PrivacyError.exit_code, VerificationError.exit_code)
    one_line(error)


def test_a_tampered_ledger_fails_verification(heart, capsys):
    """
    A balance that was edited past the triggers: `ledger verify` says so with exit code 5.
    """
    folder = ran(heart).folder
    assert sordino(capsys, "ledger", "verify", folder)[0] == 0
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("DROP TRIGGER account_forward")
        db.execute("UPDATE account SET spent_units = spent_units / 2")
    db.close()

    code, out, error = sordino(capsys, "ledger", "verify", folder, "--json")

    assert code == 5
    assert not json.loads(out)["ok"]
    assert "VerificationError" in one_line(error)


def test_noise_given_alone_has_its_epsilon_computed_and_paid(heart):
    """
    The account opens with what the plan costs, to the last digit of the ledger's grid.
    """
    result = ran(heart, "privacy={ noise_multiplier = 3.7, silos_per_person = 1, delta = 1.2345678901234e-7 }")

    assert (
        result.summary["epsilon"]
        == planned(heart, "privacy={ noise_multiplier = 3.7, silos_per_person = 1, delta = 1.2345678901234e-7 }")[
            0
        ].epsilon
    )


def test_seeded_noise_marks_everything_test(heart, capsys):
    """
    Plan, run, ledger and claims say TEST; people see a red line.
    """
    seeded = ("--set", "simulation.noise_seed=1")
    runs = ("--runs", heart.parent / "runs")
    assert json.loads(sordino(capsys, "plan", heart, *seeded, "--json")[1])["test"]
    summary = json.loads(sordino(capsys, "run", heart, *seeded, *runs, "--json")[1])
    assert summary["test"]
    assert "TEST: noise is seeded" in sordino(capsys, "run", heart, *seeded, *runs)[1]
    shown = json.loads(sordino(capsys, "ledger", "show", summary["run_folder"], "--json")[1])
    assert all(item["test"] for item in (*shown["accounts"], *shown["claims"]))


def test_a_real_account_takes_no_seeded_noise(heart):
    """
    A ledger with real accounts refuses a simulation, and the other way round.
    """
    shared = f"ledger={heart.parent / 'shared.db'}"
    ran(heart, shared)

    with pytest.raises(PrivacyError, match="another ledger"):
        ran(heart, shared, "simulation.noise_seed=1")


def test_a_run_without_privacy_says_so_loudly(heart, capsys):
    """
    No ledger, no claim, no epsilon; a line in capitals for people, null for machines.
    """
    terms = ("--set", "privacy={ non_private = true }", "--set", "local={ lr = 1.0 }")
    runs = ("--runs", heart.parent / "runs")

    code, out, _ = sordino(capsys, "run", heart, *terms, *runs)
    assert code == 0
    assert out.count("NOT PRIVATE") == 2
    summary = json.loads(sordino(capsys, "run", heart, *terms, *runs, "--json")[1])

    assert (summary["private"], summary["epsilon"], summary["silos"]) == (False, None, [])
    (folder,) = (heart.parent / "runs").iterdir()
    assert not (folder / "ledger.db").exists()


def test_the_more_sensitive_silo_gets_more_noise(heart):
    """
    A smaller epsilon is kept in the claim, costs more noise, and with noise-aware weights counts less.
    """
    plain = ran(heart, "weights=noise_aware").summary["silos"]
    tiers = ran(heart, "weights=noise_aware", "silos={ hungary = { epsilon = 0.5 } }").summary["silos"]

    by_name = {silo["name"]: silo for silo in tiers}
    before = {silo["name"]: silo for silo in plain}
    assert by_name["hungary"]["epsilon"] <= 0.5 < by_name["cleveland"]["epsilon"] <= 2.0
    assert by_name["hungary"]["noise_multiplier"] > 3 * by_name["cleveland"]["noise_multiplier"]
    assert by_name["hungary"]["weight"] < before["hungary"]["weight"] / 3
    assert sum(silo["weight"] for silo in tiers) == pytest.approx(1.0)


def test_models_of_two_runs_differ(heart):
    """
    Noise comes from the operating system: the same plan in two places gives two models.
    """
    one, other = (model(ran(heart, runs=heart.parent / name)) for name in ("one", "other"))

    assert not (one == other).any()
