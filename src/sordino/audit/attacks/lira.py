"""LiRA: how a model's confidence in a record compares with that of models known to have seen it, or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import log_ndtr

from sordino.audit.attacks import Kind, Progress, attacks
from sordino.audit.attacks._judged import Words, judged
from sordino.audit.attacks._membership import Coins, Game, play
from sordino.audit.attacks._references import mean, variance
from sordino.audit.findings import Figure, Finding, Grade
from sordino.audit.stats.proportions import auc
from sordino.audit.subjects.records import Records
from sordino.core import checks
from sordino.privacy.renyi import Floats

OWN_VARIANCE = 64
"""Reference models with (and without) a record from which its own variance is used; below, one for all records."""


@attacks.register("lira")
@dataclass(frozen=True)
class Lira:
    """The likelihood ratio of a record's log-odds under reference models with it and without it.

    The log-odds of the right label, log p − log (1 − p), are about normal over trainings. `online` compares both laws;
    `offline` uses reference models without the record only, as an attacker who meets it after training them.

    Args:
        mode: `online` or `offline`.
        targets: Models under attack, each trained on a random half of the records.
        references: The attacker's own models, each trained on a random half too.
        confidence: Of intervals and verdict.

    Source: Carlini et al. (2022), arXiv:2112.03570.
    """

    example: ClassVar[Mapping[str, Any]] = {"mode": "online", "targets": 8, "references": 64}
    kind: ClassVar[Kind] = Kind.RECORDS
    grade: ClassVar[Grade] = Grade.LEAKAGE
    mode: Literal["online", "offline"] = "online"
    targets: int = 8
    references: int = 64
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.count("lira", targets=self.targets, references=self.references)
        checks.fraction("lira", confidence=self.confidence)

    @property
    def trainings(self) -> int:
        """Models that are trained."""
        return self.targets + self.references

    def run(self, subject: Records, progress: Progress) -> Finding:
        game = play(subject, self.targets, self.references, progress)
        words = Words(
            "lira",
            f"An attacker with {self.references} models of their own",
            "that an attacker with more models, or one who sees more than the final model, does no better; a rate over "
            "all records is not the risk of one, which is larger for the unusual",
        )
        found = scores(game, self.mode)
        atypical = misjudged(game)
        more = {"atypical_records": Figure(float(atypical.mean()))}
        if atypical.any():
            coins, few = game.coins[:, atypical], found[:, atypical]
            more["auc_of_atypical_records"] = Figure(auc(few[coins], few[~coins]))
        return judged(words, subject, game.coins, found, self.confidence, more)


def scores(game: Game, mode: Literal["online", "offline"]) -> Floats:
    """How much likelier each record is a member of each target, shape (T, N).

    Args:
        game: With references.
        mode: `online`: log N(φ; μ_in, s_in) − log N(φ; μ_out, s_out). `offline`: Φ((φ − μ_out) / s_out), as
            −log (1 − Φ), which ranks alike and does not tie where Φ is 1 in floating point.
    """
    target, references, known = game.log_odds[: game.targets], game.log_odds[game.targets :], game.known
    without = (target - mean(references, ~known)) / np.sqrt(variance(references, ~known, OWN_VARIANCE))
    if mode == "offline":
        return np.asarray(-log_ndtr(-without))
    spread, spread_without = variance(references, known, OWN_VARIANCE), variance(references, ~known, OWN_VARIANCE)
    within = (target - mean(references, known)) / np.sqrt(spread)
    return np.asarray((without**2 - within**2) / 2 + np.log(spread_without / spread) / 2)


def misjudged(game: Game) -> Coins:
    """Records that models without them get wrong on average: what must be learnt by heart. Shape (N,)."""
    return mean(game.log_odds[game.targets :], ~game.known) < 0
