"""The study on synthetic patients is about the example as it stands, and repeats itself."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from sordino.data.datasets import datasets
from sordino.data.datasets.heart import RANGES

ROOT = Path(__file__).parents[3]
CHANGES = {"clip": (0.1, 1.2), "weights": (0.0,)}


@pytest.fixture(scope="module")
def recipe():
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("heart_recipe", ROOT / "benchmarks" / "heart_recipe.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def rows(recipe):
    """The study on three truths."""
    return list(recipe.study(3, 31, CHANGES))


def test_the_recipe_is_what_the_example_says(recipe):
    """Nobody can change one without the other."""
    example = tomllib.loads((ROOT / "examples" / "heart.toml").read_text("utf-8"))
    setting = recipe.Setting()

    assert (setting.rounds, setting.average) == (example["rounds"], example["average"])
    assert (setting.clip, setting.noise_walk) == (example["local"]["clip"], example["local"]["noise_walk"])
    assert (setting.weights, setting.momentum) == (1, 0)
    assert (example["weights"], example["strategy"]) == ("size", {"fedavg": {}})
    assert (list(recipe.EPSILONS), recipe.DELTA) == (example["compare"]["epsilon"], example["privacy"]["delta"])


def test_synthetic_patients_have_the_columns_of_the_real_ones(recipe):
    """The same 29 features in the same ranges, a constant, and four fifths of each hospital's number."""
    real = datasets.build("heart", {}).load()
    data = recipe.weighted(recipe.tables(3, 31)[0], recipe.Setting())
    sizes = np.unique(real.client, return_counts=True)[1]

    assert data.names == (*real.features, "constant")
    assert data.x.shape == (3, 736, 30)
    assert data.x.dtype == np.float32
    assert (data.x[..., -1] == 1).all()
    for name, synthetic, column in zip(real.features, data.x.reshape(-1, 30).T, real.x.T, strict=False):
        assert abs(synthetic).max() <= 1
        assert name in RANGES or set(np.unique(synthetic)) == set(np.unique(column)), name
    assert abs(recipe.SIZES - 0.8 * sizes).max() < 1


def test_one_more_truth_changes_no_earlier_one(recipe):
    """So a longer study continues a shorter one."""
    for short, long in zip(recipe.tables(2, 31), recipe.tables(3, 31), strict=True):
        assert (short.x == long.x[:2]).all()
        assert (short.ill == long.ill[:2]).all()


def test_a_row_for_the_recipe_and_for_each_change(rows):
    """AUCs above chance, and differences from the first row."""
    assert [row["setting"] for row in rows] == ["recipe", "clip 0.1", "clip 1.2", "weights 0"]
    for row in rows:
        assert list(row["auc"]) == ["8", "4", "2", "1"]
        assert all(0.6 < value < 1 for value in row["auc"].values())
        assert row["mean"]["mean"] == pytest.approx(np.mean(list(row["auc"].values())))
        assert row["difference"]["mean"] == pytest.approx(row["mean"]["mean"] - rows[0]["mean"]["mean"])
    assert rows[0]["difference"] == {"mean": 0, "standard_error": 0}


def test_more_epsilon_is_not_worse(rows):
    """Up to noise: a step may lose 0.01, the way from 1 to 8 nothing."""
    for row in rows:
        values = list(row["auc"].values())
        assert (np.diff(values) < 0.01).all()
        assert values[0] > values[-1]


def test_what_is_learnt_is_the_illness(recipe):
    """Negative control: models trained on shuffled labels are no better than chance."""
    train, test = recipe.tables(3, 31)
    shuffled = np.random.default_rng(0).permuted(train.ill, axis=1)
    models = recipe.trained(train._replace(ill=shuffled), recipe.Setting(), 31)

    assert recipe.scores(test, models).mean() < 0.6


def test_the_same_seed_gives_the_same_rows(recipe, rows):
    """To the last digit; another seed gives others."""
    assert list(recipe.study(3, 31, CHANGES)) == rows
    assert next(recipe.study(3, 32, {})) != rows[0]


def test_auc_counts_pairs(recipe):
    """By definition: pairs in which the ill patient scores higher, ties by half; NaN without pairs."""
    rng = np.random.default_rng(0)
    ill, score = rng.random(40) < 0.4, rng.integers(0, 9, (40, 2)).astype(float)
    gap = score[ill][:, None] - score[~ill]

    assert recipe.auc(ill, score) == pytest.approx(((gap > 0) + (gap == 0) / 2).mean((0, 1)))
    assert np.isnan(recipe.auc(np.ones(40, bool), score)).all()


def test_table_and_json(recipe, capsys):
    """One line for every setting."""
    count = 1 + sum(map(len, recipe.CHANGES.values()))

    recipe.main(["--truths", "2", "--json"])
    result = json.loads(capsys.readouterr().out)
    recipe.main(["--truths", "2"])
    lines = capsys.readouterr().out.splitlines()

    assert (result["truths"], result["seed"], len(result["rows"])) == (2, 31, count)
    assert len(lines) == count + 2
    assert f"{result['rows'][0]['mean']['mean']:.4f}" in lines[1]
