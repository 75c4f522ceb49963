"""Engines whose clients send under one key of their own: what comes of a round is one update, the sum of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, SordinoError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Engine, Together, Work
from sordino.federation.engines.flower import Correspondence, Flower
from sordino.federation.post import Letter
from sordino.federation.secure.homomorphic import Key, Terms, add, decrypt, encrypt

Agreed: TypeAlias = Callable[[RoundPlan, int], Terms]
"""The terms of a round's sum of updates of some length."""


@dataclass(frozen=True)
class Encrypted(Engine):
    """Clients in this process, with the messages that they would send.

    Args:
        inner: Runs the clients.
        terms: Of each round.
        key: The clients' own.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    inner: Engine
    terms: Agreed
    key: Key = field(default_factory=Key.generate)

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        terms, parts = self.terms(plan, 1), []
        for update in self.inner.run(plan, cohort, model, work, together):
            terms = self.terms(plan, len(update.vector))
            parts.append(encrypt(self.key, terms, update.vector))
        yield Update(decrypt(self.key, terms, add(terms, parts)))


class Sealed(Correspondence, Protocol):
    """What is written where updates come encrypted, besides `letter` and `closed`."""

    def sealed(self, plan: RoundPlan, client: int, answer: Letter) -> bytes:
        """The encrypted update in an answer; raises as `read`."""
        ...

    def opening(self, plan: RoundPlan, client: int, total: bytes) -> tuple[str, Letter] | None:
        """A client's address, and the letter that asks it to open a sum; None if it cannot be written to now."""
        ...

    def opened(self, plan: RoundPlan, client: int, answer: Letter, size: int) -> Vector:
        """The sum in an answer, if it has this length; raises as `read`."""
        ...


@dataclass(frozen=True)
class EncryptedFlower(Flower):
    """Clients in processes of their own; `correspondence` is `Sealed`.

    A sum counts when two clients have opened it alike: one that lies, or holds another key, is not believed.

    Args:
        terms: Of each round.
    """

    terms: Agreed | None = None

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        del work, together
        written, agreed = cast("Sealed", self.correspondence), cast("Agreed", self.terms)
        announced = self.starting(model)
        terms = agreed(plan, announced.size)
        silent = {int(client): "cannot be reached" for client in cohort}
        letters = {client: written.letter(plan, client, announced) for client in silent}
        parts: dict[int, bytes] = {}
        for client, answer in self.asked(letters, silent):
            try:
                parts[client] = written.sealed(plan, client, answer)
            except SordinoError as problem:
                silent[client] = str(problem)
                continue
            del silent[client]
        written.closed(plan, silent)
        total = add(terms, list(parts.values()))
        unheard = dict.fromkeys(parts, "cannot be reached")
        sums: dict[int, Vector] = {}
        for client, answer in self.asked({c: written.opening(plan, c, total) for c in parts}, unheard):
            try:
                sums[client] = written.opened(plan, client, answer, terms.size)
            except SordinoError as problem:
                unheard[client] = str(problem)
        yield Update(_alike(sums, unheard))


def _alike(sums: Mapping[int, Vector], silent: Mapping[int, str]) -> Vector:
    """The sum that at least two have opened.

    Raises:
        EngineError: There is none.
    """
    counts = Counter(vector.tobytes() for vector in sums.values())
    (content, number), *others = counts.most_common(2) or [(b"", 0)]
    if number < 2 or any(count == number for _, count in others):
        why = "; ".join(f"member {client}: {reason}" for client, reason in silent.items() if client not in sums)
        raise EngineError.about(
            "homomorphic", f"is opened alike by fewer than two silos{': ' * bool(why)}{why}", answers=len(sums)
        )
    return np.frombuffer(content, np.float32)
