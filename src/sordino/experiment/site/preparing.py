"""Model and data for a plan, loaded once, by a silo that works the plan out for itself before it looks at records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sordino.audit.sensor.start import require
from sordino.core import tables
from sordino.core.errors import PrivacyError
from sordino.experiment import config, declared
from sordino.experiment.approval import terms_of
from sordino.experiment.audits import sensor
from sordino.experiment.build import build
from sordino.experiment.config import Experiment
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.settings import Setup
from sordino.experiment.site.sealing import Sealing
from sordino.federation.post import Letter
from sordino.ledger.approval import Approval, PlanTerms

CENSUS_WANTED = "census.wanted"
"""A file in the silo's folder, from a declared number that was wrong until `sordino silo census` has looked."""


@dataclass
class Preparing:
    """What a silo has loaded, and for which terms.

    Args:
        name: The silo's.
        folder: Its own.
        data: Options of the data set that hold here, whatever the experiment says.
        sealing: Its key for sums under one key.
        say: Told each step: public facts only.
    """

    name: str
    folder: Path
    data: Mapping[str, Any]
    sealing: Sealing
    say: Callable[[str], None]
    _made: tuple[PlanTerms, Setup] | None = None

    def setup(self, approval: Approval, letter: Letter) -> Setup:
        """Model and data for the plan, once in the life of this process."""
        terms = approval.terms
        if self._made is not None and self._made[0] == terms:
            return self._made[1]
        experiment = tables.build(Experiment, json.loads(letter.text("experiment")), "experiment")
        # Nothing that an experiment names is looked at before it is known to be the approved one: whether an answer
        # comes would else tell of the silo's records, and cost it nothing.
        if (experiment.data, experiment.model) != (terms.data, terms.model):
            raise self._another(terms)
        if declared.given(experiment):
            # The coordinator's test data have no part in the plan, and their file is not opened here.
            nobody = load(config.changed(experiment, evaluation__data=None, evaluation__every=0))
            self._compare(make_plan(experiment, nobody), terms)
        population = self._counted(experiment) if declared.given(experiment) else load(experiment, self.data, self.name)
        plan = make_plan(experiment, population)
        self._compare(plan, terms)
        if plan.experiment.homomorphic is not None:
            self.say(f"seals with key {self.sealing.key.name[:8]}")  # refuses, before any charge, if there is none
        setup = build(plan, population, together=False).setup
        report = sensor.at_start(setup)
        if report is not None:
            require(report)
        self._made = terms, setup
        self.say(f"loaded {terms.run}: model and data")
        return setup

    def _counted(self, experiment: Experiment) -> Population:
        """The silo's own records, if they are as many as is declared: one wrong number is answered, not the next.

        Whoever may ask for any plan could else ask for one number after the other.
        """
        wanted = self.folder / CENSUS_WANTED
        if wanted.exists():
            raise PrivacyError.about(
                f"silo {self.name!r}",
                "waits for its own people: a plan declared another number before",
                "`sordino silo census FOLDER FILE` there, then ask again",
            )
        try:
            return load(experiment, self.data, self.name)
        except PrivacyError:
            wanted.touch()
            raise

    def _compare(self, plan: Plan, terms: PlanTerms) -> None:
        """Return only if a plan is the approved one, word for word."""
        if replace(terms_of(plan), code=terms.code) != terms:
            self.say(f"plan {terms.digest[:16]} is {plan.digest[:16]} here")
            raise self._another(terms)

    def _another(self, terms: PlanTerms) -> PrivacyError:
        # The digest from here stays here: it is of the numbers of records.
        return PrivacyError.about(
            f"silo {self.name!r}",
            "is not what this experiment comes to here",
            "compare experiment file, data and version",
            plan=terms.digest[:16],
        )
