"""What a model file must offer, and the registry it enters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

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
        padding: The token that fills short sequences up; None where there is none.
        folder: Where the pretrained weights lie, for models that start from some: `config.json` and safetensors.
        per_position: Every position has a target of its own: the next token.
    """

    shape: tuple[int, ...]
    classes: int
    vocabulary: int | None = None
    padding: int | None = None
    folder: str | None = None
    per_position: bool = False

    def __post_init__(self) -> None:
        checks.count("input", **{f"shape[{i}]": size for i, size in enumerate(self.shape)}, classes=self.classes - 1)
        if self.vocabulary is not None:
            checks.count("input", vocabulary=self.vocabulary)

    @property
    def outputs(self) -> int:
        """Number of logits: one for two classes, else one per class."""
        return 1 if self.classes == 2 else self.classes


@dataclass(frozen=True)
class TextInput:
    """How a language model wants its text. Public: none of it may be learnt from the data.

    Args:
        base: A name of `sordino data fetch`, a folder, or a model's name on the hub.
        length: Tokens per record; longer texts are cut, shorter ones padded.
        task: `classify` (one label per text) or `continue` (every counted token is predicted from those before it).
    """

    base: str
    length: int
    task: Literal["classify", "continue"]


class Model(Protocol):
    """A model as data: its keys are the fields, `example` a valid table.

    A language model also has a property `text: TextInput`; its InputSpec then carries `folder` and `padding`.
    """

    def shapes(self, spec: InputSpec) -> Shapes:
        """Names and shapes of the parameters, without building anything."""
        ...

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        """The module in training mode, float32, with parameters drawn from the seed's `init` stream."""
        ...


models: Registry[Model] = Registry("model")


def active_names(model: Model, names: tuple[str, ...], round: int, client: int, clients: int) -> tuple[str, ...]:  # noqa: A002 - the noun
    """The parameters that a client trains in a round: all, unless the model's adapter says otherwise.

    >>> active_names(models.example("logistic"), ("linear.weight",), 0, 0, 1)
    ('linear.weight',)
    """
    adapter = getattr(model, "trained", None)
    chosen: tuple[str, ...] = names if adapter is None else adapter.active(names, round, client, clients)
    return chosen


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
