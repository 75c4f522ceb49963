"""Attacks on language models against models that remember everything, nothing, or exactly what a Gaussian allows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chisquare, norm, skewnorm

from sordino.audit.attacks import attacks
from sordino.audit.attacks._decoding import beam, sampled
from sordino.audit.attacks._secrets import Space, allowed, by_chance, drawn, group_privacy, planted
from sordino.audit.attacks.exposure import exposure, extrapolated
from sordino.audit.attacks.new_token_canaries import NewTokenCanaries
from sordino.audit.attacks.sequence_membership import SequenceMembership
from sordino.audit.findings import Verdict
from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Sequences, total
from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.core.types import Adjacency, Unit
from sordino.privacy import events, gaussian
from worlds.language import ALPHABET, World

QUIET = lambda _: None  # noqa: E731 - a progress that says nothing
SECRETS = {"copies": [1, 8], "secrets": 4, "digits": 3}


def promise(noise_multiplier: float, unit: Unit = Unit.RECORD) -> Promise:
    return Promise.declared([(events.gaussian(noise_multiplier), 1)], 1e-5, unit=unit, by="a test")


@dataclass(frozen=True)
class Memory:
    """A language model made of counts: the share of each letter after the last three, mixed with even chances.

    Args:
        promise: What is claimed.
        forgets: Planted sequences leave no trace.
        seed: Of the attack.
    """

    promise: Promise | None = None
    forgets: bool = False
    seed: int = 0
    vocabulary: int = 64
    labels: int | None = None
    public: bool = False
    longest: int = 64
    size: int = 1000
    start: Any = field(default_factory=dict)

    def used(self):
        return np.arange(1, len(ALPHABET) + 1)

    def unused(self):
        return np.arange(len(ALPHABET) + 1, self.vocabulary)

    def encode(self, texts: Sequence[str]) -> Sequences:
        return Sequences.of([[ALPHABET.index(letter) + 1 for letter in text] for text in texts])

    def own(self) -> Sequences:
        rng = stream(self.seed, "noise")
        return Sequences.of(rng.integers(1, 30, size=(80, 8)))

    def records_of(self, sequences):
        return 1

    def train(self, planted, seed, *, keep=None):
        own = self.own() if keep is None else self.own().take(keep)
        model: dict[tuple[int, ...], Counter[int]] = {}
        for part in (own,) if self.forgets else (own, planted):
            for row, end in zip(part.tokens.tolist(), part.lengths, strict=True):
                for place in range(1, end):
                    model.setdefault(tuple(row[max(0, place - 6) : place]), Counter())[row[place]] += 1
        return model

    def next_token(self, model, prefixes):
        result = np.full((len(prefixes), self.vocabulary), 1e-3)
        for row, prefix in enumerate(prefixes.tolist()):
            for token, count in model.get(tuple(prefix[-6:]), Counter()).items():
                result[row, token] += count
        return np.log(result / result.sum(axis=1, keepdims=True))

    def log_likelihoods(self, model, sequences, since=1):
        result = np.full(sequences.tokens.shape, np.nan)
        for place in range(since, sequences.tokens.shape[1]):
            said = self.next_token(model, sequences.tokens[:, max(0, place - 6) : place])
            result[:, place] = said[np.arange(len(said)), sequences.tokens[:, place]]
        return np.where(sequences.counted, result, np.nan)[:, since:]


class TestExposure:
    def test_a_model_that_remembers_everything_ranks_secrets_first(self):
        """
        Positive control: all of the space's bits; secrets that were never planted stay at chance.
        """
        found = attacks.build("exposure", SECRETS).run(Memory(), QUIET)
        assert found.verdict is Verdict.LEAKS
        assert found.figures["exposure_1_copy"].value == pytest.approx(np.log2(1000))
        assert found.figures["exposure_never_planted"].value < 4

    def test_a_model_that_forgets_them_does_not(self):
        """
        Negative control: all ranks tie, and a tie is never counted as knowing.
        """
        found = attacks.build("exposure", SECRETS).run(Memory(forgets=True), QUIET)
        assert found.verdict is Verdict.HOLDS
        assert found.figures["exposure_8_copies"].value == 0

    @pytest.mark.parametrize(("noise", "verdict"), [(10.0, Verdict.REFUTED), (0.3, Verdict.LEAKS)])
    def test_a_promise_is_contradicted_only_where_it_forbids_the_ranks(self, noise, verdict):
        """
        Rank 1 of 1,000 by one copy has probability e^ε/1,000 at most: too little at ε = 0.36, plenty at ε = 21.
        """
        found = attacks.build("exposure", SECRETS).run(Memory(promise(noise)), QUIET)
        assert found.verdict is verdict
        assert "The unit is the record" in found.says

    def test_the_unit_is_printed(self):
        """
        Copies in one client are one client's: covered together.
        """
        found = attacks.build("exposure", SECRETS).run(Memory(promise(1.0, Unit.CLIENT)), QUIET)
        assert "The unit is the client: all copies" in found.says

    def test_extrapolated_and_exact_exposure_agree(self):
        """
        On a trained network: the sample of 400 finds what the enumeration of 1,000 does, to a bit.
        """
        world = World(noise_multiplier=None)
        space = Space("the pin of {name} is {secret}", 3)
        secrets = drawn(world, space, (2,), 8)
        model = world.train(planted(world, space, secrets), 1)
        exact, far = [], []
        for secret in secrets:
            candidates = world.encode(space.texts(secret.name, [secret.number, *range(1000)]))
            own, *others = total(world.log_likelihoods(model, candidates))
            everybody = np.array(others)
            exact.append(exposure(int((everybody >= own).sum()), 1000))
            far.append(extrapolated(own, stream(3, "sample").choice(everybody, 400)))
        exact, far = np.array(exact), np.array(far)
        assert exact[:8].mean() > exact[8:].mean() + 2, "a world in which there is something to see"
        seen = exact < 8  # beyond, a sample of 400 says no more than that it is far out
        assert np.abs(exact - far)[seen].max() < 1
        assert far[~seen].min(initial=9) > 5

    def test_extrapolation_needs_the_skew(self):
        """
        On a law with known tails: half a bit off at most, where a normal law is more than one off.
        """
        law = skewnorm(6)
        others, own = law.rvs(5000, random_state=stream(1, "law")), float(law.isf(2.0**-10))
        assert extrapolated(own, others) == pytest.approx(10, abs=0.5)
        assert abs(-np.log2(norm.sf(own, others.mean(), others.std())) - 10) > 1

    def test_chance_is_chance(self):
        """
        Ranks of secrets that were never seen are called remembered in 5 % of worlds at most (false alarms 1e-3);
        ranks that are half as large are found.
        """
        rng = stream(2, "ranks")
        ranks = rng.integers(1, 1001, size=(2000, 5)) / 1000
        alarms = sum(by_chance(row) <= 0.05 for row in ranks)
        assert alarms <= binom.isf(1e-3, 2000, 0.05)
        assert sum(by_chance(row**3) <= 0.05 for row in ranks) > 1500

    @pytest.mark.parametrize("wrong", [{"copies": [0]}, {"secrets": 1}, {"template": "no secret of {name}"}])
    def test_options_are_checked(self, wrong):
        """
        Before anything runs.
        """
        with pytest.raises(ConfigError):
            attacks.build("exposure", wrong)

    def test_a_large_network_is_sampled(self):
        """
        What is affordable is the product of candidates and parameters.
        """
        attack, space = attacks.build("exposure", {}), Space("{name} {secret}", 4)
        assert attack.exact(Memory(), space)
        assert not attack.exact(Memory(size=135_000_000), space)
        found = replace(attack, secrets=2, copies=(8,), sample=200).run(Memory(size=135_000_000), QUIET)
        assert "extrapolated" in found.says
        assert found.verdict is Verdict.LEAKS


class TestGroupPrivacy:
    @pytest.mark.parametrize("noise", [0.7, 2.0])
    @pytest.mark.parametrize("copies", [2, 8])
    def test_it_is_above_the_exact_curve(self, noise, copies):
        """
        k copies shift a Gaussian k times as far: its exact δ at k·ε is below ours, and above one record's δ.
        """
        claimed = promise(noise)
        epsilon, delta = group_privacy(claimed, copies)
        exact = float(gaussian.delta_of(epsilon, copies / noise))
        assert epsilon == pytest.approx(copies * claimed.epsilon)
        assert exact <= delta
        assert exact > claimed.delta, "one record's delta would not do"

    def test_a_client_is_covered_as_a_whole(self):
        """
        However many copies.
        """
        claimed = promise(1.0, Unit.CLIENT)
        assert group_privacy(claimed, 32) == (claimed.epsilon, claimed.delta)

    def test_deltas_add_up_where_epsilon_is_nothing(self):
        """
        The limit of the growth for ε towards 0 is the number of records.
        """
        claimed = replace(promise(1.0), epsilon=0.0)
        assert group_privacy(claimed, 5) == (0.0, pytest.approx(5e-5))
        assert group_privacy(replace(claimed, epsilon=1e-9), 5)[1] == pytest.approx(5e-5)

    def test_nothing_is_allowed_beyond_certainty(self):
        """
        And at ε = 0 nothing but chance.
        """
        assert allowed(promise(0.1), 32, 1e-4) == 1.0
        assert allowed(replace(promise(1.0), epsilon=0.0, delta=0.0), 1, 1e-3) == pytest.approx(1e-3)


@dataclass(frozen=True)
class Chain:
    """A table of what follows what."""

    table: np.ndarray

    @property
    def vocabulary(self):
        return len(self.table)

    def next_token(self, model, prefixes):
        return np.log(self.table[prefixes[:, -1]])


class TestDecoding:
    chain = Chain(np.array([[0.0, 0.6, 0.4], [0.35, 0.35, 0.3], [0.02, 0.9, 0.08]]) + 1e-9)

    def test_a_wide_beam_finds_the_likeliest(self):
        """
        As all continuations by hand do; a greedy one does not.
        """

        def chance(path):
            return np.prod([self.chain.table[a, b] for a, b in itertools.pairwise((0, *path))])

        best = sorted(itertools.product(range(3), repeat=3), key=chance, reverse=True)
        found = beam(self.chain, None, np.array([0]), 3, 9)
        assert tuple(found[0]) == best[0]
        assert tuple(beam(self.chain, None, np.array([0]), 2, 1)[0]) != (2, 1)
        assert tuple(beam(self.chain, None, np.array([0]), 2, 9)[0]) == (2, 1)

    def test_draws_follow_the_model(self):
        """
        Chi-square at 1e-3; shifted draws are rejected.
        """
        found = sampled(self.chain, None, np.array([1]), 1, 3000, stream(0, "draws"))[:, 0]
        seen = np.bincount(found, minlength=3)
        assert chisquare(seen, 3000 * self.chain.table[1] / self.chain.table[1].sum()).pvalue > 1e-3
        assert chisquare(np.roll(seen, 1), 3000 * np.array([0.5, 0.3, 0.2])).pvalue < 1e-3


class TestExtraction:
    @pytest.mark.parametrize("decode", ["greedy", "beam", "sample"])
    def test_a_model_that_remembers_gives_all_secrets_away(self, decode):
        """
        By every decoding; none of the secrets that it never saw.
        """
        found = attacks.build("extraction", {**SECRETS, "decode": decode}).run(Memory(), QUIET)
        assert found.verdict is Verdict.LEAKS
        assert found.figures["extracted_8_copies"].value == 1.0
        assert found.figures["extracted_never_planted"].value == 0.0

    def test_a_model_that_forgets_gives_nothing_away(self):
        """
        Negative control.
        """
        found = attacks.build("extraction", SECRETS).run(Memory(forgets=True), QUIET)
        assert found.verdict is Verdict.HOLDS

    @pytest.mark.parametrize(("noise", "verdict"), [(20.0, Verdict.REFUTED), (0.3, Verdict.LEAKS)])
    def test_a_promise_is_contradicted_only_where_it_forbids_so_many(self, noise, verdict):
        """
        The expected number under the promise, by Markov.
        """
        found = attacks.build("extraction", {**SECRETS, "decode": "greedy"}).run(Memory(promise(noise)), QUIET)
        assert found.verdict is verdict


@dataclass(frozen=True)
class Signals:
    """Not a language at all: a score per sequence, N(μ, 1) for those that are in and N(0, 1) for the others.

    That is what the best attack on a μ-GDP mechanism sees.
    """

    promise: Promise | None
    mu: float
    seed: int = 0
    rows: int = 400
    vocabulary: int = 1000
    labels: int | None = None
    public: bool = False
    longest: int = 64
    start: Any = None

    def used(self):
        return np.arange(500)

    def unused(self):
        return np.arange(500, 1000)

    def own(self):
        return Sequences.of([[i + 1, 7] for i in range(self.rows)])

    def train(self, planted, seed, *, keep=None):
        ins = {tuple(row) for row in planted.tokens.tolist()}
        return seed, ins if keep is None else {tuple(row) for row in self.own().take(keep).tokens.tolist()}

    def log_likelihoods(self, model, sequences, since=1):
        result = np.where(sequences.counted, 0.0, np.nan)
        if model is not None:
            seed, ins = model
            noise = stream(self.seed, "signals", seed).normal(size=len(sequences))
            shift = self.mu * np.array([tuple(row) in ins for row in sequences.tokens.tolist()])
            result += (shift + noise)[:, None]
        return result[:, since:]


class TestSequenceMembership:
    def test_a_model_that_ignores_its_records_leaks_nothing(self):
        """
        Forty null worlds: verdicts other than HOLDS in 5 % at most (false alarms 1e-3), AUC about one half.
        """
        attack = SequenceMembership()
        found = [attack.run(Signals(promise(1.0), mu=0.0, seed=seed, rows=100), QUIET) for seed in range(40)]
        assert sum(each.verdict is not Verdict.HOLDS for each in found) <= binom.isf(1e-3, 40, 0.05)
        assert np.mean([each.figures["auc_loss"].value for each in found]) == pytest.approx(0.5, abs=0.03)

    def test_members_are_found(self):
        """
        Positive control: μ = 2 shows; it contradicts a promise of μ = 0.1 and not one of μ = 2.
        """
        attack = SequenceMembership()
        assert attack.run(Signals(None, mu=2.0), QUIET).verdict is Verdict.LEAKS
        assert attack.run(Signals(promise(0.5), mu=2.0), QUIET).verdict is Verdict.LEAKS
        refuted = attack.run(Signals(promise(10.0), mu=2.0), QUIET)
        assert refuted.verdict is Verdict.REFUTED
        assert refuted.local
        assert refuted.figures["auc_loss"].value == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.04)

    def test_no_score_looks_at_the_targets_coins(self):
        """
        References have coins of their own, independent of the target's, and each sequence is new to one of a pair.
        """
        seen = []

        class Watched(Signals):
            def train(self, planted, seed, *, keep=None):
                seen.append(keep)
                return super().train(planted, seed, keep=keep)

        SequenceMembership(pairs=2).run(Watched(None, mu=0.0), QUIET)
        target, *references = seen
        assert len(references) == 4
        assert np.array_equal(references[0], ~references[1])
        for one, other in itertools.combinations([target, *references[::2]], 2):
            assert abs(np.corrcoef(one, other)[0, 1]) < norm.isf(5e-4) / np.sqrt(400)

    def test_references_are_asked_for_what_they_never_saw(self):
        """
        A reference that saw a sequence would take the target's own signal away: with clear signals the ratio keeps its.
        """
        found = SequenceMembership().run(Signals(None, mu=3.0), QUIET)
        assert found.figures["auc_ratio"].value == pytest.approx(norm.cdf(3 / 2), abs=0.03)

    def test_the_rest_of_a_large_silo_is_in_every_training(self):
        """
        Only those that are asked for have coins.
        """

        class Watched(Signals):
            def train(self, planted, seed, *, keep=None):
                assert keep.sum() > 300
                return super().train(planted, seed, keep=keep)

        SequenceMembership(most=50).run(Watched(None, mu=0.0), QUIET)

    def test_a_few_sequences_say_nothing(self):
        """
        Refused before anything is trained.
        """
        with pytest.raises(DoesNotFit):
            SequenceMembership().run(Signals(None, mu=0.0, rows=19), QUIET)


class TestNewTokenCanaries:
    def test_a_sound_mechanism_is_never_above_its_promise(self):
        """
        Twenty worlds at exactly the promised μ: no bound above ε, and rejections in 5 % at most (false alarms 1e-3).
        """
        found = [NewTokenCanaries(canaries=500).run(Signals(promise(1.0), 1.0, seed), QUIET) for seed in range(20)]
        assert not any(each.above_claim for each in found)
        assert sum(each.verdict is not Verdict.HOLDS for each in found) <= binom.isf(1e-3, 20, 0.05)
        assert np.mean([each.lower_bound for each in found]) > 0.3, "the attack works"

    def test_a_quarter_of_the_noise_is_refuted(self):
        """
        In each of five worlds.
        """
        for seed in range(5):
            found = NewTokenCanaries(canaries=1000).run(Signals(promise(1.0), 4.0, seed), QUIET)
            assert found.verdict is Verdict.REFUTED
            assert found.causes

    def test_without_a_promise_the_bound_alone_speaks(self):
        """
        LEAKS where it is above 0.
        """
        assert NewTokenCanaries(canaries=300).run(Signals(None, 3.0), QUIET).verdict is Verdict.LEAKS
        assert NewTokenCanaries(canaries=300).run(Signals(None, 0.0), QUIET).verdict is Verdict.HOLDS

    @pytest.mark.parametrize("labels", [None, 3])
    def test_canaries_end_in_new_tokens(self, labels):
        """
        Ordinary tokens before, tokens that nobody uses at the end, and for classifiers a label behind them.
        """
        subject = Signals(None, 0.0, labels=labels)
        crafted = NewTokenCanaries(canaries=600, length=5, tokens=2).crafted(subject)
        assert (crafted.tokens[:, :5] < 500).all()
        assert ((crafted.tokens[:, 5:7] >= 500) & (crafted.tokens[:, 5:7] < 1000)).all()
        assert crafted.counted.sum(axis=1).tolist() == [2 if labels is None else 1] * 600
        assert len(np.unique(crafted.tokens[:250, 5:7], axis=0)) == 250, "a canary's own while there are any"
        if labels:
            assert set(crafted.tokens[:, 7].tolist()) == {1000, 1001, 1002}

    def test_a_vocabulary_in_full_use_does_not_fit(self):
        """
        Said before anything is trained; so are canaries that are too long.
        """

        class Full(Signals):
            def unused(self):
                return np.arange(0)

        with pytest.raises(DoesNotFit):
            NewTokenCanaries().run(Full(None, 0.0), QUIET)
        with pytest.raises(DoesNotFit):
            NewTokenCanaries(length=64).run(Signals(None, 0.0), QUIET)


def test_secrets_need_a_model_that_goes_on():
    """
    A classifier has nothing to say after a prefix.
    """
    for name in ("exposure", "extraction"):
        with pytest.raises(DoesNotFit):
            attacks.example(name).run(Memory(labels=2), QUIET)


@pytest.mark.slow
def test_private_steps_protect_eight_copies_and_their_absence_does_not():
    """
    Four digits, 13.3 bits, three worlds: without noise eight copies are ranked first of 10,000; with ε = 5.5 for one
    record they stay below 6 bits on average.
    """
    attack = attacks.build("exposure", {"copies": [8], "secrets": 3})
    bits = {}
    for noise in (None, 10.0):
        worlds = [World(noise_multiplier=noise, steps=150, sentences=400, context=10, seed=seed) for seed in range(3)]
        bits[noise] = [attack.run(world, QUIET).figures["exposure_8_copies"].value for world in worlds]
    assert min(bits[None]) == pytest.approx(np.log2(10_000))
    assert np.mean(bits[10.0]) < 6


def test_one_text_of_a_client_that_stays_is_tested_against_what_a_change_is_promised():
    """
    A client with and without one text moves a sum by two clips: the curve of a client that comes or goes is not its.
    """
    claimed = promise(2.0, Unit.CLIENT)
    found = attacks.build("new_token_canaries", {"canaries": 200, "length": 6}).run(Signals(claimed, 0.0), QUIET)
    assert found.promise is not None
    assert found.promise.epsilon == pytest.approx(promise(1.0).epsilon, abs=1e-3)
    assert found.promise.epsilon > 2 * claimed.epsilon
    assert "a client that stays" in found.says
    for unit in (Unit.RECORD, Unit.USER):
        kept = promise(2.0, unit)
        found = attacks.build("new_token_canaries", {"canaries": 200, "length": 6}).run(Signals(kept, 0.0), QUIET)
        assert found.promise == kept, "each canary comes or goes with a person of its own"
    found = attacks.build("sequence_membership", {}).run(Signals(promise(2.0, Unit.USER), 0.0), QUIET)
    assert found.promise is not None
    assert found.promise.adjacency is Adjacency.REPLACE_ONE, "a person has other texts"


def test_a_sound_run_of_clients_is_not_refuted_by_its_texts():
    """
    Noise of twice the clip hides a client that comes or goes (μ = 0.5), and one text of a client that stays half as
    well (μ = 1): sound, yet the other curve would be refuted by it, as it is where the text is the unit.
    """
    attack = SequenceMembership()
    clients, records = (Signals(promise(2.0, unit), mu=1.0, rows=2000) for unit in (Unit.CLIENT, Unit.RECORD))
    assert attack.run(clients, QUIET).verdict is not Verdict.REFUTED
    assert attack.run(records, QUIET).verdict is Verdict.REFUTED
