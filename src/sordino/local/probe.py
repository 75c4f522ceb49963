"""The independence probe: does one example's loss depend on another example? Run once, before training.

Per-example clipping bounds one example's influence only if no example reaches another's gradient inside the model.
Validators that look at layer types miss cases (frozen batch norm, losses over the batch, expert capacity), so
the probe asks the model itself: change one example, and every other loss must stay what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch import Tensor, nn

from sordino.core.errors import PrivacyError
from sordino.core.seeds import stream
from sordino.local.clipping._engine import per_example
from sordino.local.dropout import without_dropout
from sordino.local.losses import IGNORE, Loss
from sordino.local.models import InputSpec

TOLERANCE = 1e-5
"""Relative difference of losses that rounding explains."""


def synthetic(spec: InputSpec, examples: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random records of a public shape, so that the probe touches no data.

    >>> [tuple(part.shape) for part in synthetic(InputSpec((3,), classes=2))]
    [(4, 3), (4,)]
    """
    rng = stream(seed, "probe")
    size = (examples, *spec.shape)
    y = torch.from_numpy(rng.integers(spec.classes, size=size if spec.per_position else examples))
    if spec.vocabulary is not None:
        x = torch.from_numpy(rng.integers(spec.vocabulary, size=size))
        return _of_unlike_lengths(x, y, spec.padding) if spec.padding is not None else (x, y)
    return torch.from_numpy(rng.normal(size=size)).float(), y


def _of_unlike_lengths(x: Tensor, y: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Sequences filled up at their ends, the first the longest."""
    positions, length = torch.arange(x.shape[1]), x.shape[1]
    ends = torch.tensor([max(2, length - (i * length) // len(x)) for i in range(len(x))])
    beyond = positions >= ends[:, None]
    return x.masked_fill(beyond, padding), y.masked_fill(beyond, IGNORE) if y.dim() > 1 else y


def probe(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> None:
    """Refuse a model or loss in which examples are not independent.

    Every example is replaced by every other one, the last is removed, and the order is turned round (experts with a
    capacity serve who comes first). Dropout repeats its draws.
    The model is left as it was, buffers and random state included.

    Args:
        model: In the mode it is to train in.
        loss: One loss per example.
        x: Synthetic inputs, at least 2; see `synthetic`. Sequences should differ in length.
        y: Synthetic targets.

    Raises:
        PrivacyError: The loss is not a vector, another example's loss changed, or a buffer did.

    Guarantee:
        Detects dependence that shows in the loss of these inputs. It is a test, not a proof.
    """
    if len(x) < 2:
        raise PrivacyError.about("probe", "needs at least two examples", examples=len(x))
    with torch.no_grad(), _unchanged(model):
        _replacing(model, loss, x, y)
        with without_dropout(model):
            _removing(model, loss, x, y)
        _refuse_changed_buffers(model, lambda: model(x))


def _replacing(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> None:
    base = _losses(model, loss, x, y)
    for i in range(len(x)):
        others = torch.arange(len(x)) != i
        for j in torch.nonzero(others).flatten().tolist():
            changed_x, changed_y = x.clone(), y.clone()
            changed_x[i], changed_y[i] = x[j], y[j]
            after = _losses(model, loss, changed_x, changed_y)
            if not _same(base[others], after[others]):
                _refuse(model, "another example's loss changes when one example does")


def _removing(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> None:
    base = per_example(loss(model(x), y), len(x))
    if not _same(base, per_example(loss(model(x), y), len(x))):
        raise PrivacyError.about(
            "probe", "the model draws randomness that the probe cannot hold still", "use nn.Dropout modules"
        )
    if not _same(base[:-1], per_example(loss(model(x[:-1]), y[:-1]), len(x) - 1)):
        _refuse(model, "a loss depends on how many examples are in the batch")
    if not _same(base.flip(0), per_example(loss(model(x.flip(0)), y.flip(0)), len(x))):
        _refuse(model, "a loss depends on the order of the examples")


def _losses(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Losses with the same random draws every time."""
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        return per_example(loss(model(x), y), len(x))


def _same(before: Tensor, after: Tensor) -> bool:
    return torch.allclose(before, after, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def _refuse(model: nn.Module, what: str) -> NoReturn:
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):  # noqa: SLF001 - the only common base class
            raise PrivacyError.about(
                "probe",
                f"{what}: it normalises over the batch",
                "use GroupNorm or LayerNorm, or a frozen batch norm in eval mode",
                module=name,
            )
    raise PrivacyError.about(
        "probe",
        what,
        "let each example's loss use its own outputs only: a mean over its own tokens with its own length, no "
        "statistics, contrasts or capacity limits over the batch",
    )


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def _refuse_changed_buffers(model: nn.Module, run: Callable[[], object]) -> None:
    before = _buffers(model)
    run()
    for name, buffer in model.named_buffers():
        if not torch.equal(before[name], buffer):
            raise PrivacyError.about(
                "probe",
                "changes with the data and would leave without noise",
                "put the module in eval mode, or use GroupNorm or LayerNorm",
                buffer=name,
            )


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    before = _buffers(model)
    devices = sorted({p.device for p in model.parameters() if p.device.type == "cuda"}, key=str)
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
