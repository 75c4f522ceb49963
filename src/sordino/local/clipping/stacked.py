"""Clipped sums of many silos at once: each silo's own sum, bounded like the one an engine makes of it alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sordino.core import checks
from sordino.core.types import Group, Unit
from sordino.local.clipping._engine import Clipped
from sordino.local.clipping._rules import Rule, factors, layers_of
from sordino.local.clipping._shares import Outer, Rows, Share
from sordino.privacy.kernel import certify


def clipped_sums(
    shares: Sequence[Share], groups: Sequence[Group], present: Tensor, *, norm: float, rule: Rule = "flat"
) -> Iterator[Clipped]:
    """One clipped sum per silo, with records as units.

    Args:
        shares: Each parameter's share; the examples axis is (examples, silos), flattened.
        groups: The parameters, in the same order.
        present: Which of these are records, shape (examples, silos), bool. The rest is padding and adds nothing.
        norm: The clip, > 0.
        rule: How gradients are scaled.

    Returns:
        In the silos' order, over the flat vector of parameters. Each is certified when its turn comes, so that a
        release that follows at once finds it in the processor's cache.

    Guarantee:
        Adding or removing one record moves its own silo's sum by at most `norm`, and no other's beyond rounding, if
        examples do not influence each other in the model. A record that is not finite counts as zero.
    """
    checks.positive("clip", norm=norm)
    squares = torch.stack([each.squares() for each in shares])
    weights, finite = factors(squares, layers_of([group.name for group in groups]), norm, rule)
    weights = torch.where(present.flatten(), weights, 0.0)
    sums = torch.empty(present.shape[1], groups[-1].stop, dtype=torch.float64, device=present.device)
    for each, weight, group in zip(shares, weights, groups, strict=True):
        totals(each, weight.view(present.shape), finite.view(present.shape), sums[:, group.start : group.stop])
    nonfinite = (~finite.view(present.shape) & present).sum(0).tolist()
    each_silo = zip(sums.cpu().numpy(), nonfinite, strict=True)
    return (Clipped(certify(each, unit=Unit.RECORD, l2=norm), count) for each, count in each_silo)


def totals(share: Share, weights: Tensor, finite: Tensor, out: Tensor) -> None:
    """Each silo's weighted sum over its examples.

    Args:
        share: Of one parameter.
        weights: Shape (examples, silos), float64.
        finite: Which examples count at all, shape (examples, silos): zero times infinity is not zero.
        out: Filled; shape (silos, numel), float64.
    """
    if any(isinstance(part, Rows) for part in share.parts):
        each = _by_silo(share.rows(), finite).double()
        out.copy_(torch.bmm(weights.T[:, None], each).flatten(1))
        return
    outer = [part for part in share.parts if isinstance(part, Outer)]
    for i, part in enumerate(outer):
        _outer_totals(part, weights, finite, out, add=i > 0)


def _outer_totals(part: Outer, weights: Tensor, finite: Tensor, out: Tensor, *, add: bool) -> None:
    """Positions of all of a silo's examples are one axis of one product per silo."""
    silos, width = weights.shape[1], part.right.shape[2]
    scale = weights.T[:, :, None, None]
    right = _by_silo(part.right, finite).double()
    if part.tokens:
        offset = torch.arange(silos, device=right.device)[None, :, None] * part.height
        tokens = (part.left.view(*weights.shape, -1) + offset).transpose(0, 1)
        table = torch.zeros(silos * part.height, width, dtype=right.dtype, device=right.device)
        made = table.index_add_(0, tokens.flatten(), (right * scale).flatten(0, 2)).view(silos, -1)
        out.copy_(out + made if add else made)
        return
    left = (_by_silo(part.left, finite).double() * scale).reshape(silos, -1, part.height)
    whole = out.view(silos, part.height, width)
    whole.baddbmm_(left.transpose(1, 2), right.reshape(silos, -1, width), beta=1.0 if add else 0.0)


def _by_silo(values: Tensor, finite: Tensor) -> Tensor:
    """Shape (silos, examples, ...), with zeros for examples that do not count."""
    each = values.view(*finite.shape, *values.shape[1:]).transpose(0, 1)
    if bool(finite.all()):
        return each
    return torch.where(finite.T.view(*finite.T.shape, *[1] * (values.dim() - 1)), each, 0.0)
