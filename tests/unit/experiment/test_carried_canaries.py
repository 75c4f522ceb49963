"""A run that carries canaries: public numbers know no coin, the plan says the cost, the folder keeps the coins."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.experiment import config, population
from sordino.experiment.people import contributors
from sordino.experiment.plan import make_plan
from sordino.experiment.render import plan_json
from sordino.experiment.run import run

CARRIED = ("audit.canaries=40",)


def plans(file: Path, *overrides: str) -> list[tuple[config.Experiment, population.Population]]:
    """The same experiment under three seeds of the audit, hence other coins."""
    found = []
    for seed in range(3):
        experiment = config.read(file, (*CARRIED, f"audit.seed={seed}", *overrides))
        found.append((experiment, population.load(experiment)))
    return found


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ('privacy.unit="user"',),
        ('privacy.unit="user"', 'local.people="records"', "local.records_per_person=3"),
    ],
)
def test_no_public_number_depends_on_the_coins(table: Path, overrides: tuple[str, ...]) -> None:
    """Units, divisors and weights are equal for all coins, while the training records differ."""
    terms = ("local.clip=0.5", "privacy.noise_multiplier=20.0", *overrides)
    loaded = plans(table, *terms)
    assert len({data.train.sizes for _, data in loaded}) > 1
    assert len({data.units for _, data in loaded}) == 1
    assert len({tuple(contributors(e, data, i) for i in range(len(data))) for e, data in loaded}) == 1
    assert len({make_plan(e, data, check_learning=False).weights for e, data in loaded}) == 1
    without = population.load(config.read(table, terms))
    assert sum(loaded[0][1].units) == sum(without.units) + 20


def test_non_private_weights_do_not_tell_the_coins_either(table: Path) -> None:
    """Weights follow counts with expected canaries."""
    terms = ("privacy.non_private=true", "privacy={non_private=true}")
    assert len({make_plan(e, data).weights for e, data in plans(table, terms[1])}) == 1


def test_the_price_is_that_of_the_run_without(heart: Path) -> None:
    """Nothing in privacy: the same noise gives the same epsilon, with and without canaries."""
    noise = ("privacy={noise_multiplier=20.0, delta=1e-5, silos_per_person=1}",)
    epsilons = []
    for overrides in (noise, (*noise, *CARRIED)):
        experiment = config.read(heart, overrides)
        epsilons.append(make_plan(experiment, population.load(experiment)).epsilon)
    assert epsilons[0] == epsilons[1]


def test_the_plan_says_what_they_cost_and_is_another_plan(heart: Path) -> None:
    """Shares count expected canaries; coins of another seed are another digest; without [audit] nothing is said."""
    experiment = config.read(heart, CARRIED)
    data = population.load(experiment)
    plan = make_plan(experiment, data)
    told = plan_json(plan)["canaries"]
    assert data.canaries is not None
    assert told["silo"] == data.canaries.silo
    assert told["digest"] == data.canaries.digest
    assert told["share"] == pytest.approx(20 / data.units[data.names.index(told["silo"])])
    assert "no privacy" in told["says"]
    other = config.read(heart, (*CARRIED, "audit.seed=5"))
    assert make_plan(other, population.load(other)).digest != plan.digest
    plain = config.read(heart)
    assert "audit" not in config.to_plain(plain)
    assert plan_json(make_plan(plain, population.load(plain)))["canaries"] is None


def test_the_folder_keeps_the_coins(heart: Path, tmp_path: Path) -> None:
    """What the digest in the plan stands for."""
    experiment = config.read(heart, CARRIED)
    data = population.load(experiment)
    result = run(make_plan(experiment, data), data, heart.read_text(encoding="utf-8"), tmp_path)
    kept = json.loads((result.folder / "canaries.json").read_text(encoding="utf-8"))
    planned = json.loads((result.folder / "plan.json").read_text(encoding="utf-8"))
    assert data.canaries is not None
    np.testing.assert_array_equal(kept["included"], data.canaries.included)
    assert kept["digest"] == planned["canaries"]["digest"] == data.canaries.digest


def test_they_are_refused_where_they_would_be_no_units(heart: Path, table: Path) -> None:
    """Many canaries inside one protected client are one unit; groups have accounts of their own."""
    client = config.read(table, (*CARRIED, 'privacy={unit="client", noise_at="coordinator", noise_multiplier=1.0}'))
    with pytest.raises(ConfigError, match="one protected client"):
        population.load(client)
    with pytest.raises(ConfigError, match="no public group"):
        population.load(config.read(heart, (*CARRIED, "groups.a.epsilon=1.0")))
    with pytest.raises(ConfigError, match="audit"):
        config.read(heart, ("audit.canaries=0",))
