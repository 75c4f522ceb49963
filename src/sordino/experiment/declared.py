"""Sites whose files nobody else has: names and sizes stand in the experiment, and records stay where they are.

[silos.NAME] records = N ──► names, units, weights, price: one plan, the same at the coordinator and at every site
a site's own file ──► a coin per record ──► as many training records as declared, or the site does not join
everybody else ──► a number without records: it counts, and nothing can be read
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.registry import single
from sordino.core.types import Unit
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.data.split import held_out
from sordino.experiment.config import Experiment, SiloTable
from sordino.experiment.reading import read, stand_in, test_data, untold

CENSUS = "`sordino silo census FOLDER FILE` says there what is to be declared"


def given(experiment: Experiment) -> bool:
    """Whether the experiment says how many records its silos have."""
    return any(silo.records is not None for silo in experiment.silos.values())


def parts(
    experiment: Experiment, here: Mapping[str, Any], silo: str | None
) -> tuple[Examples, FederatedData, FederatedData]:
    """The form of a record, the training and the test parts, from declarations and at most one silo's own file.

    Args:
        experiment: What is wanted.
        here: Options of the data set on the silo's machine, its `path` above all.
        silo: Whose machine this is; None at the coordinator, which has no records.

    Returns:
        A made-up record; the training parts of all silos; the test part of this silo alone, or the data set that the
        experiment names to test on, at the coordinator.

    Raises:
        ConfigError: Something is not declared, or does not go with declarations.
        PrivacyError: The silo's own file does not fit them. It does not say how: that is for the silo to see.

    Guarantee:
        What is read at a silo depends on its own file alone, and a record's part on that record alone.
    """
    _check(experiment)
    counts, form = _counts(experiment), stand_in(experiment)
    own, held = form.take(np.zeros(0, np.int64)), np.zeros(0, np.bool_)
    if silo is not None:
        if silo not in counts:
            raise PrivacyError.about(f"silo {silo!r}", "has no part in this experiment", silos=sorted(counts))
        with untold(silo):
            own, held = _own(experiment, here, silo, form)
            counted = _sizes(experiment, own, held)
        told = experiment.silos[silo]
        if (counted.records, counted.persons) != (told.records, told.persons):
            what = "records" if told.persons is None else "records or persons"
            raise PrivacyError.about(
                f"silo {silo!r}", f"trains on another number of {what} than is declared", CENSUS, records=told.records
            )
    # Past the last record, in no memory: whoever reads there fails.
    rows = {name: np.broadcast_to(np.int64(len(own)), (count,)) for name, count in counts.items()}
    if silo is not None:
        rows[silo] = np.flatnonzero(~held)
    train = FederatedData(own, tuple(rows), tuple(rows.values()), frozenset(counts) - {silo})
    if silo is None and experiment.evaluation.data is not None:
        return form, train, test_data(experiment, form)
    if silo is None or not held.any():
        return form, train, FederatedData(own, (), (), frozenset(counts))
    return form, train, FederatedData(own, (silo,), (np.flatnonzero(held),))


def census(experiment: Experiment, here: Mapping[str, Any], silo: str) -> SiloTable:
    """How many records a silo's own file gives to the training, and of how many persons: what is to be declared for it.

    Args:
        experiment: As written; whether it declares numbers yet does not matter.
        here: As for `parts`.
        silo: The silo's name.

    Raises:
        ConfigError: The file cannot be read, or is not of the declared form. The message may quote it.
    """
    return _sizes(experiment, *_own(experiment, here, silo, stand_in(experiment)))


def _sizes(experiment: Experiment, own: Examples, held: NDArray[np.bool_]) -> SiloTable:
    """What a silo's training part counts."""
    records = int(np.count_nonzero(~held))
    if experiment.privacy.unit is not Unit.USER:
        return SiloTable(records=records)
    if own.user is None:
        raise ConfigError.about("privacy", "needs a column that names the person", "set data.*.user", unit="user")
    return SiloTable(records=records, persons=len(np.unique(own.user[~held])))


def _own(
    experiment: Experiment, here: Mapping[str, Any], silo: str, form: Examples
) -> tuple[Examples, NDArray[np.bool_]]:
    """A silo's own records, and which of them are held out."""
    if "path" not in here:
        raise ConfigError.about("site", "does not say where the silo's data lie", "set `data` in its site.toml")
    own = read(experiment, here, silo)
    for name in ("shape", "classes", "vocabulary", "features"):
        if getattr(own, name) != getattr(form, name):
            rule = f"has another {name} here than the experiment declares"
            raise ConfigError.about("data", rule, f"declared: {getattr(form, name)}")
    strangers = np.flatnonzero([] if own.client is None else own.client.astype(str) != silo)
    if len(strangers):
        rule = f"names another silo than {silo!r} in row {strangers[0]}"
        raise ConfigError.about("data", rule, "keep the silo's own rows only")
    wanted = experiment.evaluation
    if wanted.data is not None:  # all records are trained on
        return own, np.zeros(len(own), np.bool_)
    seed, by_user = experiment.seed + 1_000_003 * wanted.split, experiment.privacy.unit is Unit.USER
    return own, held_out(own, np.arange(len(own)), wanted.test_fraction, seed, by_user=by_user)


def _counts(experiment: Experiment) -> dict[str, int]:
    """Training records by silo, in the order in which a natural partition names silos."""
    return {name: silo.records for name, silo in sorted(experiment.silos.items()) if silo.records is not None}


def _check(experiment: Experiment) -> None:
    """Refuse what needs records where there are none, and what would make one silo's part depend on another's file."""
    missing = sorted(name for name, silo in experiment.silos.items() if silo.records is None)
    if missing:
        raise ConfigError.about("silos", "lack `records`, which others declare", CENSUS, names=missing)
    people = experiment.privacy.unit is Unit.USER
    unlike = sorted(name for name, silo in experiment.silos.items() if (silo.persons is not None) != people)
    if unlike:
        rule = "lack `persons`, which are protected" if people else "declare `persons`, which are not protected"
        raise ConfigError.about("silos", rule, CENSUS, names=unlike)
    if len(experiment.silos) < 2:
        raise ConfigError.about("silos", "is too few for a federation", "declare two or more", silos=1)
    _, options = single("data", experiment.data)
    for key, remedy in (("path", "set `data` in each site's site.toml"), ("public", "load it everywhere")):
        if options.get(key):
            raise ConfigError.about("data", "does not go with declared numbers of records", remedy, **{key: "…"})
    refused = {
        "partition": experiment.partition != {"natural": {}},
        "groups": bool(experiment.groups),
        "local.records_per_person": experiment.local.records_per_person is not None,
        "compare": experiment.compare is not None,
        "evaluation.every": bool(experiment.evaluation.every) and experiment.evaluation.data is None,
    }
    given = [key for key, there in refused.items() if there]
    if given:
        raise ConfigError.about("silos", "has declared numbers of records only", "drop the other keys", keys=given)
