"""The step that canaries drive is the product's own, by every engine and place; its scores are likelihood ratios."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from sordino.audit.attacks import _trials, attacks
from sordino.audit.attacks._trials import EPSILONS, STEPS, scores
from sordino.audit.findings import Finding, Verdict
from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects._rows import RowStep
from sordino.audit.subjects.canaries import Carried, Terms
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Unit
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.local.clipping import engines
from worlds import canaries as worlds
from worlds.canaries import CLAIMED

SHORT = Terms(rate=0.5, noise_multiplier=0.05, steps=30)
"""So little noise that every participation can be read."""

COINS = np.arange(60)[None] % 2 == 0


def step(terms: Terms = SHORT, engine: str = "auto", **fields: object) -> RowStep:
    return RowStep(terms, engines.build(engine, {}), Gaussian, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", engines.names())
@pytest.mark.parametrize("rule", ["flat", "per_layer", "automatic"])
def test_every_engine_and_rule_adds_a_canary_of_exactly_the_clip(engine: str, rule: str) -> None:
    """Who joins moves its row by the clip norm, who is out by nothing; all engines draw the same coins and noise."""
    short = replace(SHORT, steps=4)
    released = step(short, engine, clip=0.3, rule=rule).released(COINS, short, 1)[0]
    joined = released.round()
    assert set(np.unique(joined)) == {0.0, 1.0}
    assert not joined[:, ~COINS[0]].any()
    assert (released - joined).std() == pytest.approx(0.05, rel=0.3)
    np.testing.assert_allclose(
        released, step(short, "oracle", clip=0.3, rule=rule).released(COINS, short, 1)[0], atol=1e-3
    )


def test_every_trainer_and_persons_are_driven_too() -> None:
    """One noise at the sum; silos side by side; persons as a whole, and record by record up to their cap."""
    for fields in ({"at": "sum"}, {"at": "side by side"}, {"unit": Unit.USER}, {"unit": Unit.USER, "at": "sum"}):
        joined = step(**fields).released(COINS, SHORT, 1)[0].round()
        assert joined[:, COINS[0]].mean() == pytest.approx(0.5, abs=0.06)
        assert not joined[:, ~COINS[0]].any()
    three = replace(SHORT, records=3)
    apart = RowStep(three, engines.build("auto", {}), lambda z: Gaussian(z / 3), unit=Unit.USER)
    counted = apart.released(COINS, three, 1)[0].round()
    assert set(np.unique(counted)) == {0.0, 1.0, 2.0, 3.0}
    assert counted[:, COINS[0]].mean() == pytest.approx(1.5, abs=0.12)


def test_trainings_of_one_call_have_noise_of_their_own() -> None:
    """Nor do its steps share any."""
    released = step().released(np.zeros((2, 500), dtype=bool), replace(SHORT, steps=3), 1).reshape(6, 500)
    assert max(abs(np.corrcoef(a, b)[0, 1]) for a, b in pairwise(released)) < 4 / np.sqrt(500)


@pytest.mark.parametrize("records", [1, 3])
def test_the_first_score_is_the_likelihood_ratio(records: int) -> None:
    """Against the densities written out: a mixture over how many of the records joined."""
    terms = Terms(0.3, 1.5, 4, records)
    released = stream(0, "releases").normal(size=(4, 5))
    chances = [0.7, 0.3] if records == 1 else [0.343, 0.441, 0.189, 0.027]
    inside = sum(p * norm.pdf(released, j, 1.5) for j, p in enumerate(chances))
    expected = np.log(inside / norm.pdf(released, 0, 1.5)).sum(axis=0)
    np.testing.assert_allclose(terms.log_ratios(released), expected)
    assert np.isfinite(replace(terms, noise_multiplier=1e-9).log_ratios(released)).all()


def test_scores_know_no_coin() -> None:
    """Exchanging canaries exchanges scores, and nothing else."""
    released = stream(0, "releases").normal(size=(9, 7))
    order = np.array([3, 1, 6, 0, 2, 5, 4])
    for name, score in scores(released, SHORT).items():
        np.testing.assert_allclose(scores(released[:, order], SHORT)[name], score[order])


def test_a_claim_with_power_is_tested_as_it_is_and_others_by_the_same_code_at_another_noise() -> None:
    """The promise that a bound is printed beside is always the one of the training that was attacked."""
    own = step(worlds.CLAIMED)
    promise = worlds.promised(worlds.CLAIMED)
    assert _trials.driven_at(own, promise)[:2] == (worlds.CLAIMED, promise)
    for far in (replace(worlds.CLAIMED, noise_multiplier=0.8), replace(worlds.CLAIMED, steps=4000)):
        terms, told, what = _trials.driven_at(step(far), worlds.promised(far))
        assert EPSILONS[0] <= told.epsilon <= EPSILONS[1]
        assert (terms.rate, terms.steps) == (far.rate, STEPS)
        assert f"noise multiplier {terms.noise_multiplier:.3g}" in what
    replaced = Promise.declared(promise.sequence, 1e-5, adjacency=Adjacency.REPLACE_ONE, by="a test")
    assert _trials.driven_at(own, replaced)[1].adjacency is Adjacency.ADD_REMOVE


def attacked(name: str, make: worlds.Maker, seed: int = 0, **fields: object) -> Finding:
    world = worlds.World(worlds.promised(worlds.CLAIMED), make(worlds.CLAIMED), seed=seed)
    found: Finding = attacks.build(name, fields).run(world, lambda _: None)
    return found


@pytest.mark.parametrize("fault", ["noise halved", "clipped at 2C", "batch mean clipped"])
def test_two_worlds_tell_what_one_release_shows(fault: str) -> None:
    """With 300 runs of each world, which see noise halved in about 6 of 8 audits; a rate is not seen: all take part."""
    assert attacked("two_world", worlds.FAULTS[fault], seed=1, runs=300).verdict is (
        Verdict.HOLDS if fault == "batch mean clipped" else Verdict.REFUTED  # a batch of one is its own mean
    )


def test_two_worlds_let_sound_releases_pass() -> None:
    """Ten audits; their bounds say something, and never more than the claim."""
    found = [attacked("two_world", worlds.SOUND, seed, runs=300) for seed in range(10)]
    assert all(finding.verdict is Verdict.HOLDS and not finding.above_claim for finding in found)
    assert np.mean([finding.lower_bound for finding in found]) > 0.05  # 0.12 and 0.22 over two times 16 seeds


@pytest.mark.parametrize("fault", worlds.FAULTS)
def test_order_statistics_see_every_fault(fault: str) -> None:
    """Under more assumptions than the claim test, and so under another grade."""
    assert attacked("order_statistic", worlds.FAULTS[fault]).verdict is Verdict.REFUTED


def test_order_statistics_let_sound_trainings_pass() -> None:
    """Four audits, on the whole with tighter bounds than Steinke's."""
    names = ("order_statistic", "one_run")
    found = [[attacked(name, worlds.SOUND, seed, canaries=2000) for name in names] for seed in range(4)]
    bounds = np.array([[finding.lower_bound for finding in pair] for pair in found], dtype=float)
    assert all(finding.verdict is Verdict.HOLDS for pair in found for finding in pair)
    assert (bounds > 0).all()
    assert (bounds <= worlds.promised(worlds.CLAIMED).epsilon).all()
    tight, plain = bounds.mean(axis=0)
    assert plain < tight


def test_what_is_missing_is_said() -> None:
    """Without a step there is nothing to repeat; without canaries there is nothing at all."""
    with pytest.raises(DoesNotFit, match="can be run again"):
        attacks.example("two_world").run(worlds.World(None, None), lambda _: None)
    with pytest.raises(DoesNotFit, match="no private step"):
        attacks.example("one_run").run(worlds.World(None, None), lambda _: None)


def test_a_runs_own_losses_refute_no_declared_mechanism() -> None:
    """Losses of one model depend on each other, so order statistics of them are a figure; the one-run bound holds."""
    coins = stream(0, "coins").random(400) < 0.5
    promise = CLAIMED.promise(1e-5, Unit.RECORD, "a test")
    subject = worlds.World(promise, None, Carried(coins, {"loss": coins.astype(np.float64)}, promise))
    assert attacks.build("one_run", {}).run(subject, lambda _: None).verdict is Verdict.REFUTED
    finding = attacks.build("order_statistic", {}).run(subject, lambda _: None)
    assert finding.verdict is Verdict.HOLDS
    assert finding.figures["epsilon at least, own model"].value > promise.epsilon


def test_the_training_that_refutes_is_the_one_that_is_shown() -> None:
    """A sound step beside a model that knows its canaries by heart: the bound is the model's, beside its own claim."""
    coins = stream(0, "coins").random(400) < 0.5
    promise = CLAIMED.promise(1e-5, Unit.RECORD, "the run's own claim")
    carried = Carried(coins, {"loss": coins.astype(np.float64)}, promise)
    subject = replace(worlds.sound(), carried=carried)
    for name in ("one_run", "one_run_curve"):
        finding = attacks.build(name, {"canaries": 500}).run(subject, lambda _: None)
        assert finding.verdict is Verdict.REFUTED
        assert finding.above_claim
        assert finding.promise == promise
