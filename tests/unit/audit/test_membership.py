"""Scores of membership by hand, no coin of a target in them, and verdicts that the dependence of scores cannot fool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from sordino.audit.attacks import _judged, attacks, lira, rmia
from sordino.audit.attacks._columns import attributes, imputed
from sordino.audit.attacks._membership import Game, of_label, play
from sordino.audit.attacks._references import mean, variance
from sordino.audit.findings import Verdict
from sordino.audit.stats.ceiling import ceiling
from sordino.audit.stats.curve_test import rejects
from sordino.audit.stats.curves import curve_of
from sordino.audit.stats.roc import certified_tpr
from sordino.audit.subjects import DoesNotFit
from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from worlds import records as toy

QUIET = lambda _: None  # noqa: E731 - a progress that says nothing
TABLES = [
    ("loss_threshold", {}),
    ("lira", {"mode": "online"}),
    ("lira", {"mode": "offline"}),
    ("rmia", {"mode": "online"}),
    ("rmia", {"mode": "offline"}),
    ("attribute_inference", {}),
]


def game(targets=2, references=5, records=4, population=6, seed=1) -> Game:
    rng = stream(seed, "a small game")
    models, shape = targets + references, (targets + references, records)
    log_p = np.log(rng.uniform(0.05, 0.95, size=shape))
    included = rng.random(shape) < 0.5
    included[-4:] = [[True], [True], [False], [False]]  # every record has references of both kinds
    return Game(
        targets=targets,
        models=np.zeros((models, 1), np.float32),
        included=included,
        log_p=log_p,
        log_odds=log_p - np.log1p(-np.exp(log_p)),
        outside=np.log(rng.uniform(0.05, 0.95, size=(models, population))),
    )


class TestScoresByHand:
    def test_log_odds_keep_their_digits_where_the_probability_is_one(self):
        """
        From the other classes' log-probabilities: one less the probability would be 0 in float64.
        """
        logits = np.array([[[90.0, 0.0, 0.0]]])
        log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        own, odds = of_label(log_p, np.array([0]))
        assert own[0, 0] == 0.0
        assert odds[0, 0] == pytest.approx(90 - np.log(2), rel=1e-12)

    @pytest.mark.parametrize("mode", ["online", "offline"])
    def test_lira(self, mode):
        small = game()
        found = lira.scores(small, mode)
        inside, outside = small.log_odds[2:], small.log_odds[2:]
        for record in range(4):
            known = small.known[:, record]
            with_it, without = inside[known, record], outside[~known, record]
            assert min(len(with_it), len(without)) > 0
            s_in = np.sqrt(sum_of_squares(inside, small.known))
            s_out = np.sqrt(sum_of_squares(outside, ~small.known))
            for target in range(2):
                phi = small.log_odds[target, record]
                ratio = norm.logpdf(phi, with_it.mean(), s_in) - norm.logpdf(phi, without.mean(), s_out)
                tail = -norm.logsf(phi, without.mean(), s_out)
                assert found[target, record] == pytest.approx(ratio if mode == "online" else tail, rel=1e-9)

    def test_offline_lira_ranks_as_the_normal_law_and_does_not_tie_in_the_tail(self):
        small = game()
        odds = small.log_odds.copy()
        odds[:2] += [[100.0], [101.0]]
        far = replace(small, log_odds=odds)
        found = lira.scores(far, "offline")
        assert (found[1] > found[0])[far.log_odds[1] > far.log_odds[0]].all()
        assert np.isfinite(found).all()

    def test_a_record_has_a_variance_of_its_own_from_64_models_on(self):
        rng = stream(2, "variances")
        values = rng.normal(size=(70, 3)) * [1.0, 2.0, 3.0]
        everywhere = np.ones((70, 3), dtype=bool)
        assert variance(values, everywhere, 64) == pytest.approx(values.var(axis=0, ddof=1))
        few = variance(values[:60], everywhere[:60], 64)
        assert few == pytest.approx([values[:60].var(axis=0, ddof=1).mean()] * 3)

    def test_a_record_that_no_model_saw_has_everybodys_mean(self):
        values, chosen = np.array([[1.0, 4.0], [3.0, 8.0]]), np.array([[True, False], [True, False]])
        assert mean(values, chosen).tolist() == [2.0, 2.0]

    @pytest.mark.parametrize(
        ("mode", "gamma", "a"), [("online", 1.5, 0.0), ("offline", 2.0, 0.3), ("offline", 1.0, 1.0)]
    )
    def test_rmia(self, mode, gamma, a):
        small = game()
        found = rmia.scores(small, mode, gamma, a)
        p, z = np.exp(small.log_p), np.exp(small.outside)
        for record in range(4):
            known = small.known[:, record]
            out = p[2:][~known, record].mean()
            for target in range(2):
                wins = 0
                for k in range(6):
                    base, base_z = out, z[2:, k].mean()
                    if mode == "offline":
                        base, base_z = ((1 + a) * b / 2 + (1 - a) / 2 for b in (base, base_z))
                    else:
                        base = (p[2:][known, record].mean() + out) / 2
                    wins += p[target, record] / base >= gamma * z[target, k] / base_z
                assert found[target, record] == pytest.approx(wins / 6)

    def test_the_extrapolation_of_rmia_is_chosen_without_the_targets(self):
        small = game(targets=3, references=12, records=40, population=30)
        other = replace(small, included=np.concatenate([~small.coins, small.known]))
        assert rmia.tuned(small, 2.0) == rmia.tuned(other, 2.0)


def sum_of_squares(values, chosen):
    """One variance for all records: squares about each record's mean, over their degrees of freedom."""
    squares = sum(
        np.square(values[chosen[:, i], i] - values[chosen[:, i], i].mean()).sum() for i in range(values.shape[1])
    )
    return squares / sum(max(chosen[:, i].sum() - 1, 0) for i in range(values.shape[1]))


class TestTheGame:
    def test_coins_are_fair_independent_and_a_short_game_begins_like_a_long_one(self):
        """
        So that a subject can keep the models of an earlier attack.
        """
        subject = toy.sound()
        long, short = (play(subject, 8, more, QUIET) for more in (64, 0))
        assert (long.coins == short.coins).all()
        assert abs(long.included.mean() - 0.5) < 4 * 0.5 / np.sqrt(long.included.size)
        shared = np.corrcoef(long.included.astype(float))[np.triu_indices(72, 1)]
        assert np.abs(shared).max() < 6 / np.sqrt(toy.RECORDS)

    @pytest.mark.parametrize("attack", [lira, rmia])
    @pytest.mark.parametrize("mode", ["online", "offline"])
    def test_no_score_depends_on_a_targets_coin(self, attack, mode):
        """
        Else the coins would not be fair given the scores, and nothing could be refuted by them.
        """
        small = game()
        other = replace(small, included=np.concatenate([~small.coins, small.known]))
        more = () if attack is lira else (2.0, 0.3)
        assert (attack.scores(small, mode, *more) == attack.scores(other, mode, *more)).all()


class TestVerdicts:
    @pytest.mark.parametrize(("name", "table"), TABLES)
    def test_a_leak_without_a_promise_is_a_leak_and_no_refutation(self, name, table):
        finding = attacks.build(name, table).run(toy.Toy(noise=0.0, promises=False), QUIET)
        assert finding.verdict is Verdict.LEAKS
        assert finding.lower_bound is None
        assert "ceiling" not in finding.curves["roc"]

    @pytest.mark.parametrize(("name", "table"), TABLES)
    def test_coins_that_no_model_saw_are_not_found(self, name, table):
        """
        The negative control: models trained on other coins than those that are counted.
        """
        subject = toy.Toy(noise=0.0, promises=False)
        subject.train = lambda included, seed, progress: toy.Toy.train(subject, ~included[:, ::-1], seed, progress)
        finding = attacks.build(name, table).run(subject, QUIET)
        assert finding.verdict is Verdict.HOLDS, finding.says

    @pytest.mark.parametrize(("name", "table"), [pair for pair in TABLES if pair[0] != "attribute_inference"])
    def test_under_the_promised_noise_every_rate_stays_under_the_ceiling(self, name, table):
        """
        As far as it is certified; and the drawn ceiling is the promise's own.
        """
        finding = attacks.build(name, table).run(toy.sound(), QUIET)
        curve = {key: np.array(values) for key, values in finding.curves["roc"].items()}
        assert curve["ceiling"] == pytest.approx(ceiling(toy.promised(), curve["fpr"]))
        assert (curve["tpr"][curve["fpr"] == 0] == 0).all()
        certified = finding.figures["tpr_at_fpr_0.01_certified"]
        assert certified.low <= finding.figures["tpr_at_fpr_0.01_allowed"].value
        assert finding.figures["auc"].value <= finding.figures["auc_allowed"].value
        assert abs(finding.figures["auc_of_permuted_coins"].value - 0.5) < 0.06

    def test_noise_that_is_a_tenth_of_what_is_promised_is_refuted(self):
        finding = attacks.build("lira", {}).run(toy.Toy(noise=toy.PROMISED_NOISE / 10), QUIET)
        assert finding.verdict is Verdict.REFUTED
        assert toy.promised().epsilon < finding.lower_bound

    def test_sound_worlds_are_refuted_no_more_often_than_stated(self):
        """
        Forty worlds at 95 %: more than six refutations have a chance below one in a thousand.
        """
        refuted = 0
        for seed in range(40):
            played = play(toy.Toy(noise=toy.PROMISED_NOISE, seed=seed), 8, 16, QUIET)
            found = lira.scores(played, "online")
            refuted += _judged.refutation(toy.promised(), played.coins, found, confidence=0.95) is not None
        assert refuted <= 6

    def test_why_certified_rates_are_no_refutation(self):
        """
        A mechanism that tells all one time in ten and else nothing is (0, 0.1)-DP. When it does tell, certified rates
        lie above the ceiling, as if draws had been independent; the one-run test stays silent at 5 %.
        """
        coins = stream(3, "tells all").random(400) < 0.5
        told = coins.astype(float)
        assert certified_tpr(told[coins], told[~coins], fpr=0.02).low > 0.02 + 0.1
        assert not rejects(curve_of(np.array([0.0]), np.array([0.1])), 400, 400, 400, alpha=0.05)
        assert rejects(curve_of(np.array([0.0]), np.array([0.01])), 400, 400, 400, alpha=0.05)

    def test_too_few_non_members_are_said_to_be_too_few(self):
        finding = attacks.build("loss_threshold", {"targets": 2}).run(toy.sound(), QUIET)
        assert "too few to certify" in finding.says
        assert "tpr_at_fpr_0.01_certified" not in finding.figures

    def test_private_records_stay_local(self):
        subject = toy.sound()
        assert not attacks.build("lira", {"references": 4}).run(subject, QUIET).local
        subject.public = False
        assert attacks.build("lira", {"references": 4}).run(subject, QUIET).local

    def test_flagged_records_are_told_apart(self):
        subject = toy.leaky()
        subject.flagged = np.arange(toy.RECORDS) < 30
        figure = attacks.build("lira", {}).run(subject, QUIET).figures["auc_of_flagged_records"]
        assert figure.low > 0.9

    def test_the_loss_threshold_says_that_it_is_no_evidence_alone(self):
        assert "LiRA" in attacks.build("loss_threshold", {}).run(toy.sound(), QUIET).does_not_show

    def test_the_resolution_of_rmia_is_stated(self):
        finding = attacks.build("rmia", {}).run(toy.sound(), QUIET)
        assert finding.figures["resolution"].value == 1 / toy.POPULATION
        assert "too coarse for 0.1%" in finding.does_not_show


class TestAttributes:
    def test_categories_and_what_is_missing_are_one_attribute(self):
        names = ("cp=a", "cp=b", "age", "fbs", "fbs missing")
        x = np.array([[0, 1, 0.3, 1, 0], [1, 0, 0.4, 0, 1], [0, 0, 0.5, -1, 0]], dtype=np.float32)
        found = {one.name: one for one in attributes(names, x, most=3)}
        assert list(found) == ["cp", "age", "fbs"]
        assert list({one.name: one for one in attributes(names, x[:, :], most=2)}) == []
        cp = found["cp"]
        assert cp.values[cp.of(x)].tolist() == x[:, :2].tolist()
        replaced = cp.replaced(x).reshape(3, 3, 5)
        assert (replaced[:, :, 2:] == x[:, None, 2:]).all()
        assert (replaced[:, :, :2] == cp.values[None]).all()

    def test_the_imputation_does_not_look_at_the_value(self):
        rng = stream(1, "imputation")
        x = np.column_stack([rng.integers(2, size=50), rng.normal(size=(50, 2))])
        (sex,) = attributes(("sex", "a", "b"), x, most=2)
        other = x.copy()
        other[:, 0] = 1 - other[:, 0]
        assert (imputed(sex, x, x, 5) == imputed(sex, other, x, 5)).all()
        assert imputed(sex, x, x, 5).sum(axis=1) == pytest.approx(np.ones(50))

    def test_what_follows_from_other_columns_is_no_leak(self):
        """
        A model of a public law: right for everybody, members or not.
        """
        subject = toy.Toy(noise=0.0, promises=False)
        subject.y = (subject.x[:, 0] > 0).astype(int)
        subject.population = (subject.population[0], (subject.population[0][:, 0] > 0).astype(int))
        subject.train = lambda included, seed, progress: np.zeros((len(included), 1), np.float32)
        subject.log_probabilities = lambda models, x: np.log(
            np.stack([np.where(x[:, 0] > 0, 0.1, 0.9), np.where(x[:, 0] > 0, 0.9, 0.1)], axis=-1)
        )[None].repeat(len(models), 0)
        finding = attacks.build("attribute_inference", {"column": "column 0"}).run(subject, QUIET)
        assert finding.verdict is Verdict.HOLDS
        assert finding.figures["right_for_members_column 0"].value > 0.99
        assert finding.figures["leakage_column 0"].value == 0

    def test_what_does_not_fit_is_said(self):
        subject = toy.sound()
        subject.features = ()
        with pytest.raises(DoesNotFit, match="no named columns"):
            attacks.build("attribute_inference", {}).run(subject, QUIET)
        with pytest.raises(ConfigError, match="did you mean 'column 1'"):
            attacks.build("attribute_inference", {"column": "colum 1"}).run(toy.sound(), QUIET)
        subject = toy.sound()
        subject.population = (subject.x[:0], subject.y[:0])
        for name in ("rmia", "attribute_inference"):
            with pytest.raises(DoesNotFit, match="population"):
                attacks.build(name, {}).run(subject, QUIET)
