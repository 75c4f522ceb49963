"""What the models that start from pretrained weights share: their keys, and what they say without being built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import Adapter, chosen
from sordino.local.adapters._base import Base, Task, described
from sordino.local.models._registry import InputSpec, Shapes, TextInput

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Pretrained:
    """Abstract: a frozen base with an adapter in it; a subclass names the task."""

    task: ClassVar[Task]
    base: str
    adapter: dict[str, Any]
    length: int = 64
    dropout: float = 0.0
    checkpointing: Literal["none", "reentrant", "non_reentrant"] = "none"
    quantise: Literal["none", "8bit", "4bit"] = "none"

    def __post_init__(self) -> None:
        checks.count("model", length=self.length)
        if self.dropout:
            checks.fraction("model", dropout=self.dropout)
        if self.checkpointing != "none" and not self.trained.recomputes():
            raise ConfigError.about(
                "model", "does not work with this adapter", "leave out checkpointing", checkpointing=self.checkpointing
            )

    @property
    def trained(self) -> Adapter:
        """The adapter that the table describes."""
        return chosen("model.adapter", self.adapter)

    @property
    def text(self) -> TextInput:
        return TextInput(self.base, self.length, self.task)

    def described(self, spec: InputSpec) -> Base:
        """The base, as its files describe it."""
        if spec.folder is None:
            raise ConfigError.about("model", "needs texts", "use a text dataset", base=self.base)
        return described(spec.folder, self.base, self.task, spec.classes)

    def shapes(self, spec: InputSpec) -> Shapes:
        return tuple((f"network.{name}", shape) for name, shape in self.trained.shapes(self.described(spec)))

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        from sordino.local.models._language import language_model

        return language_model(
            self.described(spec),
            self.trained,
            spec,
            seed,
            dropout=self.dropout,
            checkpointing=self.checkpointing,
            quantise=self.quantise,
        )
