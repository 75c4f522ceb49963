"""From a finished run to its rounds: its own stages, sum, noise and clients, and room for crafted clients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.clients import Clients, Floats
from sordino.core.seeds import stream
from sordino.core.types import NoiseAt, RoundPlan, Unit, Vector
from sordino.data.canaries import craft
from sordino.experiment import accounts as paying
from sordino.experiment.audits._audited import Audited
from sordino.experiment.settings.training import plain_change

if TYPE_CHECKING:
    from sordino.experiment.settings import Setup

MOST = 10
"""Clients that take part in a driven round, and as many held out."""

AT_ONCE = 1_000_000
"""Entries of the updates that are summed in a driven round: there are hundreds of rounds."""

CANDIDATES = 8
"""Records that crafting begins from."""


def subject(audited: Audited) -> Clients:
    """The run's rounds, at its final model.

    Raises:
        DoesNotFit: Clients are not what the run protects.
    """
    from sordino.audit.subjects._rounds import Rounds

    setup = audited.built.setup
    privacy = setup.experiment.privacy
    if privacy.unit is not Unit.CLIENT or not setup.plan.private:
        raise DoesNotFit("the run does not protect whole clients: crafted clients would attack nothing it promises.")
    part = setup.part(setup.experiment.count - 1)
    with setup.training(part, audited.model) as (own, start):
        # Alone with its noise, a client is all that the coordinator sees of it.
        most = 0 if privacy.noise_at is NoiseAt.SILO else max(1, min(MOST, AT_ONCE // own.layout.size))
        joint, held = _chosen(len(setup.population), most, audited.seed)
        return Rounds(
            promise=audited.promise,
            noise_multiplier=setup.account(audited.client).noise_multiplier,
            pipeline=own.pipeline(),
            mechanism=partial(paying.mechanism_of, setup.experiment),
            groups=own.layout.groups,
            honest=_changes(own, joint, start),
            held=_changes(own, held, start),
            craft=partial(_gradient, audited),
            public=setup.population.public,
            seed=audited.seed,
        )


def _chosen(clients: int, most: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Who takes part beside crafted clients, and whose updates a canary is crafted against."""
    order = stream(seed, "driven rounds").permutation(clients)
    joint = order[: min(most, (clients + 1) // 2)]
    return joint, order[len(joint) : len(joint) + MOST]


def _changes(setup: Setup, clients: NDArray[np.int64], start: Vector) -> Floats:
    """Changes of the run's own clients by its own local training, shape (n, d)."""
    plan = RoundPlan(setup.experiment.count, setup.experiment.count, setup.layout.groups, 1.0)
    found = [plain_change(setup, int(client), start, plan).vector for client in clients]
    return np.nan_to_num(np.stack(found)) if found else np.zeros((0, setup.layout.size), dtype=np.float32)


def _gradient(audited: Audited, avoid: Floats, seed: int) -> Vector:
    """A crafted record's gradient at the final model, over the parameters that are trained."""
    from sordino.audit.subjects._crafting import crafted_gradient

    setup = audited.built.setup
    data = audited.population.train
    records = craft(data, data.names[0], CANDIDATES, seed, "random").records
    with setup.training(setup.part(setup.experiment.count - 1), audited.model) as (own, start):
        own.layout.restore(own.module, start)
        return crafted_gradient(own.module, records.x, records.y, avoid)
