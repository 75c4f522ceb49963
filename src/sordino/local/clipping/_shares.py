"""What one call of a layer adds to each example's gradient of a parameter: rows, or the two factors they are made of.

A weight's per-example gradient is a sum of outer products over positions, Σ_t left_t right_tᵀ:

    linear        left = g, right = x           embedding   left = one-hot(token), right = g
    Conv1D        left = x, right = g           (GPT-2 keeps its weights transposed)

Small ones are multiplied out (`Rows`). Large ones stay factors (`Outer`): norms follow from inner products of factors
(Gram form), |x|²|g|² for a single position, and the clipped sum is one weighted product. Factors of different calls
of one tensor combine, whatever the layers: that is how tied and reused weights are counted once with all their uses.

Source: Bu et al. (2023), arXiv:2210.00038, book-keeping; Li et al. (2022), arXiv:2110.05679, the norm of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from torch import Tensor

Part: TypeAlias = "Rows | Outer"

SHORT = 64
"""Squares that are added in float32."""

CACHED = 2**17
"""Entries widened to float64 at once: a MiB."""


@dataclass(frozen=True)
class Rows:
    """Per-example gradients at hand.

    Args:
        rows: Shape (examples, numel).
        squares: Their squared norms, if they were taken when the rows were made and still in the processor's cache.
    """

    rows: Tensor
    squares: Tensor | None = None

    def measured(self) -> Rows:
        """With their squared norms."""
        return Rows(self.rows, _squares(self.rows))


@dataclass(frozen=True)
class Outer:
    """Per-example gradients Σ_t left_t right_tᵀ, not multiplied out.

    Args:
        left: Shape (examples, positions, outputs), or tokens (examples, positions) standing for one-hot vectors.
        right: Shape (examples, positions, inputs).
        height: Number of outputs (for tokens: rows of the table).
    """

    left: Tensor
    right: Tensor
    height: int

    @property
    def tokens(self) -> bool:
        """Whether `left` holds tokens."""
        return not self.left.is_floating_point()

    def multiplied(self) -> Rows:
        """The rows themselves, in the factors' precision."""
        examples, _, width = self.right.shape
        if not self.tokens:
            return Rows(torch.bmm(self.left.transpose(1, 2), self.right).flatten(1))
        table = torch.zeros(examples, self.height, width, dtype=self.right.dtype, device=self.right.device)
        rows = table.scatter_add_(1, self.left[:, :, None].expand(-1, -1, width), self.right)
        return Rows(rows.flatten(1))


@dataclass(frozen=True)
class Share:
    """One parameter's gradients, over all calls of all layers that hold it.

    Args:
        parts: One per call; all `Rows` or all `Outer`.
    """

    parts: tuple[Part, ...]

    def squares(self) -> Tensor:
        """Squared norm of each example's gradient, shape (examples,), float64; never too small by rounding."""
        outer: list[Outer] = [part for part in self.parts if isinstance(part, Outer)]
        if not outer:
            known = cast("Rows", self.parts[0]).squares if len(self.parts) == 1 else None
            return _squares(self.rows()) if known is None else known
        wide = [Outer(p.left if p.tokens else p.left.double(), p.right.double(), p.height) for p in outer]
        if len(wide) == 1 and wide[0].right.shape[1] == 1 and not wide[0].tokens:
            return wide[0].left.square().sum((1, 2)) * wide[0].right.square().sum((1, 2))
        products = sum(_inner(a, b) for a in wide for b in wide)
        # What rounding can hide when positions of these lengths cancel.
        lengths = torch.cat([_lengths(part) for part in wide], dim=1).sum(1)
        return products + 1e-12 * lengths.square()

    def rows(self) -> Tensor:
        """Per-example gradients, shape (examples, numel)."""
        made = [part.multiplied().rows if isinstance(part, Outer) else part.rows for part in self.parts]
        return made[0] if len(made) == 1 else torch.stack(made).sum(0)

    def total(self, weights: Tensor) -> Tensor:
        """The weighted sum over examples, shape (numel,), float64. Weight zero adds nothing, not even NaN."""
        if all(isinstance(part, Rows) for part in self.parts):
            rows = self.rows()
            kept = weights > 0  # zero times infinity is not zero
            if not bool(kept.all()):
                rows = torch.where(kept[:, None], rows, 0.0)
            if rows.numel() <= CACHED:
                return torch.mv(rows.double().T, weights)
            total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
            for block, each in zip(_wide(rows), torch.split(weights, _rows_at_once(rows)), strict=True):
                total.addmv_(block.T, each)
            return total
        return sum((_weighted(part, weights) for part in self.parts), start=torch.zeros((), dtype=torch.float64))


def share(parts: Sequence[Part], *, multiply: bool) -> Share:
    """A parameter's share from its calls.

    Args:
        parts: One per call.
        multiply: Make rows of everything, as means per person need.
    """
    parts = _joined(parts)
    if multiply or any(isinstance(part, Rows) for part in parts):
        parts = [part.multiplied() if isinstance(part, Outer) else part for part in parts]
    return Share(tuple(parts))


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Factors of many calls as those of one call with all their positions, as a recurrent layer makes them."""
    rows: list[Part] = [part for part in parts if isinstance(part, Rows)]
    for tokens in (False, True):
        same = [part for part in parts if isinstance(part, Outer) and part.tokens == tokens]
        if len(same) == 1:
            rows += same
        elif same:
            left, right = (torch.cat([getattr(part, side) for part in same], dim=1) for side in ("left", "right"))
            rows.append(outer(left, right, same[0].height))
    return rows


def outer(left: Tensor, right: Tensor, height: int) -> Part:
    """A call's part, multiplied out unless that takes more than twice the memory of the factors.

    Several positions multiplied out are one product in float32; as factors they are three in float64.
    """
    positions, width = right.shape[1:]
    whole = Outer(left, right, height)
    return whole.multiplied() if positions > 1 and width * height <= 2 * positions * (width + height) else whole


def _squares(rows: Tensor) -> Tensor:
    """Squared norms of rows, float64, by short sums in float32 where those can neither overflow nor vanish."""
    whole = rows.shape[1] // SHORT * SHORT
    if rows.dtype == torch.float32 and whole:
        short: Tensor = torch.linalg.vector_norm(rows[:, :whole].reshape(len(rows), -1, SHORT), dim=2).double()
        squares = short.square().sum(1) + rows[:, whole:].double().square().sum(1)
        if bool(((squares > 1e-20) & (squares < 1e20)).all()):
            return squares * (1 + 2e-6)  # more than rounding in sums this short can hide
    if rows.numel() <= CACHED:
        return rows.double().square().sum(1)
    return torch.cat([torch.linalg.vector_norm(block, dim=1) for block in _wide(rows)]).square()


def _wide(rows: Tensor) -> Iterator[Tensor]:
    """The rows in float64, a few at a time and each time in the same place, which stays in the processor's cache."""
    blocks = torch.split(rows, _rows_at_once(rows))
    room = torch.empty(blocks[0].shape, dtype=torch.float64, device=rows.device)
    return (room[: len(block)].copy_(block) for block in blocks)


def _rows_at_once(rows: Tensor) -> int:
    return max(1, CACHED // max(1, rows.shape[1]))


def _inner(a: Outer, b: Outer) -> Tensor:
    """⟨Σ_t a_t, Σ_s b_s⟩ per example, shape (examples,), float64."""
    right = torch.bmm(a.right, b.right.transpose(1, 2))
    if a.tokens and b.tokens:
        return torch.where(a.left[:, :, None] == b.left[:, None, :], right, 0.0).sum((1, 2))
    if a.tokens:  # a one-hot vector picks an entry of the other's left factor
        picked = b.left.gather(2, a.left[:, None, :].expand(-1, b.left.shape[1], -1))
        return (picked.transpose(1, 2) * right).sum((1, 2))
    if b.tokens:
        return _inner(b, a)
    return (torch.bmm(a.left, b.left.transpose(1, 2)) * right).sum((1, 2))


def _lengths(part: Outer) -> Tensor:
    right: Tensor = torch.linalg.vector_norm(part.right, dim=2)
    return right if part.tokens else right * torch.linalg.vector_norm(part.left, dim=2)


def _weighted(part: Part, weights: Tensor) -> Tensor:
    if isinstance(part, Rows):
        msg = "rows and factors do not mix"
        raise TypeError(msg)
    kept = weights > 0
    right, scale = part.right, weights[:, None, None]
    left = part.left
    if not bool(kept.all()):  # zero times infinity is not zero
        right = torch.where(kept[:, None, None], right, 0.0)
        left = left if part.tokens else torch.where(kept[:, None, None], left, 0.0)
    if part.tokens:
        right = (right.double() * scale).flatten(0, 1)
        table = torch.zeros(part.height, right.shape[1], dtype=torch.float64, device=right.device)
        return table.index_add_(0, left.flatten(), right).flatten()
    return ((left.double() * scale).flatten(0, 1).T @ right.double().flatten(0, 1)).flatten()
