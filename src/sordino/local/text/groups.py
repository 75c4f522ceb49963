"""Words in groups of neighbours, and the exponential mechanism inside a group.

A word's output set is its own group, and all words of a group share it: so whatever comes out could have come from
any of them. That is where the guarantee holds, and nowhere else: which *group* a word is in shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.text.vocabulary import Vocabulary
from sordino.privacy.noise import NoiseSource


@dataclass(frozen=True, eq=False)
class Groups:
    """A public partition of a vocabulary.

    Args:
        vocabulary: The words.
        members: Rows of each group, disjoint.
    """

    vocabulary: Vocabulary
    members: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary, size: int) -> Groups:
        """Groups of `size` neighbours: the first word left and those nearest to it, until all are taken.

        The last group has up to twice as many, so that no word is alone. Fewer than `size` words are no group at all:
        they have no place here, as if they had no vector.

        Raises:
            ConfigError: A group of one, in which a word would only stand for itself.

        Source: Chen et al. (2023), arXiv:2207.01193, for sets that are shared, not overlapping.
        """
        checks.count("groups", size=size)
        if size < 2:
            raise ConfigError.about("groups", "hides a word among itself", "use 2 or more; 20 suits most", size=size)
        vectors, left, found = vocabulary.vectors, np.arange(len(vocabulary.words)), []
        while len(left) >= 2 * size:
            near = np.argsort(-(vectors[left] @ vectors[left[0]]), kind="stable")[:size]
            found.append(left[near])
            left = np.delete(left, near)
        return cls(vocabulary, (*found, left) if len(left) >= size else tuple(found))

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        words = self.vocabulary.words
        return {words[row]: (g, place) for g, rows in enumerate(self.members) for place, row in enumerate(rows)}

    def __contains__(self, word: str) -> bool:
        return word in self._places

    @property
    def sizes(self) -> tuple[int, ...]:
        """Words per group."""
        return tuple(len(rows) for rows in self.members)

    def outputs(self, word: str) -> tuple[str, ...]:
        """What may come out for a word: its group, in a fixed order."""
        rows = self.members[self._places[word][0]]
        return tuple(self.vocabulary.words[row] for row in rows)

    def probabilities(self, word: str, epsilon: float) -> NDArray[np.float64]:
        """How probable each of `outputs(word)` is.

        Args:
            word: One of the vocabulary.
            epsilon: Of one replacement, > 0.

        Guarantee:
            For two words of one group every output's probabilities differ by a factor of e^ε at most: the score is
            minus the distance over the group's largest, which another word moves by at most 1.

        Source: McSherry and Talwar (2007) for the exponential mechanism.
        """
        checks.positive("words", epsilon=epsilon)
        group, place = self._places[word]
        near = self.vocabulary.vectors[self.members[group]].astype(np.float64)
        apart = np.linalg.norm(near[:, None] - near[None], axis=2)
        weights = np.exp(-epsilon / 2 * apart[place] / max(apart.max(), 1e-12))
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def drawn(self, word: str, epsilon: float, source: NoiseSource) -> str:
        """A word in place of another.

        The coin has 53 bits, so a probability is met up to 2^-53.
        """
        steps = np.cumsum(self.probabilities(word, epsilon))
        place = np.searchsorted(steps, source.uniform(1)[0] * steps[-1])
        return self.outputs(word)[int(place)]
