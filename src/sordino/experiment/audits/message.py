"""A silo's messages for the inversion attacks: of its own records, under the run's protection and under others."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Batch, Content, Message, Protection
from sordino.core import seeds
from sordino.core.types import NoiseAt, Unit, Vector
from sordino.experiment import config
from sordino.experiment.audits._audited import Audited
from sordino.experiment.audits._wires import Wire, single_step
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.pricing import Pricing
from sordino.privacy.calibration import calibrate_noise

if TYPE_CHECKING:
    from sordino.local.trainers._data import Data

EPSILONS = (4.0, 2.0, 1.0)
"""At which the same messages are shown for comparison: the whole run would cost so much."""

MESSAGES = 16
"""Messages that are made, each of one record: the batch in which a record is least hidden by others.

With two labels fewer could not tell a leak of them from luck.
"""

CONTINUED = 4
"""Messages of texts to be continued, which have no label and cost most."""


def subject(audited: Audited) -> Message:
    """Messages of the attacked silo in round 1, where the model is public and its gradients are largest.

    Each is of one step over one record, sent by the run's own trainer, clipping engine and exit, with its noise.

    Raises:
        DoesNotFit: Silos send no gradient.
    """
    from sordino.local.losses import cross_entropy

    plan, population, built = audited.plan, audited.population, audited.built
    if plan.experiment.local.method != "gradient":
        raise DoesNotFit("a silo sends a few slopes a step and no gradient: there is nothing to invert.")
    setup, content = built.setup, _content(population)
    count = CONTINUED if population.spec.per_position else MESSAGES
    rows = _rows(population, audited.client, count, audited.seed)
    data = [_record(population, int(row)) for row in rows]
    part = setup.part(0, audited.client)
    with setup.training(part, built.start) as (own, at):
        wire = Wire(single_step(own), audited.client, at, audited.seed)
        ways = list(_ways(plan, wire, data, audited.client))
    setup.layout.restore(setup.module, built.start)
    x = population.train.examples.x
    return Message(
        promise=audited.promise,
        module=copy.deepcopy(setup.module).eval(),
        layout=part.layout,
        loss=cross_entropy,
        content=content,
        protections=tuple(protection for protection, _ in ways),
        audited=_audited(plan),
        batches=tuple(
            Batch(x[row : row + 1], population.train.examples.y[row : row + 1], {p.name: v[i] for p, v in ways})
            for i, row in enumerate(rows)
        ),
        public=population.public,
        box=(float(x.min()), float(x.max())),
        guess=None if content is Content.TEXT else _guess(population, rows),
    )


def _ways(plan: Plan, wire: Wire, data: list[Data], client: int) -> Iterator[tuple[Protection, list[Vector]]]:
    """Every protection with the messages under it, from the weakest on."""
    privacy = plan.experiment.privacy
    plain = Protection(NOTHING, "no protection", math.inf, wire.scale(1, private=False))
    yield plain, [wire.plain(each) for each in data]
    scale = wire.scale(1, private=True)
    if privacy.unit is Unit.CLIENT and privacy.noise_at is NoiseAt.COORDINATOR:
        label = "clipping only (the trusted coordinator adds the noise)"
        yield Protection("clip", label, math.inf, scale), [wire.sent(each) for each in data]
        return
    yield Protection("clip", "clipping only", math.inf, scale), wire.clipped(data)
    for name, label, epsilon, z in sorted(_noises(plan, client, wire), key=lambda way: way[-1]):
        yield Protection(name, label, epsilon, scale, wire.std(z, 1)), wire.noised(data, z)


def _noises(plan: Plan, client: int, wire: Wire) -> Iterator[tuple[str, str, float, float]]:
    """Name, label, epsilon and noise multiplier: the run's own, and those of other budgets."""
    population = len(wire.setup.population)
    training = config.changed(plan.experiment, evaluation__release=None)  # messages are of training alone
    pricing = Pricing(training, population, plan.delta or 1e-5, plan.adjacency)
    own = [account for account in plan.accounts if account.client in (client, None)]
    payer = own[0].client if own else client
    group = own[0].group if own else None
    for account in own[:1]:
        yield "run", f"the run's ε = {account.epsilon:.3g}", account.epsilon, account.noise_multiplier
    for epsilon in EPSILONS:
        z = calibrate_noise(
            lambda noise: pricing.events(payer, noise, group),
            epsilon,
            pricing.delta,
            adjacency=pricing.adjacency,
            rough=True,
        )
        yield f"epsilon-{epsilon:g}", f"ε = {epsilon:g}", epsilon, z


def _audited(plan: Plan) -> str:
    privacy = plan.experiment.privacy
    if privacy.non_private:
        return NOTHING
    return "clip" if privacy.unit is Unit.CLIENT and privacy.noise_at is NoiseAt.COORDINATOR else "run"


def _content(population: Population) -> Content:
    if population.spec.vocabulary is not None:
        return Content.TEXT
    return Content.IMAGE if len(population.spec.shape) == 3 else Content.TABLE


def _rows(population: Population, client: int, count: int, seed: int) -> NDArray[np.int64]:
    """Some of the silo's records, of all labels in turn, so that labels can be told apart."""
    train = population.train
    rows = seeds.stream(seed, "messages", client).permutation(train.rows[client])
    labels = train.examples.y[rows]
    if labels.ndim > 1:
        return rows[:count]
    turn = np.zeros(len(rows), dtype=np.int64)
    for label in np.unique(labels):
        turn[labels == label] = np.arange((labels == label).sum())
    return rows[np.argsort(turn, kind="stable")][:count]


def _record(population: Population, row: int) -> Data:
    one = population.train.examples.take(np.array([row]))
    return one.x, one.y, one.user


def _guess(population: Population, rows: NDArray[np.int64]) -> NDArray[Any]:
    """The mean of all silos' other records."""
    others = np.setdiff1d(np.concatenate(population.train.rows), rows)
    guess: NDArray[Any] = population.train.examples.x[others].mean(axis=0)
    return guess
