"""Words replaced by chance: exact probabilities inside a group, policies, and twins that the same checks catch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from sordino.core.errors import ConfigError
from sordino.local.text.groups import Groups
from sordino.local.text.policy import NUMBER, WORD, Kind, Policy
from sordino.local.text.vocabulary import Vocabulary, plain
from sordino.local.text.words import Replacer
from sordino.privacy.noise import SeededNoise, SystemNoise

EPSILONS = (0.1, 1.0, 3.0, 12.0)


def random_words(n=53, d=4, seed=0):
    """Words "aa", "ab", ... with random vectors."""
    names = ["".join(pair) for pair in itertools.product("abcdefgh", repeat=2)][:n]
    return Vocabulary.of(names, np.random.default_rng(seed).normal(size=(n, d)))


def one_apart(n=40):
    """One word on the other side of all the others: there the exponential mechanism spends all of its epsilon."""
    vectors = np.tile([1.0, 0.0], (n, 1))
    vectors[-1] = [-1.0, 0.0]
    return Vocabulary.of([f"x{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(n)], vectors)


def spent(groups, epsilon, probabilities=Groups.probabilities):
    """The largest log ratio of any output's probabilities, over all pairs of words that share a group. Exact."""
    found = []
    for rows in groups.members:
        table = np.array([probabilities(groups, groups.vocabulary.words[row], epsilon) for row in rows])
        assert np.allclose(table.sum(axis=1), 1)
        found.append((np.log(table).max(axis=0) - np.log(table).min(axis=0)).max())
    return max(found)


def twice_as_sharp(groups, word, epsilon):
    """Broken twin: the factor 1/2 of the exponential mechanism is forgotten."""
    return Groups.probabilities(groups, word, 2 * epsilon)


class TestGroups:
    @pytest.mark.parametrize("epsilon", EPSILONS)
    @pytest.mark.parametrize("vocabulary", [random_words(), one_apart()], ids=["random", "one apart"])
    def test_ratios_stay_within_epsilon(self, vocabulary, epsilon):
        """
        By enumeration: every output, every pair of words that share an output set.
        """
        for size in (5, 40):
            assert spent(Groups.of(vocabulary, size), epsilon) <= epsilon + 1e-9

    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_a_doubled_temperature_is_caught(self, epsilon):
        """
        Negative control, on the group that leaves no slack.
        """
        groups = Groups.of(one_apart(), 40)

        assert spent(groups, epsilon) > 0.7 * epsilon
        assert spent(groups, epsilon, twice_as_sharp) > epsilon

    def test_draws_have_these_probabilities(self):
        """
        4000 draws against the enumerated law at false alarm 1e-6; draws at another epsilon fail.
        """
        groups = Groups.of(random_words(), 8)
        law = groups.probabilities("aa", 3.0) * 4000
        for epsilon, right in ((3.0, True), (5.0, False)):
            source = SeededNoise(1)
            drawn = [groups.drawn("aa", epsilon, source) for _ in range(4000)]
            counts = [drawn.count(word) for word in groups.outputs("aa")]
            assert bool(chisquare(counts, law).pvalue > 1e-6) is right

    def test_are_a_partition_without_loners(self):
        """
        Every word in one group; the last takes what is left.
        """
        groups = Groups.of(random_words(53), 10)

        assert sorted(np.concatenate(groups.members)) == list(range(53))
        assert groups.sizes == (10, 10, 10, 10, 13)
        assert all(set(groups.outputs(word)) == set(groups.outputs("aa")) for word in groups.outputs("aa"))

    def test_too_few_words_are_no_group(self):
        """
        A word that could only stand for itself would leave in clear: it is masked, and groups of one are refused.
        """
        lone = Vocabulary.of(["amber"], np.ones((1, 3)))
        groups = Groups.of(lone, 2)
        policy = Policy((Kind("name", 0.5, words=frozenset(["amber", "zoe"])),))

        assert groups.sizes == ()
        assert Replacer.of(policy, lone, 2)("Amber", SeededNoise(0)).text == "[NAME]"
        with pytest.raises(ConfigError, match="among itself"):
            Groups.of(lone, 1)

    def test_hold_neighbours(self):
        """
        Two clusters become two groups.
        """
        rng = np.random.default_rng(0)
        vectors = rng.normal([[5, 0], [0, 5]] * 6, 0.1)
        cluster = ["l" if x > y else "r" for x, y in vectors]
        names = [f"{side}{chr(97 + i)}" for i, side in enumerate(cluster)]

        groups = Groups.of(Vocabulary.of(names, vectors), 6)

        assert [len({word[0] for word in groups.outputs(name)}) for name in names] == [1] * 12


POLICY = Policy(
    (
        Kind("name", 0.5, words=frozenset(["Ámber", "bert", "zoe"])),
        Kind("number", 1.0, pattern=NUMBER),
        Kind("word", 2.0),
    ),
    passing=frozenset(["the", "is"]),
)
KNOWN = ["amber", "bert", "the", "is", "cat", "dog", "cow", "7", "8", "9", "café"]
REPLACER = Replacer.of(POLICY, Vocabulary.of(KNOWN, np.random.default_rng(1).normal(size=(11, 3))), 2)


class TestPolicy:
    @pytest.mark.parametrize(
        ("word", "kind"), [("amber", "name"), ("7", "number"), ("3.14", "number"), ("cat", "word"), ("the", None)]
    )
    def test_the_first_kind_counts(self, word, kind):
        """
        Lists, then patterns, then all other words; what passes is no kind at all.
        """
        found = POLICY.kind_of(word)
        assert (found.name if found else None) == kind

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("It's 3.14, (no) e-mail!", ["It", "s", "3.14", "no", "e", "mail"]),
            ("“Ünal” über—alles…", ["Ünal", "über", "alles"]),
            ("a1b\tx_y", ["a", "1", "b", "x", "y"]),
            ("我是 😀\u200d किताब", ["我是", "😀\u200d", "किताब"]),
        ],
    )
    def test_what_is_not_known_to_be_punctuation_is_a_word(self, text, words):
        """
        An unknown sign is replaced rather than let through.
        """
        assert WORD.findall(text) == words

    def test_words_are_compared_without_case_and_accents(self):
        """
        Lists, passing words and vocabularies alike.
        """
        assert plain("ÁMBER") == "amber"
        assert POLICY.kind_of(plain("ÁMBER")).name == "name"
        assert "cafe" in REPLACER.groups["word"]

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: Kind("a", 0.0),
            lambda: Kind("a", 1.0, words=frozenset("b"), pattern="c"),
            lambda: Kind("a", 1.0, pattern="("),
            lambda: Policy(()),
            lambda: Policy((Kind("a", 1.0), Kind("a", 2.0))),
        ],
    )
    def test_nonsense_is_refused(self, wrong):
        """
        Before any text is read.
        """
        with pytest.raises(ConfigError):
            wrong()


class TestReplacer:
    def test_words_stay_in_their_kind(self):
        """
        A name becomes a name, a number a number; what passes, and what stands between, is as it was.
        """
        for _ in range(20):
            done = REPLACER("The Amber: 7, cat!", SystemNoise())
            the, name, number, word = WORD.findall(done.text)
            assert (the, done.passed) == ("The", 1)
            assert name in ("amber", "bert")
            assert number in ("7", "8", "9")
            assert word in ("cat", "dog", "cow", "cafe")
            assert done.text == f"The {name}: {number}, {word}!"
            assert dict(done.words) == {"name": 1, "number": 1, "word": 1}

    def test_words_without_a_vector_all_look_alike(self):
        """
        Known to the policy and not to the vocabulary: one sign for all of a kind.
        """
        texts = [REPLACER(text, SystemNoise()) for text in ("Zoe 555 Xylo", "zoe 31337 Quux")]

        assert [done.text for done in texts] == ["[NAME] [NUMBER] [WORD]"] * 2
        assert [done.masked for done in texts] == [3, 3]

    def test_one_word_changes_no_probability_by_more_than_its_kind_allows(self):
        """
        Whole texts, enumerated: names at 0.5, words at 2, and a text that differs in both adds up.
        """
        law = {}
        for name, word in itertools.product(("amber", "bert"), REPLACER.groups["word"].outputs("cat")):
            one = REPLACER.groups["name"].probabilities(name, 0.5)
            two = REPLACER.groups["word"].probabilities(word, 2.0)
            law[name, word] = np.log(np.outer(one, two)).ravel()

        for first, second in itertools.combinations(law, 2):
            limit = 0.5 * (first[0] != second[0]) + 2.0 * (first[1] != second[1])
            assert np.abs(law[first] - law[second]).max() <= limit + 1e-9

    def test_draws_come_from_the_source_and_nowhere_else(self):
        """
        Equal sources give equal texts, other sources other ones.
        """
        text = "cat dog cow " * 10

        same = [REPLACER(text, SeededNoise(1)).text for _ in range(2)]

        assert same[0] == same[1] != REPLACER(text, SeededNoise(2)).text
