"""Which words of a text are replaced: a public rule, which must not be made from the texts.

text ──split──► words and what stands between them
word ──kinds, in order──► the first that has it: its name and epsilon; none: the word passes as it is
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.text.vocabulary import plain

WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\s\d!-/:-@\[-`{-~\u2010-\u2027\u2030-\u205e]+")
"""Runs of digits, or of anything that is neither a digit, space nor punctuation: an unknown sign counts as a word."""

NUMBER = r"\d+(?:[.,:]\d+)*"


@dataclass(frozen=True)
class Kind:
    """A kind of words with an epsilon of its own.

    Args:
        name: What it is called, e.g. "name"; in capitals it stands for words without a vector.
        epsilon: Of each replacement, > 0.
        words: The words of this kind; left out, those that `pattern` fits.
        pattern: A regular expression for whole words, without case; left out with `words`, every word is of the kind.
    """

    name: str
    epsilon: float
    words: frozenset[str] | None = None
    pattern: str | None = None

    def __post_init__(self) -> None:
        checks.sensible(f"kind {self.name!r}", epsilon=self.epsilon)
        if self.words is not None and self.pattern is not None:
            raise ConfigError.about(f"kind {self.name!r}", "has words and a pattern", "make two kinds of it")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as problem:
                raise ConfigError.about(
                    f"kind {self.name!r}", f"is no regular expression: {problem}", pattern=self.pattern
                ) from None
        if self.words is not None:
            object.__setattr__(self, "words", frozenset(plain(word) for word in self.words))

    def has(self, word: str) -> bool:
        """Whether a word, in the form of `plain`, is of this kind."""
        if self.words is not None:
            return word in self.words
        return self.pattern is None or re.fullmatch(self.pattern, word) is not None

    @property
    def rule(self) -> str:
        """How the kind is told, for people."""
        if self.words is not None:
            return f"a public list of {len(self.words)} words"
        return "every other word" if self.pattern is None else f"words like {self.pattern}"

    @property
    def mask(self) -> str:
        """What stands for a word of this kind that has no vector."""
        return f"[{self.name.upper()}]"


@dataclass(frozen=True)
class Policy:
    """Kinds of words in order, and words that pass.

    Args:
        kinds: The first one that has a word counts.
        passing: Words that are never replaced, such as a public list of stop words.
    """

    kinds: tuple[Kind, ...]
    passing: frozenset[str] = field(default=frozenset())

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        if not names or len(set(names)) < len(names):
            raise ConfigError.about("policy", "needs kinds, each with a name of its own", kinds=names)
        object.__setattr__(self, "passing", frozenset(plain(word) for word in self.passing))

    def kind_of(self, word: str) -> Kind | None:
        """The kind of a word, in the form of `plain`; None if it passes.

        >>> Policy((Kind("number", 1.0, pattern=NUMBER), Kind("word", 2.0))).kind_of("7").name
        'number'
        """
        if word in self.passing:
            return None
        return next((kind for kind in self.kinds if kind.has(word)), None)
