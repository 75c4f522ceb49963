"""The small convolutional network of the federated-learning papers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.local.models._registry import InputSpec, Shapes, linear, models

if TYPE_CHECKING:
    from torch import nn


@models.register("cnn")
@dataclass(frozen=True)
class Cnn:
    """Convolution, pooling, activation for each entry of `channels`, then one hidden layer.

    The default has 21,840 parameters on 1 x 28 x 28: the classic MNIST network, without dropout.
    Convolutions are unpadded where the image is large enough, else padded to keep its size.

    Args:
        channels: Output channels of the convolutions.
        kernel: Side of the convolution kernels, odd.
        pool: Side of the max-pooling windows.
        hidden: Width of the hidden layer.
        activation: `relu`, `elu` or `tanh`.
        mean: Public mean that is taken from every pixel first, e.g. 0.1307 for MNIST.
        std: Public standard deviation that it is divided by, e.g. 0.3081.
        scales: One number per convolution and layer, or none. A layer with scale s stores its parameters divided by s:
            it then gets s² times the step, and s times the share of a clipped gradient.
    """

    example: ClassVar[dict[str, Any]] = {"channels": [10, 20], "hidden": 50}
    channels: tuple[int, ...] = (10, 20)
    kernel: int = 5
    pool: int = 2
    hidden: int = 50
    activation: Literal["relu", "elu", "tanh"] = "relu"
    mean: float = 0.0
    std: float = 1.0
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        widths = {f"channels[{i}]": width for i, width in enumerate(self.channels)}
        checks.count("model.cnn", **widths, kernel=self.kernel, pool=self.pool, hidden=self.hidden)
        checks.positive("model.cnn", std=self.std)
        checks.positive("model.cnn", **{f"scales[{i}]": scale for i, scale in enumerate(self.scales)})
        if self.scales and len(self.scales) != len(self.channels) + 2:
            raise ConfigError.about("model.cnn", f"must be {len(self.channels) + 2} numbers", scales=self.scales)
        if self.kernel % 2 == 0:
            raise ConfigError.about("model.cnn", "must be odd", "e.g. 3 or 5", kernel=self.kernel)

    def _padding(self, spec: InputSpec) -> tuple[int, int]:
        """The padding of the convolutions, and the number of features after the last pooling."""
        if len(spec.shape) != 3:
            raise ConfigError.about("model.cnn", "must be channels x height x width", shape=spec.shape)
        for padding in (0, self.kernel // 2):
            height, width = spec.shape[1:]
            for _ in self.channels:
                height, width = ((side + 2 * padding - self.kernel + 1) // self.pool for side in (height, width))
            if min(height, width) >= 1:
                return padding, (self.channels or spec.shape)[-1] * height * width
        raise ConfigError.about(
            "model.cnn", "is too small for this many poolings", "use fewer channels or a smaller pool", shape=spec.shape
        )

    def _convolutions(self, spec: InputSpec) -> list[tuple[str, int, int]]:
        widths = [spec.shape[0], *self.channels]
        return [(f"conv{i}", *pair) for i, pair in enumerate(zip(widths, self.channels, strict=False), 1)]

    def shapes(self, spec: InputSpec) -> Shapes:
        _, features = self._padding(spec)
        convolutions: list[tuple[str, tuple[int, ...]]] = []
        for name, inputs, outputs in self._convolutions(spec):
            convolutions.append((f"{name}.weight", (outputs, inputs, self.kernel, self.kernel)))
            convolutions.append((f"{name}.bias", (outputs,)))
        return (*convolutions, *linear("hidden", features, self.hidden), *linear("head", self.hidden, spec.outputs))

    def build(self, spec: InputSpec, seed: int) -> nn.Module:
        from torch import nn

        from sordino.local.models._torch import ACTIVATIONS, Affine, initialised, rescaled

        padding, features = self._padding(spec)
        activation = ACTIVATIONS[self.activation]
        scales = self.scales or (1.0,) * (len(self.channels) + 2)

        def make() -> nn.Module:
            parts: OrderedDict[str, nn.Module] = OrderedDict(standardise=Affine(self.mean, 1 / self.std))
            for i, (name, inputs, outputs) in enumerate(self._convolutions(spec), 1):
                parts[name] = nn.Conv2d(inputs, outputs, self.kernel, padding=padding)
                parts[f"scale{i}"] = Affine(0, scales[i - 1])
                parts[f"pool{i}"] = nn.MaxPool2d(self.pool)
                parts[f"activation{i}"] = activation()
            parts["flatten"] = nn.Flatten()
            parts["hidden"] = nn.Linear(features, self.hidden)
            parts["hidden scale"] = Affine(0, scales[-2])
            parts["activation"] = activation()
            parts["head"] = nn.Linear(self.hidden, spec.outputs)
            parts["head scale"] = Affine(0, scales[-1])
            return nn.Sequential(parts)

        module = initialised(make, seed)
        layers = [name for name, _, _ in self._convolutions(spec)] + ["hidden", "head"]
        for name, scale in zip(layers, scales, strict=True):
            rescaled(module.get_submodule(name), scale)
        return module
