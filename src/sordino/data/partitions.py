"""How records are shared out among clients. A partition names its clients and covers only what it is given.

Seeded through the stream "partition": the same seed gives the same clients on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import count, positive
from sordino.core.errors import ConfigError
from sordino.core.registry import Registry
from sordino.core.seeds import stream
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData

Rows: TypeAlias = NDArray[np.int64]
DRAWS = 100
"""How often a Dirichlet partition is drawn anew before a client that stays too small is an error."""


class Partition(Protocol):
    """Shares examples out among clients."""

    example: ClassVar[dict[str, Any]]

    def split(self, examples: Examples, seed: int) -> FederatedData:
        """The clients; equal seeds give equal clients."""
        ...


partitions: Registry[Partition] = Registry("partition")


@partitions.register("natural")
@dataclass(frozen=True)
class Natural:
    """The clients that the data itself names: hospitals, writers, roles.

    Args:
        min_records: Clients with fewer records are left out, >= 1.
    """

    example: ClassVar[dict[str, Any]] = {}
    min_records: int = 1

    def __post_init__(self) -> None:
        count("partition.natural", min_records=self.min_records)

    def split(self, examples: Examples, seed: int) -> FederatedData:  # noqa: ARG002 - nothing is drawn
        """One client per value of `examples.client`, sorted by that value."""
        if examples.client is None:
            rule, remedy = "needs data that names its clients", "choose iid, dirichlet or shards"
            raise ConfigError.about("partition.natural", rule, remedy)
        values, owner = np.unique(examples.client, return_inverse=True)
        groups = _by(owner, len(values))
        kept = [i for i, rows in enumerate(groups) if len(rows) >= self.min_records]
        if not kept:
            largest = max(len(rows) for rows in groups)
            rule = f"leaves no client: the largest has {largest} records"
            raise ConfigError.about("partition.natural", rule, "lower it", min_records=self.min_records)
        return FederatedData(examples, tuple(str(values[i]) for i in kept), tuple(groups[i] for i in kept))


@partitions.register("iid")
@dataclass(frozen=True)
class Iid:
    """Equal random parts.

    Args:
        clients: Number of clients, at most the number of records.
    """

    example: ClassVar[dict[str, Any]] = {"clients": 10}
    clients: int

    def __post_init__(self) -> None:
        count("partition.iid", clients=self.clients)

    def split(self, examples: Examples, seed: int) -> FederatedData:
        """A random permutation, cut into parts whose sizes differ by at most one."""
        _enough("partition.iid", examples, self.clients, clients=self.clients)
        order = stream(seed, "partition").permutation(len(examples))
        return _numbered(examples, np.array_split(order, self.clients))


@partitions.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet:
    """Skewed labels: each label is shared out by a draw from a symmetric Dirichlet.

    Args:
        clients: Number of clients.
        alpha: Concentration, > 0. 0.1 gives clients of one or two labels each, 100 is nearly IID.
        min_records: Every client has at least this many records: the whole draw is repeated until
            that is so, and given up after 100 draws.

    Source:
        Yurochkin et al. (2019), arXiv:1905.12022, section 4; the repetition as in the code of Li et al. (2022),
        arXiv:2102.02079.
    """

    example: ClassVar[dict[str, Any]] = {"clients": 5, "alpha": 1.0}
    clients: int
    alpha: float
    min_records: int = 1

    def __post_init__(self) -> None:
        count("partition.dirichlet", clients=self.clients, min_records=self.min_records)
        positive("partition.dirichlet", alpha=self.alpha)

    def split(self, examples: Examples, seed: int) -> FederatedData:
        """The first of at most 100 draws in which every client is large enough."""
        _labelled("partition.dirichlet", examples)
        _enough("partition.dirichlet", examples, self.clients * self.min_records, clients=self.clients)
        random = stream(seed, "partition")
        for _ in range(DRAWS):
            groups = _by(self._owners(examples, random), self.clients)
            if min(map(len, groups)) >= self.min_records:
                return _numbered(examples, groups)
        rule = f"left a client with fewer than {self.min_records} records in each of {DRAWS} draws"
        remedy = "raise alpha or use fewer clients"
        raise ConfigError.about("partition.dirichlet", rule, remedy, clients=self.clients, alpha=self.alpha)

    def _owners(self, examples: Examples, random: np.random.Generator) -> Rows:
        """The client of every row, for one draw."""
        owner = np.empty(len(examples), np.int64)
        for label in range(examples.classes):
            rows = random.permutation(np.flatnonzero(examples.y == label))
            shares = random.dirichlet(np.full(self.clients, self.alpha))
            cuts = np.minimum(np.cumsum(shares)[:-1] * len(rows), len(rows)).astype(np.int64)
            owner[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
        return owner


@partitions.register("shards")
@dataclass(frozen=True)
class Shards:
    """Few labels each: records sorted by label, cut into shards, dealt out at random.

    Args:
        clients: Number of clients.
        per_client: Shards per client, hence about as many labels.

    Source:
        McMahan et al. (2017), arXiv:1602.05629, section 3.
    """

    example: ClassVar[dict[str, Any]] = {"clients": 5, "per_client": 2}
    clients: int
    per_client: int = 2

    def __post_init__(self) -> None:
        count("partition.shards", clients=self.clients, per_client=self.per_client)

    def split(self, examples: Examples, seed: int) -> FederatedData:
        """Shards of equal size, within one record, `per_client` to each client."""
        shards = self.clients * self.per_client
        _labelled("partition.shards", examples)
        _enough("partition.shards", examples, shards, clients=self.clients, per_client=self.per_client)
        random = stream(seed, "partition")
        shuffled = random.permutation(len(examples))
        ordered = shuffled[np.argsort(examples.y[shuffled], kind="stable")]
        cut = np.array_split(ordered, shards)
        hands = random.permutation(shards).reshape(self.clients, self.per_client)
        return _numbered(examples, [np.concatenate([cut[shard] for shard in hand]) for hand in hands])


def _by(owner: NDArray[np.intp], owners: int) -> list[Rows]:
    """Rows of each owner, ascending."""
    order = np.argsort(owner, kind="stable")
    return list(np.split(order, np.cumsum(np.bincount(owner, minlength=owners))[:-1]))


def _numbered(examples: Examples, groups: Sequence[Rows]) -> FederatedData:
    """Clients named by number: client-00, client-01 and so on."""
    width = len(str(len(groups) - 1))
    names = tuple(f"client-{i:0{width}}" for i in range(len(groups)))
    return FederatedData(examples, names, tuple(np.sort(rows) for rows in groups))


def _enough(where: str, examples: Examples, needed: int, /, **argument: int) -> None:
    if len(examples) < needed:
        rule = f"needs at least {needed} records, and there are {len(examples)}"
        raise ConfigError.about(where, rule, "use fewer clients", **argument)


def _labelled(where: str, examples: Examples) -> None:
    if examples.y.ndim > 1:
        raise ConfigError.about(where, "cuts by label, and these records have none", "use natural or iid")
