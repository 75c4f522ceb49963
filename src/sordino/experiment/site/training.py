"""A round's training at a silo: what of a letter is used, after it was found to be of the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sordino.core.errors import EngineError, PrivacyError
from sordino.core.types import RoundPlan, Vector
from sordino.experiment.settings import Setting
from sordino.experiment.site.joined import Joined
from sordino.federation.pipeline import Pipeline
from sordino.federation.post import Letter
from sordino.privacy.permits import Reservation


def model_of(joined: Joined, letter: Letter) -> Vector:
    """The model in a letter, if it is one of the plan's. Shape (d,).

    Raises:
        EngineError: It is not.
    """
    model, size = letter.vector, joined.setup.layout.size
    if model is None or model.shape != (size,) or model.dtype != np.float32:
        raise EngineError.about("site", f"must be float32 of shape ({size},)", model="another")
    if not np.isfinite(model).all():
        raise EngineError.about("site", "is not finite", "nothing was drawn", model="this one")
    return model


@contextmanager
def training(joined: Joined, number: int, letter: Letter) -> Iterator[tuple[Setting, Vector, RoundPlan]]:
    """The setting, model and plan of a round, with the part of the model that it trains.

    Raises:
        EngineError: The letter's model is not one of the plan's.
        PrivacyError: Its stages are not the plan's.
    """
    setup, model = joined.setup, model_of(joined, letter)
    memory = json.loads(letter.text("memory"))
    _require_planned(memory.get("stages", []), joined)
    setting, version = joined.setting.restored(memory) if memory else joined.setting, joined.started(number)
    with setup.training(setup.part(version), model) as (own, start):
        yield setting.at(own), start, joined.round(version)


def update(joined: Joined, number: int, letter: Letter, charge: Reservation | None) -> Vector:
    """What the silo sends in a round, under the charge that covers its noise if it draws some. Shape (size,)."""
    with training(joined, number, letter) as (setting, start, plan):
        return np.asarray(setting.sent(joined.client, start, plan, charge).vector, dtype=np.float32)


LEARNT = {"adaptive_clip": "norm"}
"""What a stage takes along from round to round. Nobody but the coordinator knows it; all else stands in the plan."""


def _require_planned(stages: list[Any], joined: Joined) -> None:
    """Return only if a letter's stages are the plan's, and what they have learnt is within the silo's own rules.

    Raises:
        PrivacyError: They are not.
    """
    if not stages:
        return
    asked = Pipeline.from_tables(stages).to_tables()
    planned = Pipeline.from_tables(joined.setup.experiment.stages).to_tables()
    if _known(asked) != _known(planned):
        raise PrivacyError.about("site", "are not the plan's stages", "ask for what was approved")
    for table in asked:
        for name in table.keys() & LEARNT.keys():
            learnt = table[name][LEARNT[name]]
            if joined.clip is not None and not learnt <= joined.clip:
                rule = f"is more than the {joined.clip:g} that the silo allows"
                raise PrivacyError.about("site", rule, "nothing was trained", clip=learnt)


def _known(tables_: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: {k: v for k, v in options.items() if k != LEARNT.get(name)} for name, options in table.items()}
        for table in tables_
    ]
