"""Stages and aggregator as one thing: the bound is folded through them, and the sum leaves certified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.core.registry import single
from sordino.core.tables import plain
from sordino.core.types import RoundPlan, Unit, Update, Vector
from sordino.federation.aggregators import Aggregator
from sordino.federation.aggregators.sum import Sum
from sordino.federation.bounds import Bound, shortened
from sordino.federation.stages import Stage, stages
from sordino.privacy.kernel import BoundedSum, certify


@dataclass(frozen=True)
class Pipeline:
    """The stages of a run, first to last, and the aggregator. Public: it may be announced and logged.

    Args:
        stages: Client halves run in this order, server halves and settling in reverse.
        aggregator: Many updates to one.
    """

    stages: tuple[Stage, ...]
    aggregator: Aggregator = field(default_factory=Sum)

    @classmethod
    def from_tables(cls, tables: Sequence[object], aggregator: Aggregator | None = None) -> Pipeline:
        """The pipeline of `[[stages]]` tables such as `{clip = { norm = 1.0 }}`."""
        named = [single("stages", table) for table in tables]
        return cls(tuple(stages.build(name, keys) for name, keys in named), aggregator or Sum())

    def to_tables(self) -> list[dict[str, Any]]:
        """The stages with what they have learnt so far, for a checkpoint or the wire: undone by `from_tables`."""
        return [{stages.name_of(stage): plain(stage)} for stage in self.stages]

    def bound(self) -> Bound:
        """How far one client can move the total: folded, never typed.

        Raises:
            ConfigError: No stage bounds a client's update.
        """
        return self.aggregator.bound(self._update_bound())

    def wire_size(self, size: int) -> int:
        """Length of what a client sends for a model of `size` parameters; longer where a stage adds coordinates."""
        return reduce(lambda length, stage: stage.size(length), self.stages, size)

    def client(self, update: Update, plan: RoundPlan) -> Update:
        """What a client sends for its change of the model."""
        return reduce(lambda passed, stage: stage.client(passed, plan), self.stages, update)

    def total(self, updates: Iterable[Update], plan: RoundPlan, size: int, unit: Unit) -> BoundedSum:
        """The private total of what clients sent, with the bound that holds for it.

        Every arriving update is held to the bound once more, so that the certificate is true whatever arrived: an
        honest update passes to the bit, a longer one is shortened, one that is not finite counts as zero.

        Args:
            updates: Results of `client`, as they arrive; none is a valid cohort.
            plan: The round.
            size: Length of the model's flat vector.
            unit: Whose presence is hidden; one unit stands behind one update.

        Raises:
            ConfigError: No stage bounds a client's update.
            EngineError: An update has the wrong length.
        """
        bound = self.bound()
        held = _held(updates, self._update_bound())
        return certify(self.plain_total(held, plan, size), unit=unit, l2=bound.l2, l1=bound.l1)

    def own(self, update: Update, plan: RoundPlan, size: int, unit: Unit) -> BoundedSum:
        """One client's part of a total that is summed elsewhere: its `total`, known to be one unit's own.

        Args:
            update: A result of `client`.
            plan: The round.
            size: Length of the model's flat vector.
            unit: Whose presence is hidden: the client's.

        Raises:
            ConfigError: No stage bounds a client's update.
            EngineError: The update has the wrong length.
        """
        bound = self.bound()
        held = _held([update], self._update_bound())
        return certify(self.plain_total(held, plan, size), unit=unit, l2=bound.l2, l1=bound.l1, alone=True)

    def plain_total(self, updates: Iterable[Update], plan: RoundPlan, size: int) -> NDArray[np.float64]:
        """The total in the clear, without bound or noise. NOT PRIVATE.

        For runs without privacy, and for updates that were released already (noise at the silo).
        """
        total = np.asarray(self.aggregator.reduce(updates, self.wire_size(size)).vector, dtype=np.float64)
        return reduce(lambda passed, stage: stage.server(passed, plan), reversed(self.stages), total)

    def settle(self, released: Vector, plan: RoundPlan) -> tuple[Vector, Pipeline]:
        """After the noise: the model's part of the released total, and the pipeline of the next round."""
        settled: list[Stage] = []
        for stage in reversed(self.stages):
            released, following = stage.settle(released, plan)
            settled.append(following)
        return released, replace(self, stages=tuple(reversed(settled)))

    def _update_bound(self) -> Bound:
        bound = reduce(lambda passed, stage: stage.bound(passed), self.stages, Bound())
        if bound.l2 is None:
            raise ConfigError.about("stages", "no stage bounds a client's update", "add a 'clip' stage")
        return bound


def _held(updates: Iterable[Update], bound: Bound) -> Iterator[Update]:
    """Each update, no longer than the bound."""
    for update in updates:
        vector = shortened(update.vector, cast("float", bound.l2))
        yield replace(update, vector=vector if bound.l1 is None else shortened(vector, bound.l1, order=1))
