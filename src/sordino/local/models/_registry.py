"""What a model file must offer, and the registry it enters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from sordino.core import checks
from sordino.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn

Shapes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Parameter names with their shapes, in the order of the flat vector."""


@dataclass(frozen=True)
class InputSpec:
    """What one record looks like. Public.

    Args:
        shape: Shape of one record, without a batch axis.
        classes: Number of classes, >= 2.
        vocabulary: Number of tokens when records are token sequences.
    """

    shape: tuple[int, ...]
    classes: int
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        checks.count("input", **{f"shape[{i}]": size for i, size in enumerate(self.shape)}, classes=self.classes - 1)
        if self.vocabulary is not None:
            checks.count("input", vocabulary=self.vocabulary)

    @property
    def outputs(self) -> int:
        """Number of logits: one for two classes, else one per class."""
        return 1 if self.classes == 2 else self.classes


class Model(Protocol):
    """A model as data: its keys are the fields, `example` a valid table."""

    def shapes(self, spec: InputSpec) -> Shapes:
        """Names and shapes of the parameters, without building anything."""
        ...

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        """The module in training mode, float32, with parameters drawn from the seed's `init` stream."""
        ...


models: Registry[Model] = Registry("model")


def parameter_count(model: Model, spec: InputSpec) -> int:
    """Number of trainable parameters: the length of the flat vector.

    >>> parameter_count(models.example("logistic"), InputSpec((29,), classes=2))
    30
    """
    return sum(math.prod(shape) for _, shape in model.shapes(spec))


def linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Shapes:
    """The parameters of one `nn.Linear`."""
    weight = ((f"{name}.weight", (outputs, inputs)),)
    return (*weight, (f"{name}.bias", (outputs,))) if bias else weight
