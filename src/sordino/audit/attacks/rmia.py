"""RMIA: whether a record gained more by the training than records that nobody trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.attacks._judged import RATES, Words, judged
from sordino.audit.attacks._membership import Game, play
from sordino.audit.attacks._references import mean
from sordino.audit.findings import Figure, Finding, Grade
from sordino.audit.stats.proportions import auc
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.records import Records
from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.privacy.renyi import Floats

TRIED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Values of `a` among which a reference model decides."""


@attacks.register("rmia")
@dataclass(frozen=True)
class Rmia:
    """A record's likelihood under the model over its likelihood under others, ranked among records of the population.

    The score is the share of population records whose ratio it exceeds γ times: it comes in steps of one over their
    number, so a false positive rate below that step cannot be told. Good with few reference models.

    Args:
        mode: `online` knows reference models with the record and without; `offline` without only, and extrapolates.
        gamma: How much larger the ratio must be, ≥ 1.
        a: Offline: how p(x) follows from models without x, ((1 + a) p_out + 1 − a) / 2, in [0, 1]; left out, the value
            with the largest area on a reference model, which is attacked as if it were a target.
        targets: Models under attack, each trained on a random half of the records.
        references: The attacker's own models.
        confidence: Of intervals and verdict.

    Source: Zarifzadeh et al. (2024), arXiv:2312.03262.
    """

    example: ClassVar[Mapping[str, Any]] = {"mode": "offline", "gamma": 2.0, "targets": 8, "references": 64}
    kind: ClassVar[Kind] = Kind.RECORDS
    grade: ClassVar[Grade] = Grade.LEAKAGE
    mode: Literal["online", "offline"] = "offline"
    gamma: float = 2.0
    a: float | None = None
    targets: int = 8
    references: int = 64
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("rmia", targets=self.targets, references=self.references - 1)
        checks.fraction("rmia", confidence=self.confidence)
        if not 1 <= self.gamma < np.inf:
            raise ConfigError.about("rmia", "must be a finite number, 1 or more", gamma=self.gamma)
        if self.a is not None and not 0 <= self.a <= 1:
            raise ConfigError.about("rmia", "must lie in [0, 1]", a=self.a)

    @property
    def trainings(self) -> int:
        """Models that are trained."""
        return self.targets + self.references

    def run(self, subject: Records, progress: Progress) -> Finding:
        population = len(subject.population[1])
        if population == 0:
            raise DoesNotFit("no records of the population are left that were never trained on.")
        game = play(subject, self.targets, self.references, progress)
        a = self.a if self.a is not None else tuned(game, self.gamma)
        coarse = " and ".join(f"{rate:.1%}" for rate in RATES if rate * population < 1)
        too_few = f"; {population} population records give steps too coarse for {coarse} false alarms" if coarse else ""
        words = Words(
            "rmia",
            f"An attacker with {self.references} models of their own and {population} records of the population",
            f"that an attacker with more models, or one who sees more than the final model, does no better{too_few}",
        )
        more = {"resolution": Figure(1 / population)} | ({"a": Figure(a)} if self.mode == "offline" else {})
        found = scores(game, self.mode, self.gamma, a)
        return judged(words, subject, game.coins, found, self.confidence, more)


def scores(game: Game, mode: Literal["online", "offline"], gamma: float, a: float) -> Floats:
    """The share of population records that each record beats by `gamma`, shape (T, N)."""
    references = np.exp(game.log_p[game.targets :])
    out, strangers = mean(references, ~game.known), np.exp(game.outside[game.targets :]).mean(axis=0)
    if mode == "offline":
        expected, expected_strangers = ((1 + a) * p / 2 + (1 - a) / 2 for p in (out, strangers))
    else:
        # Nobody trained on a stranger, so its models with it are taken to be those without.
        expected, expected_strangers = (mean(references, game.known) + out) / 2, strangers
    tiny = np.finfo(np.float64).tiny
    ratios = game.log_p[: game.targets] - np.log(np.maximum(expected, tiny)) - np.log(gamma)
    others = np.sort(game.outside[: game.targets] - np.log(np.maximum(expected_strangers, tiny)), axis=1)
    beaten = [np.searchsorted(line, own, side="right") for line, own in zip(others, ratios, strict=True)]
    return np.asarray(np.stack(beaten) / others.shape[1])


def tuned(game: Game, gamma: float) -> float:
    """The `a` that serves best against the first reference model, whose coins the attacker knows."""
    rest = slice(game.targets, None)
    mock = replace(
        game,
        targets=1,
        models=game.models[rest],
        included=game.included[rest],
        log_p=game.log_p[rest],
        log_odds=game.log_odds[rest],
        outside=game.outside[rest],
    )

    def area(a: float) -> float:
        found = scores(mock, "offline", gamma, a)
        return auc(found[mock.coins], found[~mock.coins])

    return max(TRIED, key=area)
