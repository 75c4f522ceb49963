"""Opacus: `PrivacyEngine.make_private` in its modes, with batches that are given, and with its own loader.

Its documentation: https://opacus.ai/api/privacy_engine.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sordino.audit.conformance.adapters._opacus_books import Accountant, Federated
from sordino.audit.conformance.adapters._records import Inner, own, rows_of
from sordino.audit.conformance.protocol import Declared, Target, Tensors
from sordino.core.types import Unit

SEEDS = (
    "PrivacyEngine, secure_mode: «secure_mode=True uses secure random number generator for noise and shuffling (as "
    "opposed to pseudo-rng in vanilla PyTorch) and prevents certain floating-point arithmetic-based attacks»; off by "
    "default"
)
SHUFFLED = (
    "PrivacyEngine.make_private, poisson_sampling: «Technically this doesn't fit the assumptions made by privacy "
    "accounting mechanism, but it can be a good approximation»"
)


def targets() -> list[Target]:
    """Its modes of clipping and sampling, and its accountants."""
    return [
        Mode("flat clipping"),
        Mode("ghost clipping", ghost=True),
        Mode("per-layer clipping", clipping="per_layer"),
        Mode("poisson_sampling=False", poisson=False),
        *(Accountant(f"accountant {name}", name) for name in ("rdp", "prv", "gdp")),
        Federated("one engine for all rounds"),
        Federated("an engine for each round, as in Flower's Opacus example", anew=True),
    ]


@dataclass(frozen=True)
class Mode:
    """One way of making a training private.

    Args:
        name: In the table.
        clipping: `flat` or `per_layer`.
        ghost: Norms first, then a second backward pass.
        poisson: Its own sampler instead of the loader's.
    """

    name: str
    clipping: str = "flat"
    ghost: bool = False
    poisson: bool = True
    clip: float = 1.0
    noise_multiplier: float = 1.0
    cohort: int = 10

    def claim(self) -> Declared:
        return Declared(
            by=f"Opacus {version('opacus')}, make_private({self.name})",
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            cohort=self.cohort,
            unit=Unit.RECORD,
            rate=0.1,
            sampling="poisson",
            discloses={
                "C08:seeding the ordinary generators": SEEDS,
                "C08:a forked worker": SEEDS,
                "C18": SEEDS,
                **({} if self.poisson else {"C10": SHUFFLED}),
            },
        )

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        rows = rows_of(model, updates, weights)
        module = Inner(model)
        _start_at_zero(module)
        if seed is not None:
            _seed(seed)
        state = self._step(module, own, (torch.from_numpy(rows), torch.zeros(len(rows))))
        values = [-state[f"parts.{i}.weight"].reshape(np.shape(value)) for i, value in enumerate(model.values())]
        return dict(zip(model, values, strict=True))

    def step(self, module: nn.Module, loss: Any, batch: tuple[Tensor, Tensor], seed: int) -> Mapping[str, Any]:
        _seed(seed)
        return self._step(module, loss, batch)

    def _step(
        self, module: nn.Module, loss: Any, batch: tuple[Tensor, Tensor], trained: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        """One step on a given batch: with the learning rate at the divisor, the change is the noised sum."""
        loader = DataLoader(TensorDataset(torch.zeros(10 * self.cohort, 1)), batch_size=self.cohort)
        private, optimizer, _, criterion = self._made(module, loader, _Mean(loss), trained=trained)
        for group in optimizer.param_groups:
            group["lr"] = float(optimizer.expected_batch_size)
        optimizer.zero_grad()
        value = criterion(private(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        exported = getattr(private, "_module", private).state_dict()
        once = {value.data_ptr() or name: name for name, value in reversed(exported.items())}  # a tied tensor once
        return {name: value.detach().numpy() for name, value in exported.items() if name in once.values()}

    def gradients(
        self, module: nn.Module, loss: Any, batch: tuple[Tensor, Tensor], trained: Sequence[str], seed: int
    ) -> Mapping[str, Any]:
        _seed(seed)
        self._step(module, loss, batch, trained)
        return {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}

    def train(
        self, updates: NDArray[np.float32], steps: int, noise_multiplier: float, seed: int
    ) -> NDArray[np.float64]:
        module: Any = Inner({"w": np.zeros(updates.shape[1], np.float32)})
        _start_at_zero(module)
        _seed(seed)
        data = TensorDataset(torch.from_numpy(updates), torch.zeros(len(updates)))
        size = max(1, round(0.1 * len(updates)))
        loader = DataLoader(data, batch_size=size, shuffle=True)
        private, optimizer, drawn, criterion = self._made(module, loader, _Mean(own), noise_multiplier)
        weight = module.parts[0].weight
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        seen: list[NDArray[np.float64]] = []
        while len(seen) < steps:
            for x, y in drawn:
                before = weight.detach().double().clone()
                optimizer.zero_grad()
                criterion(private(x), y).backward()
                optimizer.step()
                seen.append(((before - weight.detach().double()) * optimizer.expected_batch_size).numpy().ravel())
                if len(seen) == steps:
                    break
        return np.array(seen)

    def _made(
        self,
        module: nn.Module,
        loader: Any,
        loss: Any,
        noise: float | None = None,
        trained: Sequence[str] | None = None,
    ) -> Any:
        """What `make_private` gives; its optimizer holds all that needs a gradient, or only what is named."""
        held = [
            parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and (trained is None or name in trained)
        ]
        layers = len(held)
        common = {
            "module": module,
            "optimizer": torch.optim.SGD(held, lr=1.0),
            "data_loader": loader,
            "noise_multiplier": self.noise_multiplier if noise is None else noise,
            # Per layer, the clips' squares add up to the square of the whole.
            "max_grad_norm": [self.clip / layers**0.5] * layers if self.clipping == "per_layer" else self.clip,
            "clipping": self.clipping,
            "poisson_sampling": self.poisson,
        }
        engine = PrivacyEngine()
        if self.ghost:
            private, optimizer, criterion, drawn = engine.make_private(
                **common, criterion=loss, grad_sample_mode="ghost"
            )
            return private, optimizer, drawn, criterion
        private, optimizer, drawn = engine.make_private(**common)
        return private, optimizer, drawn, loss


class _Mean:
    """A criterion with a reduction, as Opacus expects it, around a loss per record."""

    reduction = "mean"

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    def __call__(self, outputs: Any, target: Tensor) -> Tensor:
        each = self.loss(outputs, target)
        if self.reduction == "none":
            return each  # type: ignore[no-any-return]
        return each.mean() if len(each) else each.sum()  # type: ignore[no-any-return]


def _start_at_zero(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()


def _seed(seed: int) -> None:
    """Opacus draws from torch's global generator."""
    torch.random.manual_seed(seed)
