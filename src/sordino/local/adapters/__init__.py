"""Adapters by name: which few parameters of a language model are trained, released, and saved in PEFT's format.

None of these files imports torch before an adapter is attached.
"""

from sordino.core.registry import load
from sordino.local.adapters._adapter import Adapter, adapters, chosen
from sordino.local.adapters._base import Base, Linear

__all__ = ["Adapter", "Base", "Linear", "adapters", "chosen"]

load(__name__, __path__)
