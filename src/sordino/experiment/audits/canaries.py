"""From a finished run to its canaries: those that it carried, and its own private step to drive on new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.canaries import Carried, Step, Terms
from sordino.core.errors import VerificationError
from sordino.core.types import NoiseAt, Unit, Vector
from sordino.data.canaries import Canaries as Crafted
from sordino.experiment import accounts as paying
from sordino.experiment import released_metrics
from sordino.experiment.audits._audited import Audited

if TYPE_CHECKING:
    from sordino.experiment.settings import Setup

AT_ONCE = 256
"""Canaries whose losses are taken in one pass."""

PASS = 64
"""Records in a pass, from which thousands of canaries are few passes."""

BY_FACTORS = ("auto", "bookkeeping")
"""Engines that keep the gradients of canary rows factored: thousands of canaries cost them little."""


@dataclass(frozen=True, eq=False)
class RunCanaries:
    """What canary attacks are given of a run; see `sordino.audit.subjects.canaries`."""

    promise: Promise | None
    step: Step | None
    carried: Carried | None
    seed: int


def subject(audited: Audited) -> RunCanaries:
    """The run's canaries.

    Raises:
        DoesNotFit: It carried none, and has no private step on gradients of records or persons.
        VerificationError: The coins in the run folder are not those of the plan.
    """
    step, carried = _step(audited), _carried(audited)
    if step is None and carried is None:
        raise DoesNotFit(
            "the run carried none of the audit's crafted records ([audit] canaries), and has no private step on "
            "gradients of single records or persons that could be driven on some."
        )
    return RunCanaries(audited.promise, step, carried, audited.seed)


def _step(audited: Audited) -> Step | None:
    """The run's own step: its engine, clipping rule, noise law and place of noise."""
    setup = audited.built.setup
    experiment = setup.experiment
    privacy, local = experiment.privacy, experiment.local
    gradients = local.method == "gradient" and local.clip is not None and not experiment.groups
    if not setup.plan.private or privacy.unit is Unit.CLIENT or not gradients:
        return None
    from sordino.audit.subjects._rows import DENSE, SPARSE, RowStep

    account = setup.account(audited.client)
    records = local.records_per_person or 1
    figures = sum(count for _, count in released_metrics.charged(experiment, setup.plan.adjacency))
    cheap = local.engine in BY_FACTORS and (local.micro_batch is None or local.micro_batch >= PASS)
    whole_people = privacy.unit is Unit.USER and records == 1
    return RowStep(
        terms=Terms(local.rate, account.noise_multiplier, account.releases - figures, records),
        engine=setup.clipping,
        mechanism=partial(paying.mechanism_of, experiment),
        clip=float(local.clip or 1.0),
        rule=local.clipping,
        unit=privacy.unit,
        at=_trainer(setup),
        most=SPARSE if cheap and not whole_people else DENSE,
    )


def _trainer(setup: Setup) -> Literal["silo", "side by side", "sum"]:
    """Which trainer ran."""
    if setup.experiment.privacy.noise_at is NoiseAt.SUM:
        return "sum"
    return "silo" if setup.twin is None or setup.twin.layout != setup.layout else "side by side"


def _carried(audited: Audited) -> Carried | None:
    """The canaries that the run had in, and how its final model does on them."""
    crafted = audited.population.canaries
    if crafted is None:
        return None
    kept = audited.folder.read("canaries.json")
    if kept is None or kept["digest"] != crafted.digest or kept["included"] != crafted.included.tolist():
        raise VerificationError.about(
            "audit", "holds other coins than the plan was made with", "restore it", file="canaries.json"
        )
    setup = audited.built.setup
    before, after = (_losses(setup, model, crafted) for model in (audited.built.start, audited.model))
    # Where a canary starts differs from canary to canary; how far it came says more.
    return Carried(crafted.included, {"loss": -after, "fall of the loss": before - after}, _promise(audited, crafted))


def _losses(setup: Setup, model: Vector, crafted: Crafted) -> NDArray[np.float64]:
    """The loss of every candidate, shape (m,). Of crafted records, so it tells nothing of anybody."""
    import torch

    from sordino.local.evaluate import evaluating
    from sordino.local.losses import cross_entropy
    from sordino.local.trainers._data import tensor

    setup.layout.restore(setup.module, model)
    x, y = (tensor(setup.module, values) for values in (crafted.records.x, crafted.records.y))
    with torch.no_grad(), evaluating(setup.module):
        pairs = zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True)
        losses = torch.cat([cross_entropy(setup.module(part), target) for part, target in pairs])
    return losses.cpu().numpy().astype(np.float64)


def _promise(audited: Audited, crafted: Crafted) -> Promise | None:
    """What the run claims for a record of the silo that the canaries are in."""
    if audited.promise is None:
        return None
    account = audited.built.setup.account(audited.population.names.index(crafted.silo))
    return replace(audited.promise, epsilon=account.epsilon, events=account.charges)
