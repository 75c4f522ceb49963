"""Who holds which records: one shared array and a list of rows per silo."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.data.examples import Examples

ELSEWHERE = "what needs records runs where they are: `sordino run --engine flower`"


@dataclass(frozen=True, eq=False)
class Silo:
    """What one client holds.

    Args:
        name: The client's name, public.
        x: Inputs, shape (n, ...).
        y: Labels, shape (n,), int64, or targets of the shape of x.
        user: The person behind each record, shape (n,), or None where that is not known.
        group: The public label that sets each record's budget, shape (n,), or None.
    """

    name: str
    x: NDArray[Any]
    y: NDArray[np.int64]
    user: NDArray[Any] | None = None
    group: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Examples shared out among named clients. Silos are sliced on demand.

    Args:
        examples: All records.
        names: One name per client, all different.
        rows: One array of row numbers per client: not empty, and no row in two of them.
        elsewhere: Clients whose records are on other machines. Their row numbers lie past the last record, so that
            they count and nothing can be read.

    Raises:
        ConfigError: A name stands twice, a client is empty, or a row belongs to two clients.

    >>> examples = Examples(np.zeros((3, 1), np.float32), np.array([0, 1, 0]), classes=2)
    >>> data = FederatedData(examples, ("north", "south"), (np.array([0, 2]), np.array([1])))
    >>> data.sizes, data.silo(data.index("south")).y
    ((2, 1), array([1]))
    """

    examples: Examples
    names: tuple[str, ...]
    rows: tuple[NDArray[np.int64], ...]
    elsewhere: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not (self.names or self.elsewhere) or len(self.names) != len(self.rows):
            raise ConfigError.about("clients", f"has {len(self.names)} names for {len(self.rows)} clients")
        self._check_names()
        self._check_rows()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Records of each client. Public by declaration: divisors and weights are made of them."""
        return tuple(len(rows) for rows in self.rows)

    def silo(self, i: int) -> Silo:
        """The records of client i, copied out of the shared array.

        Raises:
            ConfigError: They are elsewhere.
        """
        if self.names[i] in self.elsewhere:
            raise ConfigError.about("clients", "has its records elsewhere", ELSEWHERE, name=self.names[i])
        mine = self.examples.take(self.rows[i])
        return Silo(self.names[i], mine.x, mine.y, mine.user, mine.group)

    def index(self, name: str) -> int:
        """The number of the client with this name, or an error that offers the nearest."""
        if name not in self.names:
            close = difflib.get_close_matches(name, self.names, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"there are {len(self)}, e.g. {self.names[0]!r}"
            raise ConfigError.about("clients", "is not a client", remedy, name=name)
        return self.names.index(name)

    def require_here(self) -> None:
        """Refuse to go on without every client's records.

        Raises:
            ConfigError: Some are elsewhere.
        """
        if self.elsewhere:
            raise ConfigError.about("clients", "have their records elsewhere", ELSEWHERE, names=sorted(self.elsewhere))

    def _check_names(self) -> None:
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ConfigError.about("clients", "stands for two clients", "give each its own name", name=twice)

    def _check_rows(self) -> None:
        for name, rows in zip(self.names, self.rows, strict=True):
            if not len(rows):
                raise ConfigError.about("clients", "holds no records", "use fewer clients or drop it", name=name)
        held: list[NDArray[np.int64]] = []
        for name, rows in zip(self.names, self.rows, strict=True):
            if name not in self.elsewhere:
                held.append(rows)
            elif rows.min() < len(self.examples):
                raise ConfigError.about("clients", "is elsewhere, and its rows are here", name=name)
        if not held:
            return
        owners = np.zeros(len(self.examples), np.int64)
        everything = np.concatenate(held)
        if everything.min() < 0 or everything.max() >= len(owners):
            raise ConfigError.about("clients", f"a row number lies outside the {len(owners)} records")
        np.add.at(owners, everything, 1)
        if owners.max() > 1:
            raise ConfigError.about("clients", f"row {int(owners.argmax())} is held twice", "rows must be disjoint")


def pooled(federated: FederatedData) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All clients' records in one pair of arrays, for evaluation and for comparison with central training.

    Raises:
        ConfigError: Some are elsewhere.

    >>> examples = Examples(np.zeros((3, 1), np.float32), np.array([0, 1, 0]), classes=2)
    >>> pooled(FederatedData(examples, ("a", "b"), (np.array([2]), np.array([1]))))[1]
    array([0, 1])
    """
    federated.require_here()
    rows = np.concatenate(federated.rows)
    return federated.examples.x[rows], federated.examples.y[rows]
