"""What all low-rank adapters share: W0 + s·B·A on chosen linear maps, s = alpha / rank.

x ──┬─► W0 ───────────────────────┐
    └─► A (rank × in) ─► B ─► · s ┴─► y     A uniform in ±1/√in, B zero: training starts at W0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sordino.core import checks
from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import Whole
from sordino.local.adapters._base import Base, Linear

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from sordino.local.models._registry import Shapes


@dataclass(frozen=True)
class LowRank(Whole):
    """Abstract: a subclass says what of A and B is trained, and how a saved B comes about."""

    rank: int = 8
    alpha: float | None = None
    targets: tuple[str, ...] | Literal["attention", "all-linear"] = "attention"
    layers: tuple[int, ...] = ()
    head: bool = True

    def __post_init__(self) -> None:
        checks.count("adapter", rank=self.rank)
        if self.alpha is not None:
            checks.positive("adapter", alpha=self.alpha)

    @property
    def scale(self) -> float:
        """The s of W0 + s·B·A."""
        return 2.0 if self.alpha is None else self.alpha / self.rank

    @property
    def width(self) -> int:
        """Rows of the saved A."""
        return self.rank

    def targeted(self, base: Base) -> tuple[Linear, ...]:
        """The linear maps that `targets` and `layers` choose, in the order of the modules."""
        known = {name for linear in base.linears for name in _names(linear)}
        wanted = base.attention if self.targets == "attention" else self.targets
        if not wanted:
            raise ConfigError.about(
                "adapter", "are not known", "name the maps in `targets`", queries_and_values_of=base.architecture
            )
        names = known if wanted == "all-linear" else set(wanted)
        for name in names - known:
            short = {linear.path.rpartition(".")[2] for linear in base.linears}
            raise ConfigError.about("adapter", "is no linear map of the base", nearest(name, short), targets=name)
        for layer in set(self.layers) - set(range(base.layers)):
            raise ConfigError.about("adapter", f"must be one of 0 to {base.layers - 1}", layers=layer)
        layers = self.layers or range(base.layers)
        return tuple(x for x in base.linears if x.layer in layers and names.intersection(_names(x)))

    def trained(self, linear: Linear) -> Shapes:
        """The trainable parameters of one adapted map, by their paths from there on."""
        return (
            ("lora_A.default.weight", (self.rank, linear.inputs)),
            ("lora_B.default.weight", (linear.outputs, self.rank)),
        )

    def shapes(self, base: Base) -> Shapes:
        inner = tuple((f"{x.path}.{name}", shape) for x in self.targeted(base) for name, shape in self.trained(x))
        return (*inner, *base.head) if self.head else inner

    def attach(self, network: nn.Module, base: Base, seed: int) -> None:
        from sordino.local.adapters._torch import drawn, injected

        targets = self.targeted(base)
        layers = injected(network, self.config(base), [linear.path for linear in targets])
        with drawn(seed) as generator:
            for linear, layer in zip(targets, layers, strict=True):
                self.start(linear, layer, generator)

    def start(self, linear: Linear, layer: Any, generator: Generator) -> None:
        """Give one adapted map its first values: A as in Kaiming's rule with a = √5, B zero."""
        bound = linear.inputs**-0.5
        layer.lora_A["default"].weight.uniform_(-bound, bound, generator=generator)
        layer.lora_B["default"].weight.zero_()

    def factors(self, layer: Any) -> tuple[Tensor, Tensor]:
        """A and B of one adapted map, as plain LoRA has them."""
        return layer.lora_A["default"].weight, layer.lora_B["default"].weight

    def tensors(self, network: nn.Module, base: Base) -> dict[str, Tensor]:
        from sordino.local.adapters._torch import head_of

        saved = head_of(network, base, "base_model.model")
        for linear in self.targeted(base):
            pair = self.factors(network.get_submodule(linear.path))
            for letter, factor in zip("AB", pair, strict=True):
                saved[f"base_model.model.{linear.path}.lora_{letter}.weight"] = factor
        return saved

    def config(self, base: Base) -> Any:
        from sordino.local.adapters._torch import lora_config

        targets = self.targeted(base)
        return lora_config(base, targets, rank=self.width, alpha=self.scale * self.width)


def _names(linear: Linear) -> list[str]:
    """All names that mean this map by PEFT's rule: its path, and what is left of it after any dot."""
    parts = linear.path.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]
