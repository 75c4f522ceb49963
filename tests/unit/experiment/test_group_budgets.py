"""Experiments whose public groups have budgets of their own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency
from sordino.experiment.config import parse
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.render import plan_json
from sordino.experiment.run import run
from sordino.ledger import Ledger
from sordino.privacy.accounting import best_epsilon

TIERS = """
name = "tiers"
rounds = 2
[data.table]
path = '{path}'
label = "ill"
client = "hospital"
group = "tier"
ranges = {{ a = [0, 1], b = [0, 1] }}
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
epsilon = 1.0
silos_per_person = 1
[groups.open]
epsilon = 1.0
[groups.strict]
epsilon = 0.5
[local]
lr = 0.5
clip = 0.5
steps = 5
batch = 0.2
individual = "{way}"
[strategy.fedavg]
"""


@pytest.fixture
def text(tmp_path):
    """Three hospitals of eighty records; the third has strict ones only."""
    random = np.random.default_rng(0)
    rows = ["a,b,ill,hospital,tier"]
    for i in range(240):
        a, b = random.random(2)
        tier = "strict" if i % 3 == 2 or i % 4 == 0 else "open"
        rows.append(f"{a:.3f},{b:.3f},{int(a > b)},h{i % 3},{tier}")
    path = tmp_path / "tiers.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return lambda way: TIERS.format(path=path, way=way)


def planned(text, *overrides):
    experiment = parse(text, overrides)
    population = load(experiment)
    return make_plan(experiment, population, check_learning=False), population


@pytest.mark.parametrize("way", ["sample", "scale"])
def test_every_group_spends_its_own_budget(text, way):
    """
    An account per silo and group that is there, priced from its own events: at most its epsilon, and nearly all.
    """
    plan, population = planned(text(way))
    limits = {"open": 1.0, "strict": 0.5}

    assert [a.name for a in plan.accounts] == ["h0/open", "h0/strict", "h1/open", "h1/strict", "h2/strict"]
    for account in plan.accounts:
        price = best_epsilon(account.events, plan.delta, adjacency=Adjacency.ADD_REMOVE).epsilon
        assert 0.98 * limits[account.group] < price == account.epsilon <= limits[account.group]
        assert account.releases == 10
    assert sum(account.units for account in plan.accounts) == sum(population.train.sizes)
    assert plan.epsilon == max(account.epsilon for account in plan.accounts)
    assert json.loads(json.dumps(plan_json(plan)))["experiment"]["groups"]["strict"]["epsilon"] == 0.5


def test_sample_keeps_the_expected_batch(text):
    """
    Over all silos, as many records join as local.batch asked for.
    """
    plan, _ = planned(text("sample"))
    joining = sum(a.units * plan.experiment.groups[a.group].rate for a in plan.accounts)

    assert joining == pytest.approx(0.2 * sum(a.units for a in plan.accounts), rel=0.01)
    assert plan.experiment.groups["strict"].rate < 0.2 < plan.experiment.groups["open"].rate


def test_unknown_silos_per_person_composes_silos_not_groups(text):
    """
    A record is of one group, so the worst is one account a silo; all five would be more than anybody can be in.
    """
    plan, _ = planned(text("scale"), "privacy.silos_per_person=3")
    unknown, _ = planned(text("scale").replace("silos_per_person = 1\n", ""))
    everything = [event for account in plan.accounts for event in account.events]

    assert unknown.epsilon == plan.epsilon
    assert max(a.epsilon for a in plan.accounts) < plan.epsilon
    assert plan.epsilon < best_epsilon(everything, plan.delta, adjacency=Adjacency.ADD_REMOVE).epsilon


@pytest.mark.parametrize("way", ["sample", "scale"])
def test_a_run_charges_every_group(text, tmp_path, way):
    """
    Trained, charged and claimed per silo and group; also where a silo lacks the group with the largest clip.
    """
    plan, population = planned(text(way))

    result = run(plan, population, "", tmp_path / "runs")

    assert {claim.account: claim.epsilon for claim in result.claims} == {
        a.name: pytest.approx(a.epsilon) for a in plan.accounts
    }
    assert result.summary["epsilon"] == pytest.approx(plan.epsilon)


def test_a_ledger_by_silo_takes_no_groups(text, tmp_path):
    """
    The same records would have two budgets.
    """
    book = f"ledger='{tmp_path / 'book.db'}'"
    whole = text("scale").split("[groups.open]")[0] + "[local]\nlr = 0.5\nclip = 0.5\nbatch = 0.2\n[strategy.fedavg]\n"
    run(*planned(whole, book, "privacy={ noise_multiplier = 5.0, silos_per_person = 1 }"), "", tmp_path / "runs")

    with pytest.raises(PrivacyError, match="same people"):
        run(*planned(text("scale"), book), "", tmp_path / "runs")
    with Ledger(tmp_path / "book.db", read_only=True) as ledger:
        assert {account.name for account in ledger.accounts()} == {"h0", "h1", "h2"}


REFUSED = [
    (("groups={}",), ConfigError, "need local.individual"),
    (("local={ lr = 0.5, clip = 0.5 }",), ConfigError, "need local.individual"),
    (("groups.other.epsilon=0.9",), ConfigError, "absent"),
    (("groups={ open = { epsilon = 1.0 } }",), ConfigError, "unnamed"),
    (("groups.open.epsilon=4.0",), ConfigError, "above privacy.epsilon"),
    (("groups.open.rate=0.5",), ConfigError, "which the plan finds"),
    (("groups={ 'a/b' = { epsilon = 1.0 } }",), ConfigError, "silo/group"),
    (("privacy={ noise_multiplier = 1.0 }",), ConfigError, "is found for groups"),
    (("rounds='fit'",), ConfigError, "is found for groups"),
    (("privacy={ unit = 'user', epsilon = 1.0 }", "data.table.user='hospital'"), ConfigError, "gradients of records"),
    (("silos.h0.epsilon=1.0",), ConfigError, "do not go with"),
    (("data.table.group='nothing'",), ConfigError, "no column"),
    (("privacy={ non_private = true }",), ConfigError, "inside silos"),
]


@pytest.mark.parametrize(("overrides", "error", "words"), REFUSED)
def test_refused(text, overrides, error, words):
    """
    What is not offered, has no effect, or does not fit the data.
    """
    with pytest.raises(error, match=words):
        planned(text("sample"), *overrides)


def test_a_whole_batch_cannot_be_sampled_and_can_be_scaled(text):
    """
    Every record in every step: rates are all one, clips are not.
    """
    with pytest.raises(PrivacyError, match="nothing to sample"):
        planned(text("sample"), "local.batch='full'")
    plan, _ = planned(text("scale"), "local.batch='full'")

    assert plan.experiment.groups["strict"].share < plan.experiment.groups["open"].share == 1.0
    assert plan.accountant == "gdp"
