"""Our protection of records: private steps in a silo, and one noise on the sum over silos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sordino import __version__
from sordino.audit.conformance.adapters._exits import Exits
from sordino.audit.conformance.adapters._flat import named
from sordino.audit.conformance.protocol import BUFFERS, Declared, NotApplicable, Refused, Tensors
from sordino.core.types import Unit, Vector
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.local.clipping import Rule, engines
from sordino.local.layout import Layout
from sordino.local.objectives import objectives
from sordino.local.probe import probe
from sordino.local.state import classify, refuse_private_dependence
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.gradient_sum import gradient_sum
from sordino.local.trainers.plans import PrivateSteps
from sordino.privacy import events
from sordino.privacy.kernel import BoundedSum, total_of
from sordino.privacy.noise import NoiseSource

RATE = 0.1


class Inner(nn.Module):
    """⟨θ, x⟩ over several layers: the gradient of a record's output is the record."""

    def __init__(self, model: Tensors) -> None:
        super().__init__()
        for name, value in model.items():
            if name.endswith(BUFFERS):
                raise NotApplicable("what is no parameter has no gradient; C17 trains beside a batch norm")
            if not np.issubdtype(getattr(value, "dtype", None), np.floating):
                raise NotApplicable("gradients are real numbers")
            if value.size == 0:
                raise NotApplicable("an empty tensor has no gradient")
        self.sizes = [int(value.size) for value in model.values()]
        self.parts = nn.ModuleList(
            nn.Linear(size, 1, bias=False, dtype=torch.from_numpy(np.zeros(1, value.dtype)).dtype)
            for size, value in zip(self.sizes, model.values(), strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        pieces = zip(self.parts, torch.split(x, self.sizes, dim=1), strict=True)
        return torch.stack([_alike(part, piece)[:, 0].float() for part, piece in pieces]).sum(0)


def _alike(part: Any, piece: Tensor) -> Tensor:
    """The layer's output at its own precision."""
    output: Tensor = part(piece.to(part.weight.dtype))
    return output


def own(outputs: Tensor, _: Tensor) -> Tensor:
    """The loss that is the output."""
    return outputs


def rows_of(model: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> NDArray[np.float32]:
    """Records whose gradients are the updates. Shape (records, d).

    Raises:
        NotApplicable: A record cannot say its weight, nor send tensors of its own choice.
    """
    if any(weight != 1 for weight in weights):
        raise NotApplicable("records carry no weight")
    if any(
        list(update) != list(model) or any(np.shape(update[name]) != np.shape(value) for name, value in model.items())
        for update in updates
    ):
        raise NotApplicable("a record does not choose its gradient's names and shapes")
    with np.errstate(over="ignore"):
        rows = [np.concatenate([np.ravel(u[name]).astype(np.float32) for name in model]) for u in updates]
    return np.array(rows, np.float32).reshape(len(rows), sum(int(np.size(value)) for value in model.values()))


@dataclass(frozen=True)
class Records:
    """Private steps in one silo, by one clipping engine and rule.

    Args:
        name: In the table.
        engine: Name of the engine.
        rule: How gradients are brought within the clip.
        clip: L2 norm of a record's gradient.
        noise_multiplier: Over the clip.
        cohort: Expected records of a step.
    """

    name: str
    engine: str = "auto"
    rule: Rule = "flat"
    clip: float = 1.0
    noise_multiplier: float = 1.0
    cohort: int = 10
    exits: Exits = field(default_factory=Exits)

    def claim(self) -> Declared:
        return Declared(
            by=f"Sordino {__version__}, engine {self.engine}, clipping {self.rule}",
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            cohort=self.cohort,
            unit=Unit.RECORD,
            rate=RATE,
            sampling="poisson",
        )

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        return self._released(model, rows_of(model, updates, weights), self.exits.source(seed))

    def series(self, model: Tensors, updates: Sequence[Tensors], count: int, seed: int) -> list[Tensors]:
        rows, source = rows_of(model, updates, [1.0] * len(updates)), self.exits.source(seed)
        return [self._released(model, rows, source) for _ in range(count)]

    def _released(self, model: Tensors, rows: NDArray[np.float32], source: NoiseSource) -> Tensors:
        seen = self._steps(Inner(model), own, (torch.from_numpy(rows), torch.zeros(len(rows))), source)[0]
        edges = np.cumsum([np.size(value) for value in model.values()])[:-1]
        parts = np.split(seen, edges)
        return {name: part.reshape(np.shape(model[name])) for name, part in zip(model, parts, strict=True)}

    def train(
        self, updates: NDArray[np.float32], steps: int, noise_multiplier: float, seed: int
    ) -> NDArray[np.float64]:
        module = Inner({"w": np.zeros(updates.shape[1], np.float32)})
        data = (torch.from_numpy(updates), torch.zeros(len(updates)))
        source = self.exits.source(seed)
        return np.array(self._steps(module, own, data, source, steps=steps, rate=RATE, noise=noise_multiplier))

    def step(self, module: nn.Module, loss: Any, batch: tuple[Tensor, Tensor], seed: int) -> Mapping[str, Any]:
        layout = Layout.of(module)
        start = layout.flatten(module)
        return named(layout, start - self._step(module, loss, batch, seed))

    def gradients(
        self, module: nn.Module, loss: Any, batch: tuple[Tensor, Tensor], trained: Sequence[str], seed: int
    ) -> Mapping[str, Any]:
        for name, parameter in module.named_parameters():
            parameter.requires_grad = name in trained
        self._step(module, loss, batch, seed)
        return {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}

    def _step(self, module: nn.Module, loss: Any, batch: tuple[Tensor, Tensor], seed: int) -> Vector:
        """What one step on all of a batch releases, or the refusal of a run."""
        if len(batch[0]):  # the probe makes up records of its own; here any will do
            order = torch.arange(len(batch[0])).roll(1)
            probe(module, loss, torch.nan_to_num(batch[0][order]).clamp(-9, 9), batch[1][order])
        refuse_private_dependence(Unit.RECORD, classify(module, Layout.of(module)))
        return self._steps(module, loss, batch, self.exits.source(seed))[0]

    def _steps(
        self,
        module: nn.Module,
        loss: Any,
        data: tuple[Tensor, Tensor],
        source: NoiseSource,
        *,
        steps: int = 1,
        rate: float | None = None,
        noise: float | None = None,
    ) -> list[Vector]:
        """What each step releases."""
        mechanism = Gaussian(noise or self.noise_multiplier)
        event = mechanism.event() if rate is None else events.poisson(rate, mechanism.event())
        door = self.exits.door(mechanism, Unit.RECORD, source, charged=event, releases=steps)
        seen: list[Vector] = []

        def release(total: BoundedSum) -> Vector:
            seen.append(door(total))
            return seen[-1]

        layout = Layout.of(module)
        plan = PrivateSteps(
            steps=steps,
            lr=1e-9,  # the gradient of a record stays what it is
            clip=self.clip,
            batch=rate or "full",
            expected_batch=float(self.cohort),
            engine=self.engine,
            clipping=self.rule,
        )
        train_private(
            module,
            layout,
            (data[0].numpy(), data[1].numpy(), None),
            layout.flatten(module),
            plan,
            release=release,
            source=source,
            objective=objectives.build("plain", {}, "objective"),
            loss=loss,
            engine=engines.build(self.engine, {}),
        )
        return seen


@dataclass(frozen=True)
class Summed:
    """One noise on the securely summed gradients of two silos. The secure sum is played."""

    name: str
    clip: float = 1.0
    noise_multiplier: float = 1.0
    cohort: int = 10
    exits: Exits = field(default_factory=Exits)

    def claim(self) -> Declared:
        return Declared(
            by=f"Sordino {__version__}, noise at the sum of two silos",
            noise_multiplier=self.noise_multiplier,
            clip=self.clip,
            cohort=self.cohort,
            unit=Unit.RECORD,
        )

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        rows, source = rows_of(model, updates, weights), self.exits.source(seed)
        half = self.cohort // 2
        released = self._sum(model, [rows[:half], rows[half:]], self.noise_multiplier, source)
        edges = np.cumsum([np.size(value) for value in model.values()])[:-1]
        parts = np.split(released, edges)
        return {name: part.reshape(np.shape(model[name])) for name, part in zip(model, parts, strict=True)}

    def secure_sum(
        self, updates: Sequence[NDArray[np.float32]], missing: Sequence[int], seed: int
    ) -> NDArray[np.float64]:
        if missing:
            raise Refused("the cohort is public and whole: a silo that fails ends the round before anything is drawn")
        model = {"w": np.zeros(len(updates[0]), np.float32)}
        silos = [np.asarray(update, np.float32)[None] for update in updates]
        return np.asarray(self._sum(model, silos, 5e-3, self.exits.source(seed)), np.float64)

    def _sum(self, model: Tensors, silos: Sequence[NDArray[np.float32]], noise: float, source: NoiseSource) -> Vector:
        module = Inner(model)
        layout = Layout.of(module)
        at = layout.flatten(module)
        sums = (
            gradient_sum(module, layout, (rows, np.zeros(len(rows)), None), at, clip=self.clip, loss=own)
            for rows in silos
        )
        return self.exits.door(Gaussian(noise), Unit.RECORD, source)(total_of(sums))
