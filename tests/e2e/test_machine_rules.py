"""What a silo's own rules, ledger and data refuse: nothing is charged, and the coordinator shows the silo's reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from machines import Lines
from whole_runs import planned

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError, VerificationError
from sordino.ledger import Ledger
from sordino.ledger.keys import SigningKey

OFFICER = SigningKey.generate("officer").public
STRANGER = SigningKey.generate("coordinator").public
RULES = {
    "a plan that is not on its list": ('plans = ["00"]', "is not one of its `plans`"),
    "more epsilon": ("epsilon = 0.5", "epsilon=.* is more than its 0.5"),
    "more delta": ("delta = 1e-6", "delta=1e-05 is more than its 1e-06"),
    "another unit": ('unit = ["user"]', "unit='record' is not allowed; allowed: user"),
    "another place of noise": ('noise_at = ["sum"]', "noise_at='silo' is not allowed; allowed: sum"),
    "a wider clip": ("clip = 0.5", "clip=1.0 is more than its 0.5"),
    "more rounds": ("rounds = 2", "rounds=3 is more than its 2"),
    "other data": ('data = ["heart"]', "data='table' is not in its `data`"),
    "other columns": ('columns = ["age", "ill", "hospital"]', r"columns=\['a'\] are not in its `columns`"),
    "another model": ('models = ["mlp"]', "model='logistic' is not in its `models`"),
    "a small cohort": ("min_cohort = 4", "silos=3 is less than its `min_cohort` of 4"),
    "no officer's signature": (f'officers = ["{OFFICER}"]', "needs 1 of officer and has 0"),
    "another coordinator": (
        f'coordinators = ["{STRANGER}"]',
        "coordinator='coordinator' is none of its `coordinators`",
    ),
}


def ruled(hospitals, line, silo="east"):
    """One rule of one silo, changed."""
    file = hospitals.at(silo) / "silo.toml"
    name = line.partition(" ")[0]
    kept = [other for other in file.read_text().splitlines() if not other.startswith(f"{name} =")]
    file.write_text("\n".join([line, *kept]))


def nothing_happened(hospitals, draws):
    """No charge in any ledger and nothing held for a plan, no draw, no run folder."""
    plan, _ = planned(hospitals.file)
    for place in hospitals.places().values():
        with Ledger(place, read_only=True) as ledger:
            assert [ledger.balance(account.name).epsilon_used for account in ledger.accounts()] in (
                [],
                [0.0],
                [0.0] * 3,
            )
    assert not list((hospitals.root / "runs").glob("*"))
    assert hospitals.states(plan.run) == {name: [] for name in ["", *hospitals.silos]}
    assert not draws


@pytest.mark.parametrize("rule", RULES)
def test_a_silo_refuses_by_its_own_rules(hospitals, draws, rule):
    line, why = RULES[rule]
    ruled(hospitals, line)
    with hospitals.sites() as sites, pytest.raises((PrivacyError, VerificationError), match=f"site 'east'.*({why})"):
        hospitals.run(Lines(sites))
    nothing_happened(hospitals, draws)


def test_one_silo_s_refusal_costs_the_others_nothing(hospitals, draws):
    """
    All are asked whether they would take part before anybody holds budget for the plan.
    """
    ruled(hospitals, "epsilon = 0.5", "south")
    with hospitals.sites() as sites, pytest.raises(PrivacyError, match=r"site 'south' refuses"):
        hospitals.run(Lines(sites))
    nothing_happened(hospitals, draws)


def test_a_silo_refuses_a_plan_for_other_code(hospitals, draws, monkeypatch):
    """
    The coordinator's code is not what runs at the silo.
    """
    monkeypatch.setattr("sordino.experiment.approval.code", SimpleNamespace(digest=lambda: "0" * 64))
    with hospitals.sites() as sites, pytest.raises(PrivacyError, match=r"site 'east'.*is not the code that runs here"):
        hospitals.run(Lines(sites))
    nothing_happened(hospitals, draws)


def test_a_silo_with_other_data_refuses(hospitals, draws):
    """
    What the plan says of the records must be what they are at the silo: its price and noise depend on it.
    """
    other = hospitals.root / "other.csv"
    other.write_text((hospitals.root / "rows.csv").read_text() + "0.5,1,east\n" * 9)
    with hospitals.sites() as sites:
        sites["east"].member._preparing.data = {"path": str(other)}
        with pytest.raises(PrivacyError, match=r"site 'east'.*is not what this experiment comes to here"):
            hospitals.run(Lines(sites))
    nothing_happened(hospitals, draws)


def test_a_silo_that_cannot_pay_refuses(hospitals, draws):
    """
    The coordinator's accounts have a hundred each; the silo's own has eight.
    """
    with hospitals.sites() as sites, pytest.raises(BudgetRefused, match=r"site 'east' refuses: silo 'east'.*is left"):
        hospitals.run(Lines(sites), "privacy.noise_multiplier=0.5")
    nothing_happened(hospitals, draws)


def test_rules_that_change_in_the_middle_count_from_the_next_join(hospitals, draws):
    """
    A silo that restarts with a new rule stays away for good; the others go on without it.
    """
    plan, _ = planned(hospitals.file)

    def forbids(letter, answering):
        if letter.action == "train" and letter.number("round") == 1:
            ruled(hospitals, "epsilon = 0.5")
            sites["east"].restart()
        return answering(letter)

    with hospitals.sites() as sites:
        lines = Lines(sites, {"east": forbids})
        result = hospitals.run(lines)
    assert result.summary["silos_away"] == ["east"]
    assert any("east stays away: site 'east' refuses" in line and "0.5" in line for line in hospitals.told)
    assert lines.asked.count(("east", "join")) == 2
    hospitals.hold(plan.run, draws, away=("east",))


LATER = {
    "a sum that is only played": (
        ("privacy.noise_at='sum'", "simulation={ secure_sum = true }", "budget={ epsilon = 1e4, delta = 1e-3 }"),
        "plays all silos in one process",
    ),
    "no privacy": (
        ("privacy={ non_private = true }", "budget={ epsilon = 1.0, delta = 1e-3 }"),
        "non_private|not private",
    ),
}


@pytest.mark.parametrize("what", LATER)
def test_what_cannot_run_over_machines_is_refused_before_anybody_is_asked(hospitals, draws, what):
    overrides, why = LATER[what]
    with hospitals.sites() as sites:
        lines = Lines(sites)
        with pytest.raises((ConfigError, PrivacyError), match=why):
            hospitals.run(lines, *overrides)
    assert lines.asked == []
    assert not (hospitals.root / "federation.db").exists()
    assert not draws


def test_a_silo_that_nobody_knows_is_named(hospitals, draws):
    """
    The plan's silos must be the federation's.
    """
    from dataclasses import replace

    with hospitals.sites() as sites, pytest.raises(ConfigError, match=r"silos=\['south'\] are no sites of this"):
        replace(hospitals, silos=("east", "north")).run(Lines(sites))
    assert not draws
