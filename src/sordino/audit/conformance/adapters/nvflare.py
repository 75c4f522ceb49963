"""NVIDIA FLARE 2.9: its client-side filters for privacy, called as a client's task processing calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from sordino.audit.conformance.protocol import Declared, Refused, Target, Tensors
from sordino.core.types import Adjacency

SCALARS = (
    "SVTPrivacy's own ledger entry: «scalar passthrough is not noise-protected by the SVT accountant»; "
    "its documentation of the filter does not say so"
)
POLICY = 'PercentilePrivacy: «"largest percentile to share" privacy preserving policy»: no noise is promised'


def targets() -> list[Target]:
    """The two filters that change weights."""
    return [
        Filter("SVTPrivacy", 1.0, 2.0, {"C05:a 0-d parameter": SCALARS}),
        Filter("PercentilePrivacy", 1.0, None, dict.fromkeys(("C05", "C06", "C14"), POLICY)),
    ]


@dataclass(frozen=True)
class Filter:
    """A filter on one client's update.

    Args:
        name: Its class.
        clip: gamma, the bound on each coordinate.
        epsilon: What it says one message costs; None where nothing is said.
        discloses: As in `Declared`.
    """

    name: str
    clip: float
    epsilon: float | None
    discloses: dict[str, str]

    def claim(self) -> Declared:
        return Declared(
            by=f"nvflare {version('nvflare')}, {self.name}(gamma={self.clip:g})",
            noise_multiplier=None,
            clip=self.clip,
            cohort=1,
            adjacency=Adjacency.REPLACE_ONE,
            law="laplace",
            norm=1,
            epsilon=self.epsilon,
            discloses=self.discloses,
        )

    def _made(self) -> Any:
        if self.name == "PercentilePrivacy":
            return PercentilePrivacy(percentile=10, gamma=self.clip)
        return SVTPrivacy(fraction=0.1, epsilon=1.0, gamma=self.clip, epsilon_release=1.0)

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        if seed is not None:
            np.random.seed(seed)  # noqa: NPY002, TID251 - it draws from numpy's global generator
        (update,) = updates
        message = DXO(DataKind.WEIGHT_DIFF, data={name: np.array(value) for name, value in update.items()})
        filtered = self._made().process(message.to_shareable(), FLContext())
        data = from_shareable(filtered).data
        if data is None:
            raise Refused("nothing passes")
        return {name: np.asarray(value) for name, value in data.items()}
