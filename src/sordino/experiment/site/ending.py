"""What a silo keeps of a run that has ended: the model, its adapter, and local figures that nobody else sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from sordino.core.types import Vector
from sordino.data.federation import FederatedData
from sordino.experiment import adapter
from sordino.experiment.folder import RunFolder
from sordino.experiment.metrics import metrics
from sordino.experiment.settings import Setup


def ended(setup: Setup, name: str, model: Vector, folder: Path) -> None:
    """Write a run's model, and how it does on the silo's own held-out records, into the silo's folder.

    Args:
        setup: The run's fixed parts.
        name: The silo's.
        model: The final model, released. Shape (d,).
        folder: Where to write.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # figures on the silo's own records, without noise
    kept, layout, test = RunFolder(folder), setup.layout, setup.population.test
    pairs = zip(layout.groups, layout.shapes, strict=True)
    tensors = {g.name: np.ascontiguousarray(model[g.start : g.stop].reshape(shape)) for g, shape in pairs}
    kept.save_model(tensors, {"digest": setup.plan.digest})
    adapter.exported(setup, model, kept)
    if name in test.names:
        own = FederatedData(test.examples, (name,), (test.rows[test.index(name)],))
        local = replace(setup, population=replace(setup.population, test=own))
        kept.write("metrics.json", metrics(local, model).to_plain() | {"visibility": "local"})
