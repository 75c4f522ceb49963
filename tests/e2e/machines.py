"""Federations whose silos answer letters: in this process, or however a test delivers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from whole_runs import planned

from sordino.core.types import Adjacency, Unit
from sordino.experiment.config import read
from sordino.experiment.remote.federation import Federation
from sordino.experiment.run import Result, run
from sordino.experiment.site.member import Member
from sordino.federation.post import Answering, Within
from sordino.ledger import Account
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import open_silo

SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")


@dataclass
class Machines:
    """An experiment file, a coordinator's folder, and a folder per silo, all enrolled with 8 each."""

    file: Path
    key: SigningKey
    silos: tuple[str, ...] = SILOS
    told: list[str] = field(default_factory=list)

    @classmethod
    def enrolled(
        cls, file: Path, silos: tuple[str, ...] = SILOS, *, unit: Unit = Unit.RECORD, test: bool = False, epsilon: float = 8.0
    ) -> Machines:
        key = SigningKey.generate("coordinator")
        key.save(file.parent / "coordinator.pem")
        for name in silos:
            account = Account(name, unit, Adjacency.ADD_REMOVE, epsilon, 1e-4, test=test)
            enrol(file.parent / "silos" / name, account, coordinators=[key.public])
        return cls(file, key, silos)

    @property
    def root(self) -> Path:
        return self.file.parent

    @contextmanager
    def members(self) -> Iterator[dict[str, Member]]:
        """Every silo's process, as an object."""
        with ExitStack() as stack:
            yield {
                name: Member(stack.enter_context(open_silo(self.root / "silos" / name)), self.root / "silos" / name)
                for name in self.silos
            }

    def federation(self, answering: Mapping[str, Answering], *overrides: str, **options: object) -> Federation:
        keys = {name: SigningKey.load(self.root / "silos" / name / "key.pem").public for name in self.silos}
        return Federation(
            experiment=read(self.file, overrides),
            post=Within(answering),
            key=self.key,
            silos=keys,
            tell=self.told.append,
            **{"wait": 0.0, **options},
        )

    def run(self, answering: Mapping[str, Answering], *overrides: str, runs: str = "runs", **options: object) -> Result:
        plan, population = planned(self.file, *overrides)
        return run(
            plan,
            population,
            "",
            self.root / runs,
            base=self.root,
            federation=self.federation(answering, *overrides, **options),
        )


def answers(members: Mapping[str, Member], **instead: Callable[[Answering], Answering]) -> dict[str, Answering]:
    """Each member's way to answer; some of them wrapped."""
    return {
        f"node {i}": instead[name.replace("-", "_")](m.answer) if name.replace("-", "_") in instead else m.answer
        for i, (name, m) in enumerate(members.items())
    }


__all__ = ["SILOS", "Machines", "answers", "replace"]
