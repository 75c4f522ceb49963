"""Attribute inference: whether a model gives away a column of a record to whoever knows all others and the label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.audit.attacks import Kind, Progress, _causes, attacks
from sordino.audit.attacks._columns import Attribute, attributes, imputed
from sordino.audit.attacks._judged import RESAMPLES, bounds_of, drawn, refutation
from sordino.audit.attacks._membership import Game, of_label, play
from sordino.audit.findings import Figure, Finding, Grade, Verdict, graded
from sordino.audit.stats.proportions import bootstrap
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.records import Records
from sordino.core import checks
from sordino.privacy.renyi import Floats


@attacks.register("attribute_inference")
@dataclass(frozen=True)
class AttributeInference:
    """A record's unknown column, guessed by the model's likelihood of the label over all values it could have.

    The guess weighs each value by an imputation from the other columns of population records; it is compared with an
    imputation that knows the label but no model. What the model knows of people in general helps with members and
    others alike; the leak is how much more often the guess is right for members. For tables with named columns;
    categories of few values are attacked, all of them or one.

    Args:
        column: The attribute; left out, every one.
        values: The most values that an attribute may have.
        neighbours: Population records that impute a value.
        targets: Models under attack, each trained on a random half of the records.
        confidence: Of intervals and verdict, shared out among the attributes.

    Source: Yeom et al. (2018), arXiv:1709.01604, for the advantage of members over others.
    """

    example: ClassVar[Mapping[str, Any]] = {"values": 8}
    kind: ClassVar[Kind] = Kind.RECORDS
    grade: ClassVar[Grade] = Grade.LEAKAGE
    column: str | None = None
    values: int = 8
    neighbours: int = 15
    targets: int = 8
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("attribute_inference", values=self.values, neighbours=self.neighbours, targets=self.targets)
        checks.fraction("attribute_inference", confidence=self.confidence)

    @property
    def trainings(self) -> int:
        """Models that are trained."""
        return self.targets

    def run(self, subject: Records, progress: Progress) -> Finding:
        chosen = self._attributes(subject)
        game = play(subject, self.targets, 0, progress)
        found = []
        for attribute in chosen:
            progress(f"guessing {attribute.name!r}")
            found.append(Guess.of(attribute, subject, game, self.neighbours))
        return self._finding(subject, game, found)

    def _attributes(self, subject: Records) -> list[Attribute]:
        known, labels = subject.population
        if not subject.features:
            raise DoesNotFit("the records have no named columns: attributes are inferred from tables.")
        if not len(labels):
            raise DoesNotFit("no records of the population are left to impute from.")
        found = attributes(subject.features, np.concatenate([subject.x, known]), self.values)
        if self.column is not None:
            checks.one_of("attribute_inference", [one.name for one in found], column=self.column)
            found = [one for one in found if one.name == self.column]
        if not found:
            raise DoesNotFit(f"no attribute of the table has between two and {self.values} values.")
        return found

    def _finding(self, subject: Records, game: Game, found: list[Guess]) -> Finding:
        each = 1 - (1 - self.confidence) / len(found)
        interval = partial(bootstrap, confidence=each, repeats=RESAMPLES, seed=subject.seed)
        leaks = [interval(leakage, guess.rows(game)) for guess in found]
        worst = max(range(len(found)), key=lambda i: leaks[i].value)
        guess, leak, rows = found[worst], leaks[worst], found[worst].rows(game)
        figures = {f"leakage_{one.attribute.name}": figure for one, figure in zip(found, leaks, strict=True)}
        figures |= {f"{name}_{guess.attribute.name}": interval(share, rows) for name, share in SHARES.items()}
        gains, promise = np.sum([one.gains for one in found], axis=0), subject.promise
        curve, _ = drawn(promise, gains[game.coins], gains[~game.coins])
        bound = None
        if promise is not None:
            bound = refutation(promise, game.coins, gains, self.confidence)
            # Right guesses as a test of membership: the most that any test gains over its false alarms.
            figures["leakage_allowed"] = Figure(2 * bounds_of(promise).accuracy - 1)
        leaky = any(figure.low is not None and figure.low > 0 for figure in leaks)
        verdict = Verdict.LEAKS if leaky and promise is None else Verdict.HOLDS
        verdict = verdict if bound is None else Verdict.REFUTED
        return Finding(
            attack="attribute_inference",
            grade=graded(verdict),
            verdict=verdict,
            says=_says(guess, figures, leak, len(found)) + ("" if bound is None else " More than was promised."),
            does_not_show="that a column is safe: it may follow from the others without any model, and other attackers "
            "may combine more",
            promise=promise,
            lower_bound=bound,
            confidence=self.confidence,
            figures=figures,
            curves={"roc": curve},
            causes=_causes.TRAINING if bound is not None else (),
            local=not subject.public,
        )


@dataclass(frozen=True, eq=False)
class Guess:
    """What was guessed of one attribute.

    Args:
        attribute: Of what.
        right: Which guesses are right, shape (T, N).
        imputed: Which are right without a model, shape (N,).
        gains: How much the model favours the true value over all others, as a log-odds, shape (T, N).
    """

    attribute: Attribute
    right: NDArray[np.bool_]
    imputed: NDArray[np.bool_]
    gains: Floats

    @classmethod
    def of(cls, attribute: Attribute, subject: Records, game: Game, neighbours: int) -> Guess:
        """Ask the targets about every record with every value in turn."""
        known, labels = subject.population
        # The label speaks once: through the model, or else as one more column.
        prior = imputed(attribute, subject.x, known, neighbours)
        alone = imputed(
            attribute, np.column_stack([subject.x, subject.y]), np.column_stack([known, labels]), neighbours
        )
        shape = (game.targets, len(subject.y), len(attribute.values))
        said = subject.log_probabilities(game.models[: game.targets], attribute.replaced(subject.x))
        likelihoods = of_label(said, np.repeat(subject.y, shape[2]))[0].reshape(shape)
        true = attribute.of(subject.x)
        # Value by value as if it were a label: the odds of the true one against the others.
        _, gains = of_label(likelihoods, true)
        return cls(attribute, (np.log(prior) + likelihoods).argmax(2) == true, alone.argmax(1) == true, gains)

    def rows(self, game: Game) -> Floats:
        """Per record: right guesses, coins and imputations side by side, shape (N, 3 T)."""
        imputed = np.broadcast_to(self.imputed, self.right.shape)
        return np.concatenate([self.right.T, game.coins.T, imputed.T], axis=1).astype(np.float64)


def _shares(rows: Floats) -> tuple[float, float, float]:
    """Right guesses for members, for others, and for members without the model."""
    right, coins, imputed = np.split(rows, 3, axis=1)
    members, others = max(coins.sum(), 1.0), max((1 - coins).sum(), 1.0)
    return (right * coins).sum() / members, (right * (1 - coins)).sum() / others, (imputed * coins).sum() / members


def leakage(rows: Floats) -> float:
    """How much more often the guess is right for members than for others.

    >>> leakage(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    1.0
    """
    members, others, _ = _shares(rows)
    return float(members - others)


SHARES = {
    "right_for_members": lambda rows: float(_shares(rows)[0]),
    "right_for_others": lambda rows: float(_shares(rows)[1]),
    "right_without_model": lambda rows: float(_shares(rows)[2]),
    "advantage_over_imputation": lambda rows: float(_shares(rows)[0] - _shares(rows)[2]),
}
"""Figures of the attribute that leaks most."""


def _says(guess: Guess, figures: Mapping[str, Figure], leak: Figure, count: int) -> str:
    name = guess.attribute.name
    members, others, without = (
        figures[f"right_{who}_{name}"].value for who in ("for_members", "for_others", "without_model")
    )
    among = "" if count == 1 else f", the one of {count} attributes that leaks most"
    return (
        f"Guessing {name!r}{among}, an attacker with the model is right for {members:.1%} of the members and "
        f"{others:.1%} of others, and for {without:.1%} without the model: {100 * leak.value:+.1f} points come from "
        f"having been trained on (between {100 * (leak.low or 0):+.1f} and {100 * (leak.high or 0):+.1f})."
    )
