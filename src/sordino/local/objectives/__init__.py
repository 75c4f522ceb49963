"""What a silo minimises besides its own loss. Everything here acts outside the clip."""

from sordino.core.registry import load
from sordino.local.objectives._registry import Objective, objectives

__all__ = ["Objective", "objectives"]

load(__name__, __path__)
