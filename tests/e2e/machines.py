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
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.silo import open_silo

SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")


@dataclass
class Machines:
    """An experiment file, a coordinator's folder, and a folder per silo, all enrolled with 8 each."""

    file: Path
    key: SigningKey
    silos: tuple[str, ...] = SILOS
    told: list[str] = field(default_factory=list)
    folder: str = "silos"

    @classmethod
    def enrolled(
        cls,
        file: Path,
        silos: tuple[str, ...] = SILOS,
        *,
        unit: Unit = Unit.RECORD,
        test: bool = False,
        epsilon: float = 8.0,
        delta: float = 1e-4,
        folder: str = "silos",
        noise_at: str = "silo",
    ) -> Machines:
        key = SigningKey.generate("coordinator")
        (file.parent / "coordinator.pem").unlink(missing_ok=True)
        key.save(file.parent / "coordinator.pem")
        for name in silos:
            account = Account(name, unit, Adjacency.ADD_REMOVE, epsilon, delta, test=test)
            enrol(file.parent / folder / name, account, coordinators=[key.public])
            rules = file.parent / folder / name / "silo.toml"
            text = rules.read_text(encoding="utf-8").replace('noise_at = ["silo"]', f'noise_at = ["{noise_at}"]')
            rules.write_text(text, encoding="utf-8")
        return cls(file, key, silos, folder=folder)

    @property
    def root(self) -> Path:
        return self.file.parent

    @contextmanager
    def members(self) -> Iterator[dict[str, Member]]:
        """Every silo's process, as an object."""
        with ExitStack() as stack:
            yield {
                name: Member(
                    stack.enter_context(open_silo(self.root / self.folder / name)),
                    self.root / self.folder / name,
                    peers=self.keys(),
                )
                for name in self.silos
            }

    def keys(self) -> dict[str, VerifyKey]:
        """Every silo's public key."""
        return {name: SigningKey.load(self.root / self.folder / name / "key.pem").public for name in self.silos}

    def federation(self, answering: Mapping[str, Answering], *overrides: str, **options: object) -> Federation:
        return Federation(
            experiment=read(self.file, overrides),
            post=Within(answering),
            key=self.key,
            silos=self.keys(),
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
