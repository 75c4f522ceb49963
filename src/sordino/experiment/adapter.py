"""The trained adapter as a file that others can load, and the checks that it is what was released.

after every private round ──► what was trained in it moved and is finite
at the end ──► runs/…/adapter (as PEFT loads it) ──► gives the same logits ──► holds released and public values only
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core.types import Vector
from sordino.experiment import accounts as paying
from sordino.experiment.folder import RunFolder
from sordino.experiment.rounds import State
from sordino.experiment.settings import Setup


def moved(
    setup: Setup, start: Vector, seen: Callable[[State], None], lost: Callable[[int], bool]
) -> Callable[[State], None]:
    """`seen`, after a check of each round: noise moves everything that is trained, so nothing may stand still.

    Args:
        setup: The run's fixed parts.
        start: The model before the first round.
        seen: Called after the check.
        lost: Whether a round's release was lost in a crash, so that nothing moved in it.

    Raises:
        PrivacyError: A tensor that was trained is what it was at the start, or is not finite.
    """
    if setup.description is None or not setup.plan.private:
        return seen

    def checked(state: State) -> None:
        number = state.round - 1
        if not lost(number):
            from sordino.local.adapters.verify import check_moved

            check_moved(_trained(setup, number), start, state.server.model, setup.layout.groups)
        seen(state)

    return checked


def _trained(setup: Setup, number: int) -> list[str]:
    """The tensors that a round's clients trained. Where the cohort is secret, all clients train the same ones."""
    sampler = paying.sampler_of(setup.experiment)
    if not sampler.public:
        return [group.name for group in setup.part(number).layout.groups]
    cohort = sampler.draw(len(setup.population), number, setup.source)
    return sorted({group.name for client in cohort for group in setup.part(number, int(client)).layout.groups})


def exported(setup: Setup, model: Vector, folder: RunFolder) -> dict[str, Any]:
    """Save a language model's adapter in the run folder, checked before it is there; nothing for other models.

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
    with _checked_first(path) as unchecked:
        module.save(unchecked)  # type: ignore[operator]
        loads = check_reloads(module, unchecked, spec)  # type: ignore[arg-type]
        fresh = setup.description.build(spec, setup.experiment.seed)
        tensors = check_exported(fresh, vector, unchecked)  # type: ignore[arg-type]
    return {"adapter": {"folder": str(path), "loads_with": loads.by, "tensors": [asdict(each) for each in tensors]}}


@contextmanager
def _checked_first(path: Path) -> Iterator[Path]:
    """A folder that gets its name when the block ends well, and is removed when it does not."""
    unchecked = path.with_name(f".{path.name}.unchecked")
    shutil.rmtree(unchecked, ignore_errors=True)
    try:
        yield unchecked
        shutil.rmtree(path, ignore_errors=True)  # of a run that ended between here and its summary
        unchecked.rename(path)
    finally:
        shutil.rmtree(unchecked, ignore_errors=True)
