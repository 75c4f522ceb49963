"""Bounds on norms that follow from other bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sordino.core import checks


def joint(clips: Iterable[float]) -> float:
    """L2 bound of a vector whose parts are clipped apart: √(Σ C_l²), each C_l > 0.

    >>> joint([3.0, 4.0])
    5.0
    """
    clips = list(clips)
    for clip in clips:
        checks.positive("joint", clip=clip)
    return math.hypot(*clips)


def equal_shares(clip: float, groups: int) -> float:
    """The clip of each of `groups` equal parts such that the whole keeps the L2 bound `clip`.

    >>> equal_shares(1.0, 4)
    0.5
    """
    checks.positive("equal_shares", clip=clip)
    checks.count("equal_shares", groups=groups)
    return clip / math.sqrt(groups)
