"""Private selection of settings: one price, charged before the first trial; the best is shown and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from safetensors.numpy import load_file

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.experiment import trials, tuning
from sordino.experiment.books import LedgerBooks
from sordino.experiment.config import parse
from sordino.experiment.folder import RunFolder
from sordino.experiment.population import load
from sordino.experiment.tuning import price, select
from sordino.ledger import Ledger, verify
from sordino.privacy import events, renyi

# Gaussian figures, so that plans are exact and quick.
SCORED = ("rounds=1", "evaluation.release={ noise_multiplier = 20.0 }")
WALKS = (0.1, 0.9, 3.0)


@pytest.fixture
def settings(heart, unwatched):
    """Three step sizes for the hospitals, and their data."""
    del unwatched
    text = heart.read_text(encoding="utf-8")

    def made(*overrides: str):
        listed = [parse(text, (*SCORED, f"local.noise_walk={walk}", *overrides)) for walk in WALKS]
        return listed, load(listed[0])

    return made


@pytest.fixture
def watched(monkeypatch):
    """What happens, in order: charges by purpose, and trials with their setting's step size, score and model."""
    seen = []
    trial, reserve = trials._trial, LedgerBooks.reserve

    def tried(built, number, folder):
        model, released = trial(built, number, folder)
        seen.append((built.setup.experiment.local.noise_walk, released.score, model))
        return model, released

    def reserved(self, txid, round, lines, purpose="train"):  # noqa: A002 - the noun
        if self.run.startswith("tiny"):
            seen.append(purpose)
        return reserve(self, txid, round, lines, purpose)

    monkeypatch.setattr(trials, "_trial", tried)
    monkeypatch.setattr(LedgerBooks, "reserve", reserved)
    return seen


def as_priced_elsewhere(found) -> bool:
    """Whether every account pays what dp_accounting says that a selection among such trials costs."""
    for account, alone in zip(found.plan.accounts, found.candidates[0].accounts, strict=True):
        theirs = RdpAccountant(renyi.ORDERS, NeighboringRelation.ADD_OR_REMOVE_ONE)
        theirs.compose(events.repeat_and_select(events.composed(alone.events), found.mean_trials, found.shape))
        if account.epsilon != pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6):
            return False
    return True


def test_a_selection_has_one_price(settings, monkeypatch):
    """That of the theorem, above a single trial's, higher for more trials; a twin that charges one trial is found."""
    listed, population = settings()
    found = price(listed, population)

    assert as_priced_elsewhere(found)
    more = [price(listed, population, mean_trials=mean).plan.epsilon for mean in (2, 4, 16)]
    assert found.candidates[0].epsilon < more[0] < more[1] == found.plan.epsilon < more[2]
    plain = found.to_plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["views"] == {"final model": found.plan.epsilon, "another silo": None, "coordinator": None}
    assert [table["local"]["noise_walk"] for table in plain["settings"]] == list(WALKS)

    monkeypatch.setattr(tuning, "_selected", lambda account, *_: account)
    assert not as_priced_elsewhere(price(listed, population))


def test_the_best_is_shown_and_nothing_else(settings, watched, tmp_path):
    """Charged once, as `tune`, before the first trial; the best score's model; no trace of the others."""
    listed, population = settings("simulation={ noise_seed = 3 }")
    found = select(listed, population, tmp_path, mean_trials=6.0)

    purpose, *tried = watched
    assert purpose == "tune"
    assert len(tried) >= 3
    best = max(tried, key=lambda trial: trial[1])
    assert WALKS[found.setting] == best[0]
    vector = np.concatenate([t.ravel() for t in load_file(found.folder / "model.safetensors").values()])
    np.testing.assert_array_equal(np.sort(vector), np.sort(best[2].astype(np.float32)))
    assert found.summary["released_metrics"]["accuracy"] == pytest.approx(best[1], abs=1e-6)
    assert {file.name.split("-")[0].split(".")[0] for file in found.folder.iterdir()} == {
        "experiment",
        "environment",
        "plan",
        "ledger",
        "summary",
        "model",
    }
    with Ledger(found.folder / "ledger.db", read_only=True) as ledger:
        (charge,) = ledger.charges(found.claims[0].run)
        assert (charge.purpose, charge.state) == ("tune", "committed")
    assert verify(found.folder / "ledger.db").ok
    assert found.summary["epsilon"] == price(listed, population, mean_trials=6.0).plan.epsilon
    assert "coordinator is trusted" in found.claims[0].view
    assert found.summary["test"]

    watched.clear()
    again = select(listed, population, tmp_path, mean_trials=6.0)
    assert (again.fresh, again.setting, again.summary, watched) == (False, found.setting, found.summary, [])


def test_what_an_account_cannot_pay_is_not_tried(settings, watched, tmp_path):
    """A budget for one candidate is none for a selection among them."""
    listed, population = settings("budget={ epsilon = 2.0, delta = 1e-5 }")
    with pytest.raises(BudgetRefused):
        select(listed, population, tmp_path)
    assert watched == []
    assert [path.name for path in tmp_path.glob("*-tune-*/plan.json")] == []


def test_a_crash_among_trials_forfeits_all(settings, monkeypatch, tmp_path):
    """Paid, never drawn again, and what the trials left behind is removed unseen."""
    listed, population = settings()
    folder = tmp_path / f"tiny-tune-{price(listed, population).plan.digest[:8]}"

    def die(built, number, folder):
        (folder.path / "trial-left").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(trials, "_trial", die)
        with pytest.raises(KeyboardInterrupt):
            select(listed, population, tmp_path)
    monkeypatch.setattr(trials, "_trial", lambda *_: pytest.fail("tried again"))
    with pytest.raises(PrivacyError, match="interrupted"):
        select(listed, population, tmp_path)
    assert not list(folder.glob("trial-*"))
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        (run,) = ledger.runs()
        assert [charge.state for charge in ledger.charges(run)] == ["forfeited"]
        assert all(claim.complete for claim in ledger.claims(run))


def test_a_crash_after_the_commit_publishes_the_same_bytes(settings, monkeypatch, tmp_path):
    """No trial runs a second time."""
    listed, population = settings()
    kept = []
    with monkeypatch.context() as dying:
        dying.setattr(RunFolder, "finish", lambda _, summary: kept.append(summary) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            select(listed, population, tmp_path)
    monkeypatch.setattr(trials, "_trial", lambda *_: pytest.fail("tried again"))
    found = select(listed, population, tmp_path)
    assert (found.setting, found.summary["released_metrics"]) == (kept[0]["setting"], kept[0]["released_metrics"])


def test_number_and_settings_are_drawn_from_the_secure_source():
    """Uniform over the list, and as many as the law says."""
    drawn = SimpleNamespace(uniform=lambda size: np.array([0.9]) if size == 1 else np.linspace(0.01, 0.99, size))
    asked = SimpleNamespace(mean_trials=4.0, shape=1.0, candidates=(None, None, None))
    listed = trials._settings(asked, drawn)
    assert len(listed) == 9  # the smallest k with 1 − (3/4)^k ≥ 0.9
    assert (min(listed), max(listed)) == (0, 2)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (("rounds=2",), "differs from the first in rounds"),
        (("privacy.epsilon=1.0",), "differs from the first in privacy"),
        (("seed=2",), "differs from the first in seed"),
        (("local.steps=2",), "other events"),
        ((), "two or more"),
    ],
)
def test_settings_of_different_prices_are_refused(settings, heart, second, message):
    """And a list with nothing to choose from."""
    listed, population = settings()
    text = heart.read_text(encoding="utf-8")
    others = [parse(text, (*SCORED, *second))] if second else []
    with pytest.raises(ConfigError, match=message):
        price([listed[0], *others], population)


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"shape": np.inf}, "no trial"), ({"mean_trials": 1.0}, "mean"), ({"shape": -1.0}, "shape")],
)
def test_laws_without_a_best_trial_are_refused(settings, keys, message):
    """Poisson may run none; a mean of one is no selection."""
    with pytest.raises(ConfigError, match=message):
        price(*settings(), **keys)


def test_settings_must_be_scored_and_simple(settings, heart):
    """Without released figures there is nothing that may choose; carried canaries are not offered."""
    text = heart.read_text(encoding="utf-8")
    _, population = settings()
    with pytest.raises(ConfigError, match="scored by released figures"):
        price([parse(text), parse(text, ("local.noise_walk=0.1",))], population)
    with pytest.raises(ConfigError, match="not offered"):
        price([parse(text, (*SCORED, "audit={ canaries = 4 }"))] * 2, population)


def test_a_price_needs_no_torch():
    """As `sordino plan`."""
    code = "import sys, sordino.experiment.tuning; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
