"""Named arrays as a torch module, and so as our flat vector: what is not trained cannot be in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sordino.audit.conformance.protocol import BUFFERS, Tensors
from sordino.core.types import Vector
from sordino.local.layout import Layout


def module_of(tensors: Tensors) -> nn.Module:
    """A module with these parameters; whole numbers and running statistics are its buffers, as in torch's layers."""
    root = nn.Module()
    for name, value in tensors.items():
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
        *path, last = name.split(".")
        owner = root
        for part in path:
            if not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part)
        if tensor.is_floating_point() and last not in BUFFERS:
            owner.register_parameter(last, nn.Parameter(tensor))
        else:
            owner.register_buffer(last, tensor)
    return root


def flattened(layout: Layout, update: Tensors) -> Vector:
    """What a silo sends of an update.

    Raises:
        ConfigError: It is not one of the model's shape.
    """
    return layout.flatten(module_of(update))


def named(layout: Layout, vector: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
    """The tensors of a flat vector."""
    groups = zip(layout.groups, layout.shapes, strict=True)
    return {group.name: vector[group.start : group.stop].reshape(shape) for group, shape in groups}
