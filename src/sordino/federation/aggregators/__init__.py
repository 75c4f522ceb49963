"""Many updates to one, as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from sordino.core import registry
from sordino.core.types import Update
from sordino.federation.bounds import Bound


class Aggregator(Protocol):
    """Reduces a cohort's updates to one vector, whatever the order in which they arrive."""

    example: ClassVar[Mapping[str, Any]]

    def bound(self, incoming: Bound) -> Bound:
        """How far one client can move the result, given how long its update can be."""
        ...

    def reduce(self, updates: Iterable[Update], size: int) -> Update:
        """The aggregate in float64; zeros of shape (size,) for an empty cohort.

        Raises:
            EngineError: An update does not have the shape (size,).
        """
        ...


aggregators: registry.Registry[Aggregator] = registry.Registry("aggregator")

registry.load(__name__, __path__)
