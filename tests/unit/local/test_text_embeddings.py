"""Noised embeddings: what one text can move, how much noise that needs, and twins that the same checks catch."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import chi2

from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency, Unit
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.local.text.embeddings import released, sentence_vectors
from sordino.local.text.noise import noise_multiplier
from sordino.privacy import events, gaussian
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation
from tiny_lm import tiny

CLIP = 0.5
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{chr(97 + i)}" for i in range(26)), *(str(i) for i in range(34))]


def silent(total):
    """The private sum itself: no noise."""
    return getattr(total, "_BoundedSum__vector").astype(np.float32)  # noqa: B009


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with a vocabulary of 26 words and 34 numbers."""
    made = tiny(tmp_path_factory.mktemp("bert"), "bert")
    model = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {word: row for row, word in enumerate(WORDS)}}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    tokenizer = {"version": "1.0", "model": model, "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"}}
    empty = dict.fromkeys(("normalizer", "post_processor", "decoder", "truncation", "padding"))
    (made / "tokenizer.json").write_text(json.dumps(tokenizer | empty), "utf-8")
    return made


def unclipped(vectors, clip, release):
    """Broken twin: the mean norm is brought to the clip, not each text's."""
    factor = clip / np.linalg.norm(vectors, axis=1).mean()
    return (vectors * factor).astype(np.float32)


def scaled_together(vectors, clip, release):
    """Broken twin: all texts are scaled by the largest of them, so one text moves every row."""
    return (vectors * (clip / max(np.linalg.norm(vectors, axis=1)))).astype(np.float32)


def moves(release_of):
    """How far replacing one text, by an ordinary or an extreme one, moves its row and all other rows."""
    vectors = np.random.default_rng(0).normal(size=(6, 8))
    before = release_of(vectors, CLIP, silent)
    own, others = [], []
    for other in (-vectors[2], 1e3 * np.ones(8), np.zeros(8), np.full(8, np.nan)):
        changed = vectors.copy()
        changed[2] = other
        moved = np.linalg.norm(release_of(changed, CLIP, silent) - before, axis=1)
        own.append(moved[2])
        others.append(np.delete(moved, 2).max())
    return np.max(own), np.max(others)


class TestReleased:
    def test_one_text_moves_its_own_row_by_at_most_two_clips(self):
        """
        The extreme case is reached: a text replaced by its opposite.
        """
        own, others = moves(released)

        assert 1.99 * CLIP < own <= 2 * CLIP * (1 + 1e-6)
        assert others == 0

    @pytest.mark.parametrize("twin", [unclipped, scaled_together])
    def test_broken_twins_are_caught(self, twin):
        """
        Negative controls: a bound that holds on average, and one that the texts share.
        """
        own, others = moves(twin)

        assert not (own <= 2 * CLIP * (1 + 1e-6) and others == 0)

    def test_texts_keep_their_order(self):
        """
        Row i is text i, scaled down to the clip where it is longer.
        """
        vectors = np.array([[3.0, 4.0], [0.3, 0.0], [0.0, -9.0]])

        assert np.allclose(released(vectors, CLIP, silent), [[0.3, 0.4], [0.3, 0.0], [0.0, -0.5]])

    def test_no_texts_are_refused(self):
        """
        Nothing is charged for nothing.
        """
        with pytest.raises(ConfigError, match="no texts"):
            released(np.zeros((0, 3)), CLIP, silent)


def charged(multiplier, delta):
    """What the ledger will say that one release costs."""
    return best_epsilon([(events.gaussian(multiplier), 1)], delta, adjacency=Adjacency.REPLACE_ONE).epsilon


class TestNoise:
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (4.0, 1e-6), (12.0, 1e-3)])
    def test_is_exactly_what_is_promised(self, epsilon, delta):
        """
        Over the distance 2C: by the formula for δ, and by the price of the charge; without the factor 2 it is not.
        """
        z = noise_multiplier(epsilon, delta)

        assert gaussian.delta_of(epsilon, 2 / z) == pytest.approx(delta, rel=1e-6)
        assert charged(z, delta) == pytest.approx(epsilon, rel=1e-9)
        assert charged(z / 2, delta) > 1.5 * epsilon

    @pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.5, False), (2.0, False)])
    def test_is_drawn_for_every_number(self, factor, right):
        """
        Zero vectors show the noise alone: chi-squared at false alarm 1e-6, and half or twice the noise fails.
        """
        mechanism = Gaussian(3.0 * factor)
        lines = [Line("a", Unit.RECORD, events.key(mechanism.event()), 1)]
        door = Door(mechanism, mechanism.event(), ("a",), mint_reservation("t", lines, test=True), SeededNoise(1))

        squares = ((released(np.zeros((40, 25)), CLIP, door) / (3.0 * CLIP)).astype(np.float64) ** 2).sum()

        low, high = chi2.ppf([5e-7, 1 - 5e-7], df=1000)
        assert bool(low <= squares <= high) is right


class TestSentenceVectors:
    def test_a_text_does_not_see_the_others(self, folder):
        """
        To the last bit: whatever texts stand beside it, long or short, few or many.
        """
        texts = ["wa wb 7", "wc", "we we we we we we we wf", *["wb wc"] * 30]

        together = sentence_vectors(folder, texts, length=12)
        alone = [sentence_vectors(folder, [text], length=12)[0] for text in texts[:3]]

        assert together.shape == (33, 16)
        assert np.array_equal(together[:3], alone)
        assert len({vector.tobytes() for vector in together}) == 4

    def test_is_the_mean_over_the_tokens_that_count(self, folder):
        """
        Padding has no part in it, and what lies beyond the length is cut off.
        """
        short, long = (sentence_vectors(folder, ["wa wb wc"], length=n) for n in (3, 20))
        cut = sentence_vectors(folder, ["wa wb wc wd we"], length=3)

        assert np.allclose(short, long, atol=1e-5)
        assert np.array_equal(short, cut)

    def test_an_empty_text_is_a_zero_vector(self, folder):
        """
        It is released with its noise, like any other.
        """
        assert not sentence_vectors(folder, ["", "wa"], length=4)[0].any()

    def test_what_does_not_fit_is_refused(self, folder, tmp_path):
        """
        A length beyond the model's, and a folder without a model.
        """
        with pytest.raises(ConfigError, match="more than the model's 48"):
            sentence_vectors(folder, ["wa"], length=49)
        with pytest.raises(ConfigError, match="cannot be loaded"):
            sentence_vectors(tmp_path, ["wa"], length=4)
