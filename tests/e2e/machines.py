"""Federations whose silos answer letters: in this process, or however a test delivers them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from whole_runs import planned

from sordino.core.types import Adjacency, Unit
from sordino.experiment.config import read
from sordino.experiment.remote.federation import Federation
from sordino.experiment.run import Result, run
from sordino.experiment.site.member import Member, said
from sordino.federation.post import Answering, Letter, Post, Within
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.silo import open_silo
from sordino.ledger.witnesses import read as seen_by

HOSPITALS = """
name = "faults"
rounds = 3
ledger = "federation.db"
[budget]
epsilon = 100.0
delta = 1e-3
[data.table]
path = '{path}'
label = "ill"
client = "hospital"
features = ["a"]
ranges = {{ a = [0, 1] }}
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
noise_multiplier = 2.0
delta = 1e-5
silos_per_person = 1
[local]
lr = 0.5
clip = 1.0
[strategy.fedavg]
"""
NAMES = ("east", "north", "south")
"""Three small ones, see the fixture `hospitals`."""

SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")


class Killed(BaseException):
    """A process ends here and now: nothing in it may catch this."""


@dataclass
class Machines:
    """An experiment file, a coordinator's folder, and a folder per silo, all enrolled with 8 each."""

    file: Path
    key: SigningKey
    silos: tuple[str, ...] = SILOS
    data: Mapping[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    folder: str = "silos"

    @classmethod
    def enrolled(
        cls,
        file: Path,
        silos: tuple[str, ...] = SILOS,
        *,
        data: Mapping[str, Any] | None = None,
        unit: Unit = Unit.RECORD,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        accounts: tuple[str, ...] = (),
        test: bool = False,
        epsilon: float = 8.0,
        delta: float = 1e-4,
        folder: str = "silos",
        noise_at: str = "silo",
    ) -> Machines:
        """Accounts: of groups within each silo, besides its own."""
        key = SigningKey.generate("coordinator")
        (file.parent / "coordinator.pem").unlink(missing_ok=True)
        key.save(file.parent / "coordinator.pem")
        for name in silos:
            at = file.parent / folder / name
            enrol(at, Account(name, unit, adjacency, epsilon, delta, test=test), coordinators=[key.public])
            text = (at / "silo.toml").read_text(encoding="utf-8")
            (at / "silo.toml").write_text(text.replace('["silo"]', f'["{noise_at}"]'), encoding="utf-8")
            others = [Account(f"{name}/{each}", unit, adjacency, epsilon, delta, test=test) for each in accounts]
            with Ledger(at / "ledger.db") as ledger:
                ledger.open_accounts(others)
        return cls(file, key, silos, data or {}, folder=folder)

    @property
    def root(self) -> Path:
        return self.file.parent

    def keys(self) -> dict[str, VerifyKey]:
        """Every silo's public key."""
        return {name: SigningKey.load(self.at(name) / "key.pem").public for name in self.silos}

    def at(self, silo: str) -> Path:
        return self.root / self.folder / silo

    @contextmanager
    def members(self) -> Iterator[dict[str, Member]]:
        """Every silo's process, as an object."""
        with ExitStack() as stack:
            yield {
                name: Member(
                    stack.enter_context(open_silo(self.at(name))), self.at(name), peers=self.keys(), data=self.data
                )
                for name in self.silos
            }

    @contextmanager
    def sites(self) -> Iterator[dict[str, Site]]:
        """The same, as processes that can be killed and started again."""
        with ExitStack() as stack:
            yield {name: stack.enter_context(Site(self.at(name), self.data)) for name in self.silos}

    def federation(self, answering: Post | Mapping[str, Answering], *overrides: str, **options: object) -> Federation:
        return Federation(
            experiment=read(self.file, overrides),
            post=Within(answering) if isinstance(answering, Mapping) else answering,
            key=self.key,
            silos=self.keys(),
            tell=self.told.append,
            **{"wait": 0.0, **options},
        )

    def run(
        self,
        answering: Post | Mapping[str, Answering],
        *overrides: str,
        runs: str = "runs",
        base: Path | None = None,
        **options: object,
    ) -> Result:
        plan, population = planned(self.file, *overrides)
        federation = self.federation(answering, *overrides, **options)
        return run(plan, population, "", self.root / runs, base=base or self.root, federation=federation)

    # ── what the ledgers say afterwards ──

    def places(self) -> dict[str, Path]:
        """The ledgers; the coordinator's is called "" and lies beside the experiment, or in its only run folder."""
        own = self.root / "federation.db"
        (own,) = [own] if own.exists() else (self.root / "runs").glob("*/ledger.db")
        return {"": own} | {name: self.at(name) / "ledger.db" for name in self.silos}

    def states(self, run: str) -> dict[str, list[str]]:
        """Fates of a run's charges, by ledger."""
        found = {}
        for name, place in self.places().items():
            with Ledger(place, read_only=True) as ledger:
                found[name] = [f"{c.txid.rpartition('/')[2]} {c.state}" for c in ledger.charges(run)]
        return found

    def problems(self) -> list[str]:
        """What `sordino ledger verify` finds, with all that anybody keeps."""
        own, keys = self.places()[""], list(self.keys().values())
        notes = [note for name in self.silos for note in seen_by(self.at(name) / "witness.jsonl")]
        found = list(verify(own, keys=[self.key.public], silos=keys, witnesses=notes, reprice=True).problems)
        for name in self.silos:
            found += verify(self.places()[name], reprice=True).problems
        return found

    def hold(self, run: str, draws: Mapping[Any, int], *, away: tuple[str, ...] = ()) -> None:
        """Every ledger verifies, all tell of the same, nobody is over a limit, and nothing was drawn twice."""
        assert self.problems() == []
        assert self.disagreements(run, away=away) == []
        assert set(draws.values()) <= {1}

    def disagreements(self, run: str, *, away: tuple[str, ...] = ()) -> list[str]:
        """Accounts for which the coordinator and a silo claim different things, or that have spent too much."""
        with Ledger(self.places()[""], read_only=True) as ledger:
            mine = [said(claim) for claim in ledger.claims(run)]
        found = []
        for name in self.silos:
            with Ledger(self.places()[name], read_only=True) as ledger:
                theirs = list(map(said, ledger.claims(run))) if name not in away else []
                over = [b for b in map(ledger.balance, [a.name for a in ledger.accounts()]) if b.epsilon_left < 0]
            found += [claim["account"] for claim in theirs if claim not in mine]
            found += [f"{name} is over its limit"] * len(over)
        return found


@dataclass
class Site:
    """A silo's process: it may be killed at any moment, and starts again from its folder."""

    folder: Path
    data: Mapping[str, Any]
    clock: Callable[[], float] = time.time
    starts: int = 0

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._stack = ExitStack()
        silo = self._stack.enter_context(open_silo(self.folder, clock=self.clock))
        self.member, self.starts = Member(silo, self.folder, data=self.data), self.starts + 1

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def answer(self, letter: Letter) -> Letter | None:
        """The answer; none if answering killed the process, which is then started again."""
        try:
            return self.member.answer(letter)
        except Killed:
            self.restart()
            return None

    def restart(self) -> None:
        self._stack.close()
        self._start()


Fault = Callable[[Letter, Callable[[Letter], Letter | None]], Letter | None]
"""What becomes of a letter, given who would answer it; none if nothing comes back."""


@dataclass
class Lines:
    """A post with faults: what reaches a site, and what comes back, is for the test to say."""

    sites: Mapping[str, Site]
    faults: Mapping[str, Fault] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def present(self) -> tuple[str, ...]:
        return tuple(self.sites)

    def ask(self, letters: Mapping[str, Letter], timeout: float) -> Iterator[tuple[str, Letter]]:
        del timeout
        for address, letter in letters.items():
            self.asked.append((address, letter.action))
            fault, answering = self.faults.get(address), self.sites[address].answer
            answer = answering(letter) if fault is None else fault(letter, answering)
            if answer is not None:
                yield address, answer

    def send(self, letters: Mapping[str, Letter], timeout: float) -> Collection[str]:
        list(self.ask(letters, timeout))
        return letters.keys()


def answers(members: Mapping[str, Member], **instead: Callable[[Answering], Answering]) -> dict[str, Answering]:
    """Each member's way to answer; some of them wrapped."""
    return {
        f"node {i}": instead[name.replace("-", "_")](m.answer) if name.replace("-", "_") in instead else m.answer
        for i, (name, m) in enumerate(members.items())
    }


def trains(letter: Letter, number: int = 1) -> bool:
    """Whether a letter asks for a round's update."""
    return letter.action == "train" and letter.number("round") == number
