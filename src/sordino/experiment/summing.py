"""Noise that the silos draw in shares, inside a secure sum: how many shares count, and how vectors become numbers.

[secure_sum]          minimum ─ colluding ─► honest shares ─► each share's noise ─► law of the sum ─► price
                      bits, clip, size ─► encoding: the finest whole numbers that fit
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Unit
from sordino.experiment import config
from sordino.experiment.config import Experiment, SecureSum
from sordino.federation.mechanisms import mechanisms
from sordino.federation.pipeline import Pipeline
from sordino.federation.secure import Terms
from sordino.federation.secure.encoding import Crowd, Encoding
from sordino.privacy import shares

if TYPE_CHECKING:
    from sordino.experiment.population import Population

WHOLE = ("skellam", "discrete_gaussian")
"""Laws of noise in whole numbers."""


def table_of(experiment: Experiment) -> SecureSum:
    """The `[secure_sum]` table of an experiment that has one."""
    return cast("SecureSum", experiment.secure_sum)


def found(experiment: Experiment, population: Population, size: int) -> Experiment:
    """The experiment with what a secure sum's price depends on besides itself: public counts and lengths.

    Raises:
        ConfigError: No secure sum can hold what its table says.
        PrivacyError: Nobody would be left whose noise is secret.
    """
    table = experiment.secure_sum
    if table is None:
        return experiment
    clients = experiment.privacy.unit is Unit.CLIENT
    wire = Pipeline.from_tables(experiment.stages).wire_size(size) if clients else size
    units = len(population) if clients else sum(population.units)
    experiment = config.changed(
        experiment,
        secure_sum__parties=len(population),
        secure_sum__size=wire,
        secure_sum__units=units,
        secure_sum__minimum=table.minimum or len(population),
    )
    honest(experiment)
    _terms(experiment)  # what masks cannot bear is no plan: it would be charged, and no sum opened
    return experiment


def check(experiment: Experiment) -> None:
    """Refuse what a secure sum cannot bear.

    Raises:
        ConfigError: Its table and the mechanism do not go together, or something else is not offered with it.
    """
    privacy, table = experiment.privacy, experiment.secure_sum
    if (table is not None) != (privacy.mechanism in WHOLE):
        raise ConfigError.about(
            "privacy",
            f"goes with [secure_sum] and one of {', '.join(WHOLE)}: sums of masked whole numbers",
            "give both or neither",
            mechanism=privacy.mechanism,
        )
    if table is None:
        return
    if privacy.noise_at != "sum":
        raise ConfigError.about("secure_sum", "adds its noise at the sum", 'use noise_at = "sum"')
    if next(iter(experiment.sampling)) != "all":
        raise ConfigError.about(
            "sampling", "earns nothing in whole numbers, and every silo is in every sum", "use sampling.all"
        )
    if experiment.local.rate != 1 or experiment.local.records_per_person is not None:
        raise PrivacyError.about(
            "local", "has no price with noise in whole numbers", 'use batch = "full"', batch=experiment.local.batch
        )
    if experiment.simulation.secure_sum:
        raise ConfigError.about("simulation", "plays what [secure_sum] does", "drop one", secure_sum=True)


def colluders(experiment: Experiment) -> int:
    """How many of the silos are feared to tell what they drew."""
    table = table_of(experiment)
    return math.ceil(table.colluding * parties(experiment) - 1e-9)


def parties(experiment: Experiment) -> int:
    """How many silos send to a sum."""
    table = table_of(experiment)
    if table.parties is None:
        raise ConfigError.about("secure_sum", "has not been found yet", "plan the experiment first")
    return table.parties


def honest(experiment: Experiment) -> int:
    """How many shares carry the planned noise at worst."""
    return shares.honest(parties(experiment), fewest(experiment), table_of(experiment).colluding)


def encoding(experiment: Experiment, noise_multiplier: float, clip: float | None = None) -> Encoding:
    """How silos turn vectors into whole numbers.

    Args:
        experiment: As planned.
        noise_multiplier: Of the sum.
        clip: The bound of this round, where it changes; whole numbers and price stay the same.
    """
    table = table_of(experiment)
    alone = experiment.privacy.unit is Unit.CLIENT
    if clip is None:
        clip = Pipeline.from_tables(experiment.stages).bound().l2 if alone else experiment.local.clip
    crowd = Crowd(parties(experiment), honest(experiment), float(table.units or 1))
    return Encoding.fitting(
        table.bits, float(clip or 1.0), table.size or 1, crowd, noise_multiplier=noise_multiplier, alone=alone
    )


def mechanism(experiment: Experiment, noise_multiplier: float) -> Any:
    """The law of the sum's noise, for the whole numbers of the encoding."""
    made = encoding(experiment, noise_multiplier)
    l2, l1 = made.bound()
    options: dict[str, Any] = {"noise_multiplier": noise_multiplier, "l2": l2, "l1": l1}
    if experiment.privacy.mechanism == "discrete_gaussian":
        options |= {"shares": honest(experiment), "size": made.length}
    return mechanisms.build(experiment.privacy.mechanism, options)


def fewest(experiment: Experiment) -> int:
    """How many silos a sum is made of at least."""
    return table_of(experiment).minimum or parties(experiment)


def everybody_masks(experiment: Experiment) -> bool:
    """Whether all pairs mask, which a server that breaks the protocol cannot turn against one of them."""
    return _terms(experiment).degree is None


def _terms(experiment: Experiment) -> Terms:
    return terms(experiment, "plan", range(parties(experiment)), 1)


def terms(experiment: Experiment, txid: str, members: Sequence[int], length: int) -> Terms:
    """The terms of one round's sum: whoever takes part works them out anew."""
    table = table_of(experiment)
    return Terms.fitting(
        txid,
        members,
        threshold=table.minimum or len(members),
        bits=table.bits,
        size=length,
        colluders=colluders(experiment),
    )
