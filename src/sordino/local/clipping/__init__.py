"""Clipped sums of per-example gradients, by engines that must all agree with the oracle."""

from sordino.core.registry import load
from sordino.local.clipping._engine import Clip, Clipped, ClippingEngine, engines
from sordino.local.clipping._rules import Rule

__all__ = ["Clip", "Clipped", "ClippingEngine", "Rule", "engines"]

load(__name__, __path__)
