"""Norms without gradients: never below the norm of what is summed, however much cancels."""

import numpy as np
import pytest
import torch

from sordino.local.clipping._shares import Outer, Share

torch.set_num_threads(1)


@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_cancelling_positions_are_not_undercounted(kind):
    """
    Two huge positions that nearly cancel: the norm from inner products loses its digits, so it is rounded up.
    """
    rng = np.random.default_rng(1)
    for gap in np.repeat(10.0 ** -np.arange(5, 10), 200):
        a, b = rng.normal(size=8) * 1e6, rng.normal(size=8)
        g = torch.from_numpy(np.stack([b, -b * (1 + gap)])[None])
        if kind == "linear":
            part = Outer(g, torch.from_numpy(np.stack([a, a])[None]), 8)
        else:
            part = Outer(torch.tensor([[1, 1]]), g, 3)
        share = Share((part,))

        clipped = share.total(1.0 / share.squares().sqrt())

        assert clipped.norm() <= 1 + 1e-6


def test_ordinary_norms_are_exact():
    """
    Without cancellation the rounding up is far below float32.
    """
    generator = torch.Generator().manual_seed(1)
    x, g = (torch.randn(4, 3, 9, generator=generator, dtype=torch.float64) for _ in range(2))
    share = Share((Outer(g, x, 9),))

    expected = torch.bmm(g.transpose(1, 2), x).flatten(1).square().sum(dim=1)

    assert torch.allclose(share.squares(), expected, rtol=1e-9)
