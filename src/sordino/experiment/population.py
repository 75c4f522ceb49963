"""Who takes part: the data set, cut into clients and into training and test parts, with the public counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.registry import single
from sordino.core.types import Unit
from sordino.data import datasets, partitions
from sordino.data.canaries import Canaries
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.data.pretrained import located
from sordino.data.split import coin_split, train_test
from sordino.data.texts import Texts
from sordino.data.tokenise import encode
from sordino.experiment.canaries import planted
from sordino.experiment.config import Experiment
from sordino.local.models import InputSpec, TextInput, models


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
    """
    name, options = single("data", experiment.data)
    options = _here(options, here or {}, silo)
    text = _text_input(experiment)
    examples = _read(datasets.build(name, options, f"data.{name}").load(), text)
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
    train, test, canaries = planted(experiment, *_parts(experiment, clients))
    whole = Population(
        train=train,
        test=test,
        units=(),
        spec=InputSpec(
            shape=examples.shape,
            classes=examples.classes,
            vocabulary=examples.vocabulary,
            padding=examples.padding,
            folder=None if text is None else str(located(text.base)),
            per_position=examples.y.ndim > 1,
        ),
        public=examples.public and test.examples.public,
        source=examples.source,
        canaries=canaries,
    )
    unit = experiment.privacy.unit
    return replace(whole, units=tuple(_units(whole, i, unit) for i in range(len(whole))))


def _here(options: Mapping[str, Any], here: Mapping[str, Any], silo: str | None) -> dict[str, Any]:
    """A data set's options on a silo's machine: which of its files are read is for the silo to say."""
    if silo is not None and "path" in options and "path" not in here:
        raise PrivacyError.about(
            f"silo {silo!r}", "is named by the experiment, not by the silo", "set [data] in its site.toml", path="…"
        )
    return {**options, **here}


def _text_input(experiment: Experiment) -> TextInput | None:
    """How the model wants its text, if it reads any."""
    name, options = single("model", experiment.model)
    return getattr(models.build(name, options, f"model.{name}"), "text", None)


def _read(loaded: Examples | Texts, text: TextInput | None) -> Examples:
    """Texts as tokens of the model; anything else as it is.

    Raises:
        ConfigError: A model of texts and other data, or the other way round.
    """
    if isinstance(loaded, Texts) != (text is not None):
        raise ConfigError.about(
            "model",
            "reads texts" if text is not None else "does not read texts",
            "use data of text with text_classifier or causal_lm, and other data with other models",
        )
    if isinstance(loaded, Examples) or text is None:
        return cast("Examples", loaded)
    return encode(loaded, located(text.base), length=text.length, task=text.task)


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


def _parts(experiment: Experiment, clients: FederatedData) -> tuple[FederatedData, FederatedData]:
    wanted = experiment.evaluation
    if wanted.data is None:
        seed = experiment.seed + 1_000_003 * wanted.split
        if clients.examples.public:
            return train_test(clients, wanted.test_fraction, seed)
        return coin_split(clients, wanted.test_fraction, seed, by_user=experiment.privacy.unit is Unit.USER)
    name, options = single("evaluation.data", wanted.data)
    examples = _read(datasets.build(name, options, f"evaluation.data.{name}").load(), _text_input(experiment))
    known = clients.examples
    if (examples.shape, examples.classes, examples.vocabulary) != (known.shape, known.classes, known.vocabulary):
        raise ConfigError.about(
            "evaluation.data",
            f"has records of shape {examples.shape} and {examples.classes} classes, "
            f"the training data {known.shape} and {known.classes}",
            "test on data of the same kind",
            name=name,
        )
    return clients, FederatedData(examples, ("test",), (np.arange(len(examples.y)),))


def _units(whole: Population, index: int, unit: Unit) -> int:
    if unit is Unit.CLIENT:
        return 1
    if unit is Unit.RECORD:
        return whole.train.sizes[index] + whole.surplus(index)
    user = whole.train.silo(index).user
    if user is None:
        raise ConfigError.about("privacy", "needs a column that names the person", "set data.*.user", unit="user")
    return len(np.unique(user)) + whole.surplus(index)
