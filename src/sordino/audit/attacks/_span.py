"""The span check: which tokens' inputs to the first layer lie in the row space of its gradient.

token v at place p ──network up to the first layer──► x(v, p) ──► distance from the span of the gradient's rows
gradient ──SVD──► directions above noise and rounding ──► span       └──► how rarely a random input lies as near
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor, nn

from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import Batch, Message, Protection
from sordino.core.types import Group
from sordino.local.layout import trainable

SURE = 1e-4
"""Chance that the exact check names any token that is not there, for inputs in random directions."""

ROUNDING = 2.0**-24
"""Relative error of a float32 number: messages are differences of parameters."""

ANY = (3, 4)
"""Two tokens that are hardly anybody's padding."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of one message's tokens.

    Args:
        luck: By token, the logarithm of how rarely a token that is not there looks as present. Shape (vocabulary,).
        found: The tokens that are named for certain.
    """

    luck: Floats
    found: frozenset[int]

    def best(self, k: int) -> frozenset[int]:
        """The k tokens that look most present."""
        return frozenset(np.argsort(self.luck, kind="stable")[:k].tolist())


@dataclass(frozen=True, eq=False)
class Map:
    """A linear map whose input depends on token and place alone, or a table of embeddings.

    Args:
        group: Its weight's place in a message.
        shape: Of the weight.
        transposed: The weight is stored as (inputs, outputs).
        inputs: Of unit length, shape (vocabulary, places, width); None for a table of embeddings.
    """

    group: Group
    shape: tuple[int, ...]
    transposed: bool
    inputs: Tensor | None = None

    def matrix(self, gradient: Floats) -> Floats:
        """Its part of a whole gradient, shape (outputs, inputs), or (tokens, width) for embeddings."""
        part = gradient[self.group.start : self.group.stop].reshape(self.shape)
        return part.T if self.transposed else part

    def luck(self, gradient: Floats, floor: float) -> tuple[Floats, int]:
        """By token, the log of how rarely an absent one looks as present; and how many tokens can be told at most.

        Args:
            gradient: The whole one, shape (d,).
            floor: Standard deviation of noise and rounding on each of its numbers.
        """
        matrix = self.matrix(gradient)
        if self.inputs is None:
            return _rows(matrix, floor), len(matrix)
        return _span(matrix, floor, self.inputs)


@dataclass(frozen=True, eq=False)
class Spans:
    """Everything about a model that the check needs, made once.

    Args:
        maps: Where it looks.
        vocabulary: Number of tokens.
        padding: The token that fills texts up, or None.
        rounding: By a weight's name, the error of its numbers in a message.
        deep: Maps that see a token and those before it, by the module's name; their inputs are made when asked for.
    """

    maps: tuple[Map, ...]
    vocabulary: int
    padding: int | None
    rounding: dict[str, float]
    deep: dict[str, Map]

    @classmethod
    def of(cls, message: Message, places: int) -> Spans:
        """Those of a message's model.

        Raises:
            DoesNotFit: No trained tensor of the model sees single tokens.
        """
        module, vocabulary = message.module, _vocabulary(message)
        length = min(places, max(batch.x.shape[1] for batch in message.batches))
        linear = dict(_linear(message))
        local, deep = _sight(module, {name: module.get_submodule(name) for name in linear}, length)
        maps = (*_tables(message, vocabulary), *_filled(module, linear, local, vocabulary, length))
        if not maps:
            raise DoesNotFit("no trained tensor sees single tokens, so there is no span to check.")
        sizes = {name: float(p.detach().square().mean().sqrt()) for name, p in trainable(module).items()}
        rounding = {name: ROUNDING * size for name, size in sizes.items()}
        padding = getattr(module, "padding", None)
        return cls(maps, vocabulary, padding, rounding, {name: linear[name] for name in deep})

    def tokens(self, x: NDArray[Any]) -> frozenset[int]:
        """The distinct tokens of some texts."""
        return frozenset(np.unique(x).tolist()) - {self.padding}

    def answer(self, message: Message, batch: Batch, protection: Protection) -> Answer:
        """What a batch's message tells."""
        gradient = message.gradient(batch, protection)
        luck, found = np.zeros(self.vocabulary), set()
        for each in self.maps:
            own, most = each.luck(gradient, self.floor(each, protection))
            near = np.argsort(own, kind="stable")[:most]
            found |= set(near[own[near] < np.log(SURE / self.vocabulary)].tolist())
            luck = np.minimum(luck, own)
        return Answer(luck, frozenset(found - {self.padding}))

    def floor(self, each: Map, protection: Protection) -> float:
        """Standard deviation of noise and rounding on each number of a map's gradient."""
        return float(np.hypot(protection.std, abs(protection.scale) * self.rounding[each.group.name]))


def _span(matrix: Floats, floor: float, inputs: Tensor) -> tuple[Floats, int]:
    """By token, for a map (outputs, inputs)."""
    width = matrix.shape[1]
    vocabulary, places = inputs.shape[:2]
    rows, rank = directions(matrix, floor)
    if not len(rows):
        return np.zeros(vocabulary), 0
    # Where no or every direction is signal nothing is certain; the stronger half still gives the best guess.
    basis = torch.from_numpy(rows[: rank or max(1, width // 2)])
    apart = distances(inputs.reshape(-1, width), basis)
    least = apart.reshape(vocabulary, places).min(axis=1)
    # Most tokens are absent: their median says what a random input of this model looks like.
    return np.minimum(nearness(least, float(np.median(apart)), basis) + np.log(places), 0.0), rank


def directions(matrix: Floats, floor: float) -> tuple[Floats, int]:
    """Right singular vectors of a gradient, and how many are signal; 0 where none or all are, so nothing is certain.

    Args:
        matrix: Shape (outputs, inputs).
        floor: Standard deviation of noise and rounding on each of its numbers.
    """
    outputs, width = matrix.shape
    _, sizes, rows = np.linalg.svd(matrix, full_matrices=False)
    if sizes[0] == 0:
        return rows[:0], 0
    # The largest singular value of noise alone is about floor · (√outputs + √inputs).
    noise = max(1.1 * floor * (outputs**0.5 + width**0.5), 1e-6 * float(sizes[0]))
    rank = int((sizes > noise).sum())
    return rows, rank if rank < width else 0


def distances(inputs: Tensor, basis: Tensor) -> Floats:
    """Squared distances of unit vectors (n, width) from a span, shape (n,)."""
    found: Floats = torch.cat([_apart(part, basis) for part in torch.split(inputs, 2**14)]).numpy()
    return found


def nearness(apart: Floats, usual: float, basis: Tensor) -> Floats:
    """The log of how rarely an input that did not occur lies so near a span.

    Args:
        apart: Squared distances, shape (n,).
        usual: The median one of inputs that did not occur: a trained model's inputs share directions.
        basis: Of the span, shape (rank, width).
    """
    rank, width = basis.shape
    beta = stats.beta((width - rank) / 2, rank / 2)
    scaled = np.clip(apart * (beta.median() / max(usual, 1e-300)), 1e-300, 1.0)
    return _log_beta(scaled, *beta.args)


def _apart(inputs: Tensor, basis: Tensor) -> Tensor:
    """Squared distance of unit vectors from a span."""
    wide = inputs.double()
    return (wide - (wide @ basis.T) @ basis).square().sum(dim=1)


def _log_beta(values: Floats, a: float, b: float) -> Floats:
    """Log of the beta distribution's cumulative function, by its leading term where that has no float."""
    whole = special.betainc(a, b, values)
    leading = a * np.log(values) - np.log(a) - special.betaln(a, b)
    result: Floats = np.where(whole > 1e-280, np.log(np.maximum(whole, 1e-300)), leading)
    return result


def _rows(matrix: Floats, floor: float) -> Floats:
    """By token, for a table of embeddings: rows that occurred have moved."""
    squares = (matrix**2).sum(axis=1) / max(floor, 1e-12 * float(np.abs(matrix).max(initial=1e-300))) ** 2
    result: Floats = np.maximum(stats.chi2.logsf(squares, matrix.shape[1]), -1e6)
    return result


def _linear(message: Message) -> Iterator[tuple[str, Map]]:
    """The trained linear maps by their modules' names, in the order in which the network has them."""
    for name, part, group, shape in _weights(message):
        if not isinstance(part, nn.Embedding):
            yield name, Map(group, shape, transposed=type(part).__name__ == "Conv1D")  # of GPT-2


def _tables(message: Message, vocabulary: int) -> Iterator[Map]:
    """The trained tables of embeddings of tokens."""
    for _, part, group, shape in _weights(message):
        if isinstance(part, nn.Embedding) and shape[0] == vocabulary:
            yield Map(group, shape, transposed=False)


def _weights(message: Message) -> Iterator[tuple[str, nn.Module, Group, tuple[int, ...]]]:
    layout = message.layout
    places = {group.name: (group, shape) for group, shape in zip(layout.groups, layout.shapes, strict=True)}
    for name, part in message.module.named_modules():
        group, shape = places.get(f"{name}.weight", (None, ()))
        if group is not None and len(shape) == 2:
            yield name, part, group, shape


def _sight(module: nn.Module, parts: dict[str, nn.Module], length: int) -> tuple[list[str], list[str]]:
    """The parts that are given, at a place, what depends on its token alone; and those that see earlier ones too."""
    size = max(length, 3)
    same = torch.full((1, size), ANY[0])
    mixed, ended = same.clone(), same.clone()
    mixed[:, 1::2], ended[:, -1] = ANY[1], ANY[1]
    base, between, later = (seen(module, parts, tokens, all_of=False) for tokens in (same, mixed, ended))
    local, deep = [], []
    for name, x in base.items():
        if x.dim() != 3 or x.shape[1] != size:
            continue
        if torch.allclose(x[:, ::2], between[name][:, ::2], rtol=1e-5, atol=1e-6):
            local.append(name)
        elif torch.allclose(x[:, :-1], later[name][:, :-1], rtol=1e-5, atol=1e-6):
            deep.append(name)
    return local, deep


def _filled(
    module: nn.Module, linear: dict[str, Map], local: Sequence[str], vocabulary: int, length: int
) -> Iterator[Map]:
    """The local maps with their inputs."""
    inputs = _inputs(module, {name: module.get_submodule(name) for name in local}, vocabulary, length)
    for name, given in inputs.items():
        if given.shape[-1] == linear[name].shape[0 if linear[name].transposed else 1]:
            yield replace(linear[name], inputs=given)


def _inputs(module: nn.Module, parts: dict[str, nn.Module], vocabulary: int, length: int) -> dict[str, Tensor]:
    """Inputs of some parts for every token at every place, of unit length."""
    if not parts:
        return {}
    tried = seen(module, parts, torch.full((1, length), ANY[0]))
    placeless = all(torch.allclose(x, x[:, :1].expand_as(x), rtol=1e-5, atol=1e-6) for x in tried.values())
    width = 1 if placeless else length
    chunks: dict[str, list[Tensor]] = {name: [] for name in parts}
    for tokens in torch.split(torch.arange(vocabulary), max(1, 2**13 // width)):
        for name, x in seen(module, parts, tokens[:, None].expand(-1, width)).items():
            chunks[name].append(nn.functional.normalize(x, dim=-1))
    return {name: torch.cat(found) for name, found in chunks.items()}


class _Enough(Exception):
    """All inputs are there: the rest of the network need not be computed."""


def seen(module: nn.Module, parts: dict[str, nn.Module], tokens: Tensor, *, all_of: bool = True) -> dict[str, Tensor]:
    """What the parts are given for some texts; with `all_of` the network stops once every part was."""
    found: dict[str, Tensor] = {}

    def keep(name: str, given: Sequence[Any]) -> None:
        found[name] = given[0].detach()
        if all_of and len(found) == len(parts):
            raise _Enough

    with torch.no_grad(), _hooked(parts, keep), suppress(_Enough):
        module(tokens)
    return found


@contextmanager
def _hooked(parts: dict[str, nn.Module], keep: Any) -> Iterator[None]:
    handles = [
        part.register_forward_pre_hook(lambda _, given, name=name: keep(name, given)) for name, part in parts.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _vocabulary(message: Message) -> int:
    """Number of tokens: rows of the model's table of embeddings."""
    sizes = [part.num_embeddings for part in message.module.modules() if isinstance(part, nn.Embedding)]
    if not sizes:
        raise DoesNotFit("the model has no table of embeddings, so tokens cannot be tried.")
    return max(sizes)
