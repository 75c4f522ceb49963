"""Per-example gradients by Opacus' hooks: for models that vmap cannot map, and as a second opinion."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sordino.core.errors import ConfigError, PrivacyError
from sordino.local.clipping._engine import Batch, Clip, Clipped, Groups, engines, per_example
from sordino.local.clipping._rehearsal import OfEach, Rehearsed, compare
from sordino.local.clipping._sums import Rows, clipped, passes_of
from sordino.local.layout import trainable
from sordino.local.losses import Loss

_LEFT_BEHIND = ("grad_sample", "_current_grad_sample", "_forward_counter", "activations", "max_batch_len")


@engines.register("opacus")
@dataclass(frozen=True)
class Opacus:
    """Hooks on every trainable layer record its inputs and output gradients during one batched pass.

    Hooks are put on for each call and taken off again (a tenth of a millisecond), so that the model can be used
    for anything else in between. Examples share a pass: the model must have passed `sordino.local.probe`.

    Args:
        chunk: Examples per pass; left out, chosen by the number of parameters.
        rows: A public number of examples that few batches exceed; see `Passes`.
    """

    example: ClassVar[dict[str, Any]] = {}
    chunk: int | None = None
    rows: int | None = None
    _rehearsed: Rehearsed = field(
        default_factory=Rehearsed, init=False, repr=False, compare=False, metadata={"toml": False}
    )

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, clip: Clip, groups: Groups = None) -> Clipped:
        _refuse_sleeping(model)

        def gradients(x: Tensor, y: Tensor) -> Rows:
            _forget(model)
            torch.autograd.backward(per_example(loss(model(x), y), len(x)).sum())
            return [_rows(name, parameter, len(x)) for name, parameter in trainable(model).items()]

        with _hooked(model):
            self._rehearsed.once(model, lambda: _rehearse(model, loss, batch, gradients))
            return clipped(model, batch, gradients, clip, groups, passes_of(model, self.chunk, self.rows))


def _rehearse(model: nn.Module, loss: Loss, like: Batch, gradients: Callable[[Tensor, Tensor], Rows]) -> None:
    def of_each(batch: Batch) -> OfEach:
        rows = gradients(*batch)
        return lambda i: torch.cat([row[i] for row in rows])

    compare("engine.opacus", model, loss, like, of_each)


@contextmanager
def _hooked(model: nn.Module) -> Iterator[None]:
    """Opacus' hooks on the model; afterwards neither they nor any gradient stay."""
    try:
        from opacus.grad_sample import GradSampleHooks
    except ImportError as error:
        raise ConfigError.about("engine.opacus", "Opacus is not installed", "pip install 'sordino[train]'") from error
    try:
        hooks = GradSampleHooks(model, loss_reduction="sum")
    except NotImplementedError as error:
        raise PrivacyError.about("engine.opacus", f"Opacus refuses the model: {error}") from error
    try:
        with warnings.catch_warnings():
            # The first layer's input has no gradient; the hook needs its output's only.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            yield
    finally:
        hooks.remove_hooks()
        _tidy(model)


def _forget(model: nn.Module) -> None:
    """No gradients of an earlier chunk."""
    for parameter in trainable(model).values():
        parameter.grad = parameter.grad_sample = None  # type: ignore[attr-defined]
        parameter._forward_counter = 0  # type: ignore[attr-defined]  # noqa: SLF001 - Opacus' own count of calls


def _rows(name: str, parameter: nn.Parameter, examples: int) -> Tensor:
    rows: Any = parameter.grad_sample  # type: ignore[attr-defined]
    if rows is None and parameter.grad is None:  # the layer was not used
        return parameter.new_zeros(examples, parameter.numel())
    if not isinstance(rows, Tensor) or len(rows) != examples:
        raise PrivacyError.about(
            "engine.opacus", "has no gradient per example", 'use engine = "vmap", or freeze it', parameter=name
        )
    return rows.reshape(examples, parameter.numel())


def _refuse_sleeping(model: nn.Module) -> None:
    for name, part in model.named_modules():
        if not part.training and any(p.requires_grad for p in part.parameters(recurse=False)):
            raise PrivacyError.about(
                "engine.opacus",
                "is trainable but in eval mode, where hooks record nothing",
                "call .train()",
                module=name,
            )


def _tidy(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    for holder in (*model.parameters(), *model.modules()):
        for name in _LEFT_BEHIND:
            if name in vars(holder):
                delattr(holder, name)
