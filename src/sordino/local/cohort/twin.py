"""A model's twin whose layers hold one set of parameters per client: one pass serves a whole bucket.

    model                         twin, for K clients
    linear   y = x Wᵀ + b         one batched product over clients
    conv                          one grouped convolution, a group per client
    embedding                     one table, the clients' tables on end
    all else (no parameters)      as it is: examples do not influence each other, whoever they belong to

Source: Bu et al. (2023), arXiv:2210.00038, for the shares of per-example gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from sordino.local.clipping._engine import Unsupported, per_example
from sordino.local.clipping._formulas import formula_of, parts_of
from sordino.local.clipping._shares import Part, Rows, Share, share
from sordino.local.cohort.buckets import Padded
from sordino.local.layout import Layout, trainable
from sordino.local.losses import Loss


class Twin:
    """The stacked form of a model.

    Args:
        model: Trains linear, convolution and embedding layers only. Frozen parameters and buffers are shared with it.
        loss: One loss per example.

    Raises:
        Unsupported: A layer with trainable parameters is of another kind.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.layout, self.device = Layout.of(model), next(model.parameters()).device
        self._loss = loss
        held: dict[int, Any] = {id(each): each for each in (*model.parameters(), *model.buffers())}
        self._module: nn.Module = copy.deepcopy(model, memo=held)
        self._layers: list[_Layer] = []
        names = {id(parameter): name for name, parameter in trainable(model).items()}
        for path, layer in list(self._module.named_modules()):
            own = {at: names[id(p)] for at, p in layer.named_parameters(recurse=False) if id(p) in names}
            if own:
                self._put(path, _stacked(path, layer, own))

    def _put(self, path: str, layer: _Layer) -> None:
        """The stacked layer wherever the original is called."""
        self._layers.append(layer)
        if not path:
            self._module = layer
            return
        for parent in list(self._module.modules()):
            for name, child in list(parent.named_children()):
                if child is layer.original[0]:
                    setattr(parent, name, layer)

    def gradients(self, parameters: Sequence[Tensor], batch: Padded) -> list[Tensor]:
        """Each client's gradient of its own mean loss.

        Args:
            parameters: In the layout's order, each of shape (clients, *shape).
            batch: The clients' records.

        Returns:
            As `parameters`.
        """
        leaves = [each.detach().requires_grad_() for each in parameters]
        losses = self._losses(leaves, batch, None)
        total = (losses.view(batch.present.shape) * batch.weights).sum()
        return list(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))

    def shares(self, parameters: Sequence[Tensor], batch: Padded) -> list[Share]:
        """Every parameter's share of each record's gradient; records are in the order of `batch`, flattened."""
        leaves = [each.detach().requires_grad_() for each in parameters]
        calls: list[tuple[_Layer, Tensor, Tensor]] = []
        losses = self._losses(leaves, batch, calls)
        if any(output._version for _, _, output in calls):  # noqa: SLF001 - how torch counts in-place writes
            raise Unsupported.about("cohort", "a layer's output is overwritten in place", "use inplace=False")
        gradients = torch.autograd.grad(losses.sum(), [output for _, _, output in calls], allow_unused=True)
        found: dict[str, list[Part]] = {group.name: [] for group in self.layout.groups}
        for (layer, x, _), g in zip(calls, gradients, strict=True):
            if g is not None:
                for name, part in layer.parts(x, g).items():
                    found[name].append(part)
        sizes = [group.stop - group.start for group in self.layout.groups]
        return [
            share(parts or [Rows(torch.zeros(1, 1).expand(len(losses), size))], multiply=False)
            for parts, size in zip(found.values(), sizes, strict=True)
        ]

    def _losses(self, leaves: list[Tensor], batch: Padded, calls: list[tuple[_Layer, Tensor, Tensor]] | None) -> Tensor:
        values = dict(zip((group.name for group in self.layout.groups), leaves, strict=True))
        clients = batch.present.shape[1]
        for layer in self._layers:
            layer.hold(values, clients, calls)
        try:
            x, y = batch.x.flatten(0, 1), batch.y.flatten(0, 1)
            return per_example(self._loss(self._module(x), y), len(x))
        finally:
            for layer in self._layers:
                layer.hold({}, 0, None)


class _Layer(nn.Module):
    """A layer with a set of parameters per client. Its rows are in the order of `Padded`, flattened."""

    def __init__(self, layer: nn.Module, own: dict[str, str]) -> None:
        super().__init__()
        self.original = (layer,)  # in a tuple, so that it is no child
        self.own = own

    def hold(self, values: dict[str, Tensor], clients: int, calls: list[Any] | None) -> None:
        """Take the parameters of a pass, and the list that its calls are told to."""
        self.values, self.clients, self.calls = values, clients, calls

    def of(self, name: str) -> Tensor | None:
        """The clients' tensors of this name, shape (clients, *shape)."""
        if name in self.own:
            return self.values[self.own[name]]
        frozen = cast("Tensor | None", getattr(self.original[0], name))
        return None if frozen is None else frozen.expand(self.clients, *frozen.shape)

    def parts(self, x: Tensor, g: Tensor) -> dict[str, Part]:
        """One call's parts of the per-example gradients, by parameter."""
        layer = self.original[0]
        formula = formula_of(layer)
        if formula is None or len(x) != len(g):
            raise Unsupported.about("cohort", "a layer is called without one row per example")
        made = parts_of(layer, formula, x.detach(), g)
        return {name: made[at]() for at, name in self.own.items()}

    def forward(self, x: Tensor) -> Tensor:
        output = self.stacked(x)
        if self.calls is not None:
            self.calls.append((self, x, output))
        return output

    def stacked(self, x: Tensor) -> Tensor:
        """The layer's output for all clients."""
        raise NotImplementedError


class _Linear(_Layer):
    def stacked(self, x: Tensor) -> Tensor:
        weight, bias = cast("Tensor", self.of("weight")), self.of("bias")
        rows = x.view(-1, self.clients, *x.shape[1:]).transpose(0, 1)
        shape = rows.shape[:-1]
        rows = rows.reshape(self.clients, -1, x.shape[-1])
        if bias is None:
            made = torch.bmm(rows, weight.transpose(1, 2))
        else:
            made = torch.baddbmm(bias[:, None], rows, weight.transpose(1, 2))
        return made.view(*shape, -1).transpose(0, 1).flatten(0, 1)


class _Conv2d(_Layer):
    def stacked(self, x: Tensor) -> Tensor:
        weight, bias = cast("Tensor", self.of("weight")), self.of("bias")
        layer = cast("nn.Conv2d", self.original[0])
        made = functional.conv2d(
            x.reshape(-1, self.clients * x.shape[1], *x.shape[2:]),
            weight.flatten(0, 1),
            None if bias is None else bias.flatten(),
            stride=layer.stride,
            padding=cast("tuple[int, int]", layer.padding),
            dilation=layer.dilation,
            groups=self.clients * layer.groups,
        )
        return made.reshape(len(x), -1, *made.shape[2:])


class _Embedding(_Layer):
    def stacked(self, x: Tensor) -> Tensor:
        weight = cast("Tensor", self.of("weight"))
        first = torch.arange(self.clients, device=x.device) * weight.shape[1]
        tokens = x.view(-1, self.clients, *x.shape[1:]) + first.view(1, -1, *[1] * (x.dim() - 1))
        return functional.embedding(tokens, weight.flatten(0, 1)).flatten(0, 1)


_KINDS: dict[type[nn.Module], type[_Layer]] = {nn.Linear: _Linear, nn.Conv2d: _Conv2d, nn.Embedding: _Embedding}


def _stacked(path: str, layer: nn.Module, own: dict[str, str]) -> _Layer:
    kind = _KINDS.get(type(layer))
    if kind is None or formula_of(layer) is None or getattr(layer, "padding_idx", None) is not None:
        raise Unsupported.about("cohort", "is a layer that has no stacked form", layer=path or "model")
    return kind(layer, own)
