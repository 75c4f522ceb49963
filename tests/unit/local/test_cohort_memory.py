"""Of a large cohort that trains side by side, only the clients of one bucket take memory."""

from __future__ import annotations

import numpy as np

from sordino.core.seeds import stream
from sordino.local.cohort.buckets import ROWS, Member
from sordino.local.cohort.plain import train_plain_many
from sordino.local.cohort.twin import Twin
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers.plans import PlainSteps


def test_records_and_shuffles_are_made_when_their_turn_comes():
    model = models.example("logistic").build(InputSpec((2,), 2), 0)
    stack, made, loaded = Twin(model, cross_entropy), [], []

    def load():
        loaded.append(1)
        return np.ones((1, 2), np.float32), np.zeros(1, np.int64), None

    def rng(client):
        made.append(client)
        return stream(0, "shuffles", client)

    members, start = [Member(1, load)] * (3 * ROWS), np.zeros(stack.layout.size, np.float32)
    changes = train_plain_many(stack, members, start, PlainSteps(lr=1.0, steps=1), rng, objectives.example("plain"))
    next(changes)
    assert len(made) == len(loaded) <= ROWS
    assert len(list(changes)) == 3 * ROWS - 1
    assert made == list(range(3 * ROWS))
