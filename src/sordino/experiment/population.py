"""Who takes part: the data set, cut into clients and into training and test parts, with the public counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.registry import single
from sordino.core.types import Unit
from sordino.data import partitions
from sordino.data.canaries import Canaries
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.data.split import coin_split, train_test
from sordino.experiment import declared
from sordino.experiment.canaries import planted
from sordino.experiment.config import Experiment
from sordino.experiment.reading import read, spec_of, test_data, untold
from sordino.local.models import InputSpec


@dataclass(frozen=True)
class Population:
    """The federation's data.

    Args:
        train: Every client's training records.
        test: Every client's held-out records.
        units: Protected units per client: records, persons, or 1 for the client itself. Public by declaration.
        spec: Shape and classes of one record. Public.
        public: Whether the records are published research data, so that metrics on them may be shown freely.
        source: Where the data come from.
        canaries: Crafted records among the training records; counts are made with the expected number of them.
    """

    train: FederatedData
    test: FederatedData
    units: tuple[int, ...]
    spec: InputSpec
    public: bool
    source: str
    canaries: Canaries | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names."""
        return self.train.names

    @property
    def elsewhere(self) -> frozenset[str]:
        """Clients of which only the number of records is known here."""
        return self.train.elsewhere

    def __len__(self) -> int:
        return len(self.train)

    def surplus(self, client: int) -> int:
        """What turns a count of a client's training records into the public one, in which no coin has a part."""
        canaries = self.canaries
        return canaries.surplus if canaries is not None and canaries.silo == self.names[client] else 0


def load(experiment: Experiment, here: Mapping[str, Any] | None = None, silo: str | None = None) -> Population:
    """Load and split the data that an experiment names.

    Args:
        experiment: What is wanted.
        here: Options of the data set that hold on a silo's machine, such as its `path`.
        silo: Whose machine this is; left out, nobody's in particular.

    Raises:
        ConfigError: The data cannot be read, a client is empty, or there is only one client.
        PrivacyError: This is a silo's machine, and its own data do not fit the experiment.
    """
    if declared.given(experiment):
        form, ours, held = declared.parts(experiment, here or {}, silo)
        return _counted(experiment, form, *planted(experiment, ours, held, form))
    own = untold(silo) if silo is not None and here else nullcontext()
    with own:
        examples = read(experiment, here or {}, silo)
    partition, options = single("partition", experiment.partition)
    if partition != "natural" and not examples.public:
        raise PrivacyError.about(
            "partition",
            "deals records at random, so one more record moves all others",
            "name the client column and use natural; random partitions are for public data",
            name=partition,
        )
    clients = partitions.build(partition, options, f"partition.{partition}").split(examples, experiment.seed)
    if len(clients) < 2:
        raise ConfigError.about("data", "is too few for a federation", "two or more are needed", clients=len(clients))
    unknown = set(experiment.silos) - set(clients.names)
    if unknown:
        raise ConfigError.about(
            "silos", f"are not in the data; known: {', '.join(clients.names)}", names=sorted(unknown)
        )
    _check_persons(experiment, clients)
    train, test, canaries = planted(experiment, *_parts(experiment, clients, silo))
    return _counted(experiment, examples, train, test, canaries)


def _counted(
    experiment: Experiment,
    known: Examples,
    train: FederatedData,
    test: FederatedData,
    canaries: Canaries | None = None,
) -> Population:
    """The population of these parts, with its public counts; `known` says what a record looks like."""
    whole = Population(
        train=train,
        test=test,
        units=(),
        spec=spec_of(experiment, known),
        public=known.public and test.examples.public,
        source=known.source,
        canaries=canaries,
    )
    return replace(whole, units=tuple(_units(experiment, whole, i) for i in range(len(whole))))


def require_public(population: Population) -> None:
    """Refuse to compare on private data, before anything has run.

    Raises:
        PrivacyError: The data are not public.
    """
    if not population.public:
        raise PrivacyError.about(
            "compare", "trains on the data once per row, each a release", "drop [compare]: it is for public data"
        )


def _check_persons(experiment: Experiment, clients: FederatedData) -> None:
    """What the data say of persons must not refute what the plan declares of them."""
    user, declared = clients.examples.user, experiment.privacy.silos_per_person
    if user is None or declared is None or experiment.privacy.unit is Unit.CLIENT:
        return
    silos = Counter(person for rows in clients.rows for person in np.unique(user[rows]).tolist())
    if max(silos.values()) > declared:
        raise PrivacyError.about(
            "privacy",
            "is refuted by the column of persons",
            "declare more, or partition by person",
            silos_per_person=declared,
        )


def _parts(experiment: Experiment, clients: FederatedData, silo: str | None) -> tuple[FederatedData, FederatedData]:
    """Training and test part. A silo's machine opens no data set that an experiment names to test on."""
    wanted = experiment.evaluation
    if wanted.data is None:
        seed = experiment.seed + 1_000_003 * wanted.split
        if clients.examples.public:
            return train_test(clients, wanted.test_fraction, seed)
        return coin_split(clients, wanted.test_fraction, seed, by_user=experiment.privacy.unit is Unit.USER)
    if silo is not None:
        return clients, FederatedData(clients.examples, (), (), frozenset(clients.names))
    return clients, test_data(experiment, clients.examples)


def _units(experiment: Experiment, whole: Population, index: int) -> int:
    unit, name = experiment.privacy.unit, whole.names[index]
    if unit is Unit.CLIENT:
        return 1
    if unit is Unit.RECORD:
        return whole.train.sizes[index] + whole.surplus(index)
    if name in whole.elsewhere:
        return cast("int", experiment.silos[name].persons) + _expected(whole, name)
    user = whole.train.silo(index).user
    if user is None:
        raise ConfigError.about("privacy", "needs a column that names the person", "set data.*.user", unit="user")
    return len(np.unique(user)) + whole.surplus(index)


def _expected(whole: Population, name: str) -> int:
    """Canaries that a silo elsewhere has, as far as anybody may know."""
    return whole.canaries.expected if whole.canaries is not None and whole.canaries.silo == name else 0
