"""Secrets from a random space, planted so many times: what exposure and extraction share.

"the pin of baku is 4711"       the space R: all numbers of so many digits
      name          secret      another name for each secret; what is random is independent of everything else
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma

from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Language, Sequences, Tokens
from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.core.types import Unit

TEMPLATE = "the pin of {name} is {secret}"


@dataclass(frozen=True)
class Space:
    """Where secrets come from.

    Args:
        template: A text with {name} and {secret}.
        digits: Of a secret.
    """

    template: str
    digits: int

    def __post_init__(self) -> None:
        checks.count("secrets", digits=self.digits)
        if self.template.count("{name}") != 1 or self.template.count("{secret}") != 1:
            raise ConfigError.about(
                "secrets", "must hold {name} and {secret}", f'e.g. "{TEMPLATE}"', template=self.template
            )

    @property
    def size(self) -> int:
        """|R|."""
        return int(10**self.digits)

    def texts(self, name: str, numbers: Iterable[int]) -> list[str]:
        """A name with each of some secrets."""
        return [
            self.template.replace("{name}", name).replace("{secret}", f"{number:0{self.digits}}") for number in numbers
        ]


@dataclass(frozen=True)
class Secret:
    """A secret, and how many times the training saw it; 0 is the negative control."""

    name: str
    number: int
    copies: int


def drawn(subject: Language, space: Space, copies: Sequence[int], each: int) -> list[Secret]:
    """So many secrets for every number of copies, and as many that are never planted.

    Raises:
        DoesNotFit: The model gives labels, or the texts are too long for it.
    """
    if subject.labels is not None:
        raise DoesNotFit("the model gives texts a label, and does not continue them.")
    rng = stream(subject.seed, "secrets")
    names = _names(rng, each * (len(copies) + 1))
    numbers = rng.integers(space.size, size=len(names))
    found = [Secret(name, int(n), k) for name, n, k in zip(names, numbers, np.repeat([*copies, 0], each), strict=True)]
    subject.encode([space.texts(secret.name, [secret.number])[0] for secret in found])
    return found


def planted(subject: Language, space: Space, secrets: Sequence[Secret]) -> Sequences:
    """All copies of all secrets, each a row."""
    texts = [space.texts(secret.name, [secret.number])[0] for secret in secrets for _ in range(secret.copies)]
    return subject.encode(texts)


def common(sequences: Sequences) -> tuple[int, int]:
    """How many tokens all sequences begin with, and how many all end with.

    >>> common(Sequences.of([[1, 2, 3, 9], [1, 2, 4, 5, 9]]))
    (2, 1)
    """
    rows = [row[:length] for row, length in zip(sequences.tokens, sequences.lengths, strict=True)]
    before = _shared(rows)
    return before, min(_shared([row[::-1] for row in rows]), min(len(row) for row in rows) - before)


def _shared(rows: Sequence[Tokens]) -> int:
    width = min(len(row) for row in rows)
    same = np.all([row[:width] == rows[0][:width] for row in rows], axis=0)
    return int(np.argmin(np.append(same, False)))


def _names(rng: np.random.Generator, count: int) -> list[str]:
    """Different names of two syllables."""
    syllables = [first + second for first in "bcdfghjklmnprstvwz" for second in "aeiou"]
    places = rng.choice(len(syllables) ** 2, size=count, replace=False)
    return [syllables[place // len(syllables)] + syllables[place % len(syllables)] for place in places]


def by_chance(p_values: NDArray[np.float64]) -> float:
    """The chance of p-values as small together, if none of the secrets was seen: Fisher's method.

    A secret that was never seen is independent of the model, so its rank over |R| is a p-value.

    >>> round(by_chance(np.array([1.0, 1.0])), 3)
    1.0
    """
    return float(gamma.sf(-np.log(p_values).sum(), len(p_values)))


def group_privacy(promise: Promise, records: int) -> tuple[float, float]:
    """What is promised for several records together: k·ε, and δ·(e^{kε} − 1)/(e^ε − 1), at most 1.

    Where the client is the unit, all of one client's records are covered together.

    >>> from sordino.privacy import events
    >>> promise = Promise.declared([(events.gaussian(2.0), 1)], 1e-5, by="an example")
    >>> [round(value, 2) for value in group_privacy(promise, 2)]
    [3.99, 0.0]
    """
    if promise.unit is Unit.CLIENT or records <= 1:
        return promise.epsilon, promise.delta
    epsilon = records * promise.epsilon
    if epsilon > 500:
        return epsilon, 1.0
    growth = math.expm1(epsilon) / math.expm1(promise.epsilon) if promise.epsilon else records
    return epsilon, min(1.0, promise.delta * growth)


def allowed(promise: Promise, records: int, chance: float) -> float:
    """The most that the promise lets a chance grow to by so many records: e^ε·p + δ of the group, at most 1."""
    epsilon, delta = group_privacy(promise, records)
    return min(1.0, math.exp(min(epsilon + math.log(chance), 0.0)) + delta)


def protection(promise: Promise | None, records: Sequence[int], copies: Sequence[int]) -> str:
    """In words: what is promised for so many copies."""
    if promise is None:
        return "Nothing was promised."
    if promise.unit is Unit.CLIENT:
        return f"The unit is the client: all copies in one client are covered by ε = {promise.epsilon:.3g} together."
    person = "record" if promise.unit is Unit.RECORD else "person"
    each = ", ".join(
        f"{k} {'copy' if k == 1 else 'copies'} {group_privacy(promise, n)[0]:.3g}"
        for k, n in zip(copies, records, strict=True)
    )
    return f"The unit is the {person}, and each copy belongs to another: ε is {each}."
