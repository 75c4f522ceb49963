"""A run's training on subsets of a silo's records: what runs is the run's own, in every copy, with noise of its own."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sordino.audit.attacks import attacks
from sordino.audit.findings import Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.core.seeds import stream
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.experiment.audits import _copies, records
from sordino.experiment.audits._copies import trained
from sordino.experiment.build import build
from sordino.experiment.config import parse
from sordino.experiment.plan import make_plan
from sordino.experiment.population import Population
from sordino.federation.strategies import ServerState, strategies
from sordino.local.models import InputSpec

QUIET = lambda _: None  # noqa: E731 - a progress that says nothing
RECORD = "noise_multiplier = {noise}\ndelta = 1e-3\nsilos_per_person = 1"
PRIVATE = RECORD.format(noise=1.0)
EXPERIMENT = """
name = "copies"
rounds = 3
average = {average}
[data.digits]
[model.mlp]
hidden = [4]
[privacy]
{privacy}
[local]
steps = {steps}
lr = 0.5
batch = {batch}
momentum = {momentum}
clip = {clip}
[objective]
{objective}
[strategy.{strategy}]
"""
TERMS = {
    "average": 0.0,
    "steps": 2,
    "clip": 0.5,
    "batch": '"full"',
    "momentum": 0.0,
    "objective": "plain = {}",
    "strategy": "fedavg",
}


def population(sizes=(40, 30, 20)) -> Population:
    rng = stream(1, "retrained")
    n = sum(sizes) + 20
    examples = Examples(rng.normal(size=(n, 5)).astype(np.float32), rng.integers(3, size=n), classes=3)
    *own, test = np.split(np.arange(n), np.cumsum(sizes))
    train = FederatedData(examples, tuple("abc"[: len(sizes)]), tuple(own))
    held = FederatedData(examples, ("test",), (test,))
    return Population(train, held, train.sizes, InputSpec((5,), 3), public=False, source="made up")


def built(privacy=PRIVATE, sizes=(40, 30, 20), **more):
    people = population(sizes)
    experiment = parse(EXPERIMENT.format(privacy=privacy, **TERMS | more))
    return build(make_plan(experiment, people, check_learning=False), people)


def halves(count=4, pool=40, seed=0):
    return stream(seed, "halves").random((count, pool)) < 0.5


class TestTheLoopIsTheRuns:
    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"momentum": 0.9, "objective": "fedprox = { mu = 0.1 }"},
            {"average": 0.7, "strategy": "momentum"},
            {"strategy": "adaptive"},
        ],
    )
    def test_side_by_side_is_one_after_another(self, more, monkeypatch):
        """
        Full batches and no noise, so that nothing is drawn.
        """
        parts = built("non_private = true", **more)
        rows = [np.flatnonzero(coins) for coins in halves()]
        together = trained(parts, 0, rows, 20, 0, QUIET)
        monkeypatch.setattr(_copies, "_twin", lambda _: None)
        alone = trained(parts, 0, rows, 20, 0, QUIET)
        assert np.allclose(together, alone, atol=1e-5)
        assert not np.allclose(together[0], together[1], atol=1e-3)

    def test_more_copies_than_fit_take_turns(self, monkeypatch):
        parts, rows = built("non_private = true"), [np.flatnonzero(coins) for coins in halves()]
        together = trained(parts, 0, rows, 20, 0, QUIET)
        monkeypatch.setattr(_copies, "ENTRIES", 2 * parts.setup.layout.size + 1)
        said: list[str] = []
        assert np.allclose(trained(parts, 0, rows, 20, 0, said.append), together, atol=1e-6)
        assert sum("round 3 of 3" in line for line in said) == 2

    @pytest.mark.parametrize("name", strategies.names())
    def test_every_strategy_works_coordinate_by_coordinate(self, name):
        """
        Else copies end to end would not be copies.
        """
        strategy, rng = strategies.example(name), stream(2, "strategy")
        model, means = rng.normal(size=12).astype(np.float32), rng.normal(size=(3, 12)).astype(np.float32)

        def after(part: slice) -> ServerState:
            state = strategy.init(model[part])
            for mean in means:
                state = strategy.step(state, mean[part])
            return state

        parts = [after(slice(0, 5)).model, after(slice(5, 12)).model]
        assert np.allclose(after(slice(0, 12)).model, np.concatenate(parts), atol=1e-6)

    @pytest.mark.parametrize("rule", ["per_layer", "automatic"])
    def test_every_rule_of_clipping_side_by_side(self, rule, monkeypatch):
        parts = built(RECORD.format(noise=0.003), steps=f'2\nclipping = "{rule}"', clip=2.0)
        rows = [np.flatnonzero(coins) for coins in halves(2)]
        together = trained(parts, 0, rows, 20, 0, QUIET)
        flat = trained(built(RECORD.format(noise=0.003), clip=2.0), 0, rows, 20, 0, QUIET)
        monkeypatch.setattr(_copies, "_twin", lambda _: None)
        assert np.allclose(together, trained(parts, 0, rows, 20, 0, QUIET), atol=2e-3)
        assert not np.allclose(together, flat, atol=1e-2)

    @pytest.mark.parametrize("way", ["side by side", "alone"])
    def test_with_almost_no_noise_private_copies_are_the_same_either_way(self, way, monkeypatch):
        """
        Clip, divisor, weights and steps; compared with the gradient steps written out.
        """
        parts = built(RECORD.format(noise=0.01), sizes=(40, 30))
        rows = [np.flatnonzero(coins) for coins in halves(2)]
        if way == "alone":
            monkeypatch.setattr(_copies, "_twin", lambda _: None)
        models = trained(parts, 0, rows, 20, 0, QUIET)
        for model, own in zip(models, rows, strict=True):
            assert np.allclose(model, written_out(parts, [own, np.arange(40, 70)], [20, 30]), atol=2e-3)


def written_out(parts, rows, divisors):
    """Federated averaging of clipped gradient steps, by torch's own gradients of one record at a time."""
    import torch

    from sordino.local.losses import cross_entropy

    setup, theta = parts.setup, parts.start.copy()
    examples = setup.population.train.examples

    def clipped(at, row):
        setup.layout.restore(setup.module, at)
        setup.module.zero_grad()
        x, y = torch.from_numpy(examples.x[row : row + 1]), torch.from_numpy(examples.y[row : row + 1])
        cross_entropy(setup.module(x), y).sum().backward()
        gradient = np.concatenate([p.grad.reshape(-1).numpy() for p in setup.module.parameters()])
        return gradient * min(1.0, 0.5 / np.linalg.norm(gradient))

    for _ in range(3):
        changes = []
        for own, divisor in zip(rows, divisors, strict=True):
            local = theta.copy()
            for _ in range(2):
                local = local - 0.5 * sum(clipped(local, row) for row in own) / divisor
            changes.append(local - theta)
        theta = theta + sum(w * change for w, change in zip(setup.plan.weights, changes, strict=True))
    return theta


class TestNoise:
    def noise(self, way, monkeypatch, multiplier=50.0, count=24):
        """What is left of models whose clip is far below their noise."""
        parts = built(RECORD.format(noise=multiplier), sizes=(40, 30))
        if way == "alone":
            monkeypatch.setattr(_copies, "_twin", lambda _: None)
            count //= 4
        rows = [np.flatnonzero(coins) for coins in halves(count)]
        left = trained(parts, 0, rows, 20, 7, QUIET) - parts.start
        # Six steps in each silo, each with noise of multiplier · clip over its divisor, times lr and weight.
        weights = parts.setup.plan.weights
        expected = 0.5 * multiplier * 0.5 * np.sqrt(6) * np.hypot(weights[0] / 20, weights[1] / 30)
        return left, expected

    @pytest.mark.parametrize("way", ["side by side", "alone"])
    def test_every_copy_has_the_planned_noise_and_its_own(self, way, monkeypatch):
        left, expected = self.noise(way, monkeypatch)
        assert left.std() == pytest.approx(expected, rel=0.12)
        shared = np.corrcoef(left)[np.triu_indices(len(left), 1)]
        assert np.abs(shared).max() < 5.5 / np.sqrt(left.shape[1])

    @pytest.mark.parametrize("fault", ["half", "shared"])
    def test_a_broken_twin_is_found_out(self, fault, monkeypatch):
        """
        Half the noise, and the same noise in every copy.
        """
        from sordino.privacy import noise

        if fault == "half":
            whole = noise._normal
            monkeypatch.setattr(noise, "_normal", lambda stream, std, size: whole(stream, std / 2, size))
        else:
            monkeypatch.setattr(noise.SeededNoise, "_stream", lambda self, _: noise._Keystream(bytes(32)))
        with pytest.raises(AssertionError):
            self.test_every_copy_has_the_planned_noise_and_its_own("side by side", monkeypatch)

    def test_a_coin_moves_its_own_copy_only(self):
        """
        Divisors, weights and the other copies' noise are the same whoever is in.
        """
        parts, coins = built(), halves()
        other = coins.copy()
        other[0, 3] ^= True
        first, second = (trained(parts, 0, [np.flatnonzero(c) for c in each], 20, 0, QUIET) for each in (coins, other))
        assert not np.allclose(first[0], second[0])
        assert np.allclose(first[1:], second[1:], atol=1e-6)

    def test_noise_on_the_sum_is_repeated_too(self):
        """
        By the run's own setting, one copy after another.
        """
        privacy = PRIVATE + '\nnoise_at = "sum"'
        steps = built(privacy + "\n[simulation]\nsecure_sum = true", steps=1)
        models = trained(steps, 0, [np.arange(20)] * 2, 20, 0, QUIET)
        assert np.abs(models[0] - models[1]).max() > 1e-3


def audited(parts, **more):
    plan = parts.setup.plan
    return SimpleNamespace(
        plan=plan, population=parts.setup.population, built=parts, promise=None, client=0, seed=3, **more
    )


class TestTheSubject:
    def test_it_is_the_silos_records_and_everybodys_held_out_ones(self):
        subject = records.subject(audited(built()))
        assert len(subject.x) == len(subject.y) == 40
        assert (subject.y == subject.built.setup.population.train.silo(0).y).all()
        assert len(subject.population[1]) == 20
        assert not subject.public

    def test_of_a_large_silo_some_are_attacked_and_the_rest_is_always_in(self, monkeypatch):
        monkeypatch.setattr(records, "MOST", 25)
        subject, seen = records.subject(audited(built())), []

        def noted(built, client, rows, units, seed, progress):
            seen.append((client, rows, units))
            return np.zeros((len(rows), 3), np.float32)

        monkeypatch.setattr(_copies, "trained", noted)
        subject.train(halves(2, 25), 0, QUIET)
        ((client, rows, units),) = seen
        assert (client, units, len(subject.pool), len(subject.rest)) == (0, 15 + 12, 25, 15)
        assert all(set(subject.rest) <= set(each) for each in rows)
        assert [len(each) for each in rows] == (halves(2, 25).sum(axis=1) + 15).tolist()

    def test_of_a_large_population_some_are_looked_at(self, monkeypatch):
        subject = records.subject(audited(built()))
        everybody, _ = subject.population
        monkeypatch.setattr(records, "STRANGERS", 7)
        x, y = subject.population
        assert (len(x), len(y)) == (7, 7)
        assert all((row == everybody).all(axis=1).any() for row in x)
        assert (subject.population[0] == x).all()

    def test_models_of_an_earlier_attack_are_used_again(self, monkeypatch):
        subject = records.subject(audited(built()))
        coins = halves(6)
        first = subject.train(coins, 0, QUIET)
        monkeypatch.setattr(_copies, "trained", None)
        assert (subject.train(coins[:2], 0, QUIET) == first[:2]).all()
        with pytest.raises(TypeError):
            subject.train(~coins, 0, QUIET)

    @pytest.mark.parametrize(
        ("privacy", "reason"),
        [
            ('unit = "client"\nnoise_at = "coordinator"\nnoise_multiplier = 1.0\ndelta = 1e-3', "whole clients"),
            ('unit = "user"\nnoise_multiplier = 1.0\ndelta = 1e-3\nsilos_per_person = 1', "persons"),
        ],
    )
    def test_promises_that_are_not_about_a_record_do_not_fit(self, privacy, reason):
        plan = SimpleNamespace(experiment=parse(EXPERIMENT.format(**TERMS, privacy=privacy)))
        with pytest.raises(DoesNotFit, match=reason):
            records.subject(SimpleNamespace(plan=plan))

    def test_few_records_do_not_fit(self):
        with pytest.raises(DoesNotFit, match="too few"):
            records.subject(audited(built(sizes=(12, 30))))

    def test_log_probabilities_are_the_modules(self):
        subject = records.subject(audited(built()))
        models = np.stack([subject.built.start, 2 * subject.built.start])
        found = subject.log_probabilities(models, subject.x)
        assert found.shape == (2, 40, 3)
        assert np.allclose(np.exp(found).sum(axis=-1), 1.0)
        assert not np.allclose(found[0], found[1])


@pytest.fixture(scope="module")
def membership():
    """The benchmark, whose own folder is on the path as for any script."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
    try:
        return importlib.import_module("membership")
    finally:
        sys.path.pop(0)


class TestOnDigits:
    def test_positive_control_and_its_negative(self, membership):
        """
        Without privacy wrong labels are learnt by heart, and found; 24 models of 300 digits.
        """
        subject = membership.silo(0.0, records=300, rounds=4)
        finding = attacks.build("lira", {"references": 20, "targets": 4}).run(subject, QUIET)
        assert finding.verdict is Verdict.LEAKS
        assert finding.figures["auc_of_flagged_records"].value >= 0.95
        assert finding.figures["auc"].low > 0.6
        assert 0.45 < finding.figures["auc_of_permuted_coins"].value < 0.55

    def test_under_privacy_nothing_contradicts_the_promise(self, membership):
        subject = membership.silo(2.0, records=300, rounds=1)
        finding = attacks.build("lira", {"references": 20, "targets": 4}).run(subject, QUIET)
        assert finding.verdict is Verdict.HOLDS
        assert finding.figures["tpr_at_fpr_0.01_certified"].low <= finding.figures["tpr_at_fpr_0.01_allowed"].value

    def test_a_training_without_its_noise_is_refuted(self, membership):
        """
        The promise of noise 8 in a hundred steps, kept by a subject that trains without privacy.
        """
        promise = membership.silo(8.0, records=300, rounds=1).promise
        subject = replace(membership.silo(0.0, records=300, rounds=4), promise=promise)
        finding = attacks.build("lira", {"references": 20, "targets": 4}).run(subject, QUIET)
        assert finding.verdict is Verdict.REFUTED
        assert finding.lower_bound is not None

    @pytest.mark.slow
    @pytest.mark.parametrize("noise", [0.0, 0.6, 1.0, 2.0])
    def test_72_models(self, membership, noise):
        """
        The numbers that the audit must reach, at full size.
        """
        found = membership.study(noise)
        lira_and_rmia = [e["cpu_s"] for e in found["attacks"] if e["attack"] in {"lira online", "rmia offline"}]
        assert found["training_cpu_s"] + sum(lira_and_rmia) <= 60
        for each in found["attacks"]:
            assert 0.48 <= each["auc_of_permuted_coins"][0] <= 0.52
            if noise:
                assert each["verdict"] == "holds"
                assert each["points_above_ceiling"] == 0
                assert each["auc"][0] <= each["auc_allowed"][0]
        online = next(each for each in found["attacks"] if each["attack"] == "lira online")
        if not noise:
            assert online["auc_of_flagged_records"][0] >= 0.95
            assert online["tpr_at_fpr_0.01_certified"][1] >= 0.08
