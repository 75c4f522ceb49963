"""A text with its words replaced, each by a word that stands near it: for sites that must send text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sordino.local.text.groups import Groups
from sordino.local.text.policy import WORD, Kind, Policy
from sordino.local.text.vocabulary import Vocabulary, plain
from sordino.privacy.noise import NoiseSource


@dataclass(frozen=True)
class Replaced:
    """A text that may leave.

    Args:
        text: In lower case where words were replaced.
        words: How many words of each kind were replaced: a reader of the text could count them, too.
        masked: How many of them had no vector.
        passed: How many words passed as they were.
    """

    text: str
    words: Mapping[str, int]
    masked: int
    passed: int


@dataclass(frozen=True)
class Replacer:
    """Replaces words by the exponential mechanism, each at its kind's epsilon.

    Args:
        policy: Which words, as which kind.
        groups: Per kind, the vocabulary's words of that kind in groups.
    """

    policy: Policy
    groups: Mapping[str, Groups]

    @classmethod
    def of(cls, policy: Policy, vocabulary: Vocabulary, size: int) -> Replacer:
        """Groups of `size` words of one kind each: a name becomes a name, a number a number."""
        kinds = [policy.kind_of(word) for word in vocabulary.words]
        groups = {}
        for kind in policy.kinds:
            rows = np.array([row for row, found in enumerate(kinds) if found is kind], dtype=np.int64)
            own = Vocabulary(tuple(vocabulary.words[row] for row in rows), vocabulary.vectors[rows])
            groups[kind.name] = Groups.of(own, size)
        return cls(policy, groups)

    def __call__(self, text: str, source: NoiseSource) -> Replaced:
        """A text with its words replaced; what stands between them stays.

        Guarantee:
            For texts that differ in one word, by another of the same kind and group (or of the same kind, both without
            a vector), the probabilities of any result differ by a factor of e^ε at most, ε being the kind's. What
            differs in several such words adds up. A word that no kind has is not protected at all.
        """
        words: Counter[str] = Counter()
        masked = passed = end = 0
        parts = []
        for match in WORD.finditer(text):
            word = plain(match.group())
            kind = self.policy.kind_of(word)
            parts += [
                text[end : match.start()],
                match.group() if kind is None else self._in_place_of(word, kind, source),
            ]
            end = match.end()
            if kind is None:
                passed += 1
                continue
            words[kind.name] += 1
            masked += word not in self.groups[kind.name]
        return Replaced("".join([*parts, text[end:]]), words, masked, passed)

    def _in_place_of(self, word: str, kind: Kind, source: NoiseSource) -> str:
        groups = self.groups[kind.name]
        return groups.drawn(word, kind.epsilon, source) if word in groups else kind.mask
