"""Held-out figures of silos that are elsewhere: each draws its own, and who does not answer is in none.

The charge is made as for a round (`books.py`): here first, then at each silo, whose grants are kept with the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, SordinoError
from sordino.core.types import RoundPlan, Vector
from sordino.experiment.config import MetricRelease
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.settings import Setup
from sordino.federation.engines.flower import Flower
from sordino.federation.post import Letter
from sordino.privacy.permits import Reservation


@dataclass(frozen=True)
class Judging:
    """Asks every silo for its figures under one charge.

    Args:
        books: Where the charge was reserved.
    """

    books: RemoteBooks

    def __call__(
        self, setup: Setup, asked: MetricRelease, model: Vector, charge: Reservation | None
    ) -> NDArray[np.float32]:
        """Every silo's noised sum, shape (silos, 2 or 3); not a number where a silo is away, or lost it in a crash.

        Raises:
            Lost: Too few answered, and those who did cannot draw any more.
            EngineError: Too few answered; the same command asks again.
        """
        del charge  # silos draw under their own
        books, clients = self.books, range(len(setup.population))
        # After the last round, and numbered like one.
        plan = RoundPlan(setup.experiment.count, setup.experiment.count, (), float(len(clients)))
        vectors = np.full((len(clients), 2 if asked.loss is None else 3), np.nan, np.float32)
        silent = dict.fromkeys(clients, "cannot be reached")
        engine = Flower(books.roll.post, books, books.roll.patience)
        for client, answer in engine.asked({client: self._letter(client, model) for client in clients}, silent):
            try:
                silo = books.granted(plan, client, answer, "judge")
                vectors[client] = _read(silo, answer, vectors.shape[1])
            except SordinoError as problem:
                silent[client] = str(problem)
                continue
            del silent[client]
        books.closed(plan, silent)
        return vectors

    def _letter(self, client: int, model: Vector) -> tuple[str, Letter] | None:
        silo = self.books.terms.clients[client]
        if silo not in self.books.fences:
            return None
        return self.books.roll.addresses[silo], Letter("judge", self.books.addressed(silo), model)


def _read(silo: str, answer: Letter, width: int) -> Vector:
    """The figures in an answer.

    Raises:
        EngineError: It holds something else.
    """
    vector = answer.vector
    if vector is None or vector.shape != (width,) or vector.dtype != np.float32 or not np.isfinite(vector).all():
        raise EngineError.about(f"site {silo!r}", f"tells something else than {width} finite numbers of float32")
    return vector
