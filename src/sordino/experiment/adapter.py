"""The trained adapter as a file that others can load, and the checks that it is what was released.

after the first private round ──► every trained tensor moved and is finite
at the end ──► runs/…/adapter (as PEFT loads it) ──► gives the same logits ──► holds released and public values only
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from sordino.core.types import Vector
from sordino.experiment.folder import RunFolder
from sordino.experiment.rounds import State
from sordino.experiment.settings import Setup


def moved(setup: Setup, start: Vector, seen: Callable[[State], None]) -> Callable[[State], None]:
    """`seen`, with a check after the first round: noise moves everything that is trained, so nothing may stand still.

    Raises:
        PrivacyError: A trained tensor did not move, or is not finite.
    """
    if setup.description is None or not setup.plan.private:
        return seen

    def checked(state: State) -> None:
        if state.round == 1:
            from sordino.local.adapters.verify import check_moved

            names = [group.name for group in setup.part(0).layout.groups]
            check_moved(names, start, state.server.model, setup.layout.groups)
        seen(state)

    return checked


def exported(setup: Setup, model: Vector, folder: RunFolder) -> dict[str, Any]:
    """Save a language model's adapter in the run folder, and check it; nothing for other models.

    Returns:
        `{"adapter": …}` for the summary: where it is, how it loads, and every tensor's hash and origin.

    Raises:
        VerificationError: The saved adapter gives other logits than the trained model.
        PrivacyError: The file holds more than the released parameters.
    """
    if setup.description is None:
        return {}
    from sordino.local.adapters.verify import check_exported, check_reloads

    path, module, spec = folder.path / "adapter", setup.module, setup.population.spec
    vector = np.asarray(model, dtype=np.float32)
    setup.layout.restore(module, vector)
    module.save(path)  # type: ignore[operator]
    loads = check_reloads(module, path, spec)  # type: ignore[arg-type]
    fresh = setup.description.build(spec, setup.experiment.seed)
    tensors = check_exported(fresh, vector, path)  # type: ignore[arg-type]
    return {"adapter": {"folder": str(path), "loads_with": loads.by, "tensors": [asdict(each) for each in tensors]}}
