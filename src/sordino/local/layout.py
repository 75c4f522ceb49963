"""A module's trainable parameters as one flat float32 vector, and back: all that ever leaves a silo.

    named_parameters, trainable only, shared tensors once
    ┌ conv.weight ┬ conv.bias ┬ head.weight ┬ head.bias ┐
    0             250         260           …           size

Buffers and frozen parameters are not in it, so they cannot leave by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from sordino.core.errors import ConfigError, EngineError
from sordino.core.types import Group, Vector


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters by name, in the order of `named_parameters`; a shared tensor once."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


@dataclass(frozen=True)
class Layout:
    """Where each trainable parameter lies in the flat vector.

    Args:
        groups: One stretch per parameter tensor, in order, without gaps.
        shapes: The tensors' shapes, in the same order.
    """

    groups: tuple[Group, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """The layout of a module.

        Raises:
            ConfigError: Nothing is trainable, or a trainable tensor does not hold real numbers.

        >>> Layout.of(nn.Linear(2, 3)).groups[1]
        Group(name='bias', start=6, stop=9)
        """
        groups, shapes, start = [], [], 0
        for name, parameter in trainable(module).items():
            if not parameter.is_floating_point():
                raise ConfigError.about(
                    "layout", "is trainable but holds no real numbers", "freeze it", name=name, dtype=parameter.dtype
                )
            stop = start + parameter.numel()
            groups.append(Group(name, start, stop))
            shapes.append(tuple(parameter.shape))
            start = stop
        if not groups:
            raise ConfigError.about("layout", "the model has no trainable parameter", "set requires_grad on some")
        return cls(tuple(groups), tuple(shapes))

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return self.groups[-1].stop

    def flatten(self, module: nn.Module) -> Vector:
        """The trainable parameters, copied. Shape (size,), float32."""
        parts = [parameter.detach().reshape(-1).float().cpu().numpy() for parameter in self._tensors(module)]
        return np.concatenate(parts).astype(np.float32, copy=False)

    def restore(self, module: nn.Module, vector: Vector) -> None:
        """Write a flat vector into the module's parameters, in place.

        Raises:
            ConfigError: The vector has another length, or the module another layout.
            EngineError: The vector is not finite: training diverged.
        """
        if vector.shape != (self.size,):
            raise ConfigError.about("layout", f"must be ({self.size},)", "flatten the same model", shape=vector.shape)
        if not np.isfinite(vector).all():
            raise EngineError.about("layout", "the parameters are not finite: training diverged", "lower the rate")
        whole = torch.from_numpy(np.array(vector, dtype=np.float32))
        with torch.no_grad():
            for group, parameter in zip(self.groups, self._tensors(module), strict=True):
                parameter.copy_(whole[group.start : group.stop].view_as(parameter))

    def _tensors(self, module: nn.Module) -> list[Tensor]:
        found = trainable(module)
        expected = {group.name: shape for group, shape in zip(self.groups, self.shapes, strict=True)}
        if {name: tuple(parameter.shape) for name, parameter in found.items()} != expected:
            changed = sorted(set(found) ^ set(expected)) or "shapes"
            raise ConfigError.about(
                "layout", "is not this module's", "freeze before taking the layout", differs=changed
            )
        # By name: another module may have the same parameters in another order.
        return [found[group.name] for group in self.groups]
