"""Dropout held off for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """The model with its dropout modules off, and on again afterwards."""
    layers = [part for part in model.modules() if isinstance(part, nn.modules.dropout._DropoutNd)]  # noqa: SLF001 - the only common base class
    modes = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
