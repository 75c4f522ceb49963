"""What must hold of a federation after its processes were killed: ledgers, limits, what was sent, and the model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.core.types import Adjacency, Unit
from sordino.experiment.config import read
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import load
from sordino.experiment.remote.federation import Federation
from sordino.experiment.run import run
from sordino.experiment.site.member import Member, said
from sordino.federation.post import Answering, Letter, Within
from sordino.ledger import Account, Ledger, verify
from sordino.ledger.enrolment import enrol
from sordino.ledger.grants import Grant
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import open_silo
from sordino.ledger.witnesses import read as seen_by


@dataclass(frozen=True)
class Sent:
    """A letter of a round with a vector in it, as the process saw it that sent or got it.

    Args:
        by: The process: "coordinator", or a site.
        way: "sent" or "got".
        sha256: Of the vector.
        plan: Digest of the plan.
        round: Its number.
        at: When, in seconds.
        process: Which process of that name.
        grant: The silo's consent, with an update; empty with a model.
    """

    by: str
    way: str
    sha256: str
    plan: str
    round: int
    at: float
    process: str
    grant: str = ""

    @property
    def silo(self) -> str:
        """Whose update it is."""
        return Grant.parse(self.grant).silo


def crossed(folder: Path) -> list[Sent]:
    """All that the witnesses have written down, oldest first."""
    lines = [
        Sent(**json.loads(text), process=file.stem)
        for file in folder.glob("*.jsonl")
        for text in file.read_text().splitlines()
        if text.endswith("}")  # a kill may have cut the last one short, before it was sent
    ]
    return sorted(lines, key=lambda line: line.at)


@dataclass(frozen=True)
class Places:
    """Where a study's ledgers, keys and witnesses lie.

    Args:
        home: The study's folder.
        sites: Names of the silos.
    """

    home: Path
    sites: tuple[str, ...]

    @property
    def own(self) -> Path:
        """The coordinator's ledger."""
        return self.home / "federation.db"

    @property
    def file(self) -> Path:
        """The experiment."""
        return self.home / "kills.toml"

    def site(self, name: str) -> Path:
        """A silo's folder."""
        return self.home / "fed" / "sites" / name

    def plan(self, *overrides: str) -> Plan:
        """One of the study's plans."""
        experiment = read(self.file, overrides)
        return make_plan(experiment, load(experiment))

    def key(self) -> SigningKey:
        """The coordinator's."""
        return SigningKey.load(self.home / "fed" / "coordinator" / "coordinator.pem")


def ledgers(places: Places) -> Iterator[str]:
    """What is wrong with a ledger by itself: its history, its signatures, its limits."""
    keys = [SigningKey.load(places.site(name) / "key.pem").public for name in places.sites]
    notes = [note for name in places.sites for note in seen_by(places.site(name) / "witness.jsonl")]
    yield from verify(places.own, keys=[places.key().public], silos=keys, witnesses=notes, reprice=True).problems
    for name, place in {"": places.own, **{n: places.site(n) / "ledger.db" for n in places.sites}}.items():
        if name:
            yield from verify(place, reprice=True).problems
        with Ledger(place, read_only=True) as ledger:
            for account in ledger.accounts():
                if ledger.balance(account.name).epsilon_left < 0:
                    yield f"{name or 'coordinator'}: {account.name} is over its limit"


def agreement(places: Places, away: set[tuple[str, str]]) -> Iterator[str]:
    """Where a silo's ledger and the coordinator's differ, but for silos that a run ended without."""
    with Ledger(places.own, read_only=True) as ledger:
        runs = ledger.runs()
        claims = {(run, claim.account): said(claim) for run in runs for claim in ledger.claims(run)}
        fates = {run: {charge.txid: charge.state for charge in ledger.charges(run)} for run in runs}
    for name in places.sites:
        with Ledger(places.site(name) / "ledger.db", read_only=True) as ledger:
            for run in runs:
                theirs = {charge.txid: charge.state for charge in ledger.charges(run) if charge.round is not None}
                yield from (f"{name}: {txid} is unknown to the coordinator" for txid in theirs.keys() - fates[run])
                if (run, name) in away:
                    continue
                if [said(claim) for claim in ledger.claims(run)] != [claims[run, name]]:
                    yield f"{name} and the coordinator claim different things of {run}"
                missing = fates[run].keys() - theirs.keys()
                yield from (f"{name} does not know {txid}" for txid in sorted(missing))
                yield from (f"{name} left {txid} open" for txid, state in theirs.items() if state == "reserved")


def publications(places: Places, ended: set[str]) -> Iterator[str]:
    """What was sent without a commit, with other bytes than the committed ones, or in two versions.

    Args:
        places: Where things lie.
        ended: Digests of plans whose run has ended.
    """
    lines = crossed(places.home / "witness")
    committed = {name: _published(places.site(name) / "ledger.db") for name in places.sites}
    with Ledger(places.own, read_only=True) as ledger:
        fates = {charge.txid: charge.state for run in ledger.runs() for charge in ledger.charges(run)}
    sent: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        if not line.grant:  # a model: the same in every letter of its round, whichever process sent it
            if line.by == "coordinator":
                sent.setdefault((line.plan, f"the model of round {line.round}"), set()).add(line.sha256)
            continue
        txid, silo = Grant.parse(line.grant).txid, line.silo
        sent.setdefault((silo, txid), set()).add(line.sha256)
        if committed[silo].get(txid) != line.sha256:
            yield f"{silo}: {txid} was {line.way} by {line.by} with bytes that it had not committed"
        if line.way == "got" and fates.get(txid) != "committed" and line.plan in ended:
            yield f"coordinator: {txid} was used and is {fates.get(txid, 'unknown')}"
    yield from (f"{who}: {what} has {len(found)} versions" for (who, what), found in sent.items() if len(found) > 1)


def _published(place: Path) -> dict[str, str]:
    """What a silo's ledger says that it has released: SHA-256 by charge."""
    with Ledger(place, read_only=True) as ledger:
        told = [entry for entry in ledger.history() if entry.kind == "published"]
    return {entry.txid: entry.body["sha256"] for entry in told if entry.txid}


def arrived(places: Places, plan: str) -> dict[int, set[str]]:
    """Whose updates each round of a plan was made of: those that its last process got."""
    rounds: dict[int, tuple[str, set[str]]] = {}
    for line in crossed(places.home / "witness"):
        if line.by == "coordinator" and line.way == "got" and line.plan == plan:
            process, silos = rounds.get(line.round, ("", set()))
            rounds[line.round] = (line.process, (silos if process == line.process else set()) | {line.silo})
    return {number: silos for number, (_, silos) in rounds.items()}


@dataclass(frozen=True)
class Undisturbed:
    """The same plan with nothing killed, in one process, where silos are silent that were silent in the run.

    Args:
        places: Of the study.
        epsilon: What a silo may lose, as in the federation.
        delta: Likewise.
        present: Whose updates each round is made of; every silo's, where nothing is said.
    """

    places: Places
    epsilon: float
    delta: float
    present: Mapping[int, set[str]] = field(default_factory=dict)

    def model(self, overrides: tuple[str, ...]) -> tuple[bytes, list[dict[str, Any]]]:
        """The released model's file, and the claims."""
        with tempfile.TemporaryDirectory() as folder:
            return self._model(Path(folder), overrides)

    def _model(self, folder: Path, overrides: tuple[str, ...]) -> tuple[bytes, list[dict[str, Any]]]:
        key = self.places.key()
        experiment = read(self.places.file, overrides)
        population = load(experiment)
        plan = make_plan(experiment, population)
        with ExitStack() as stack:
            answering, keys = {}, {}
            for name in self.places.sites:
                account = Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, self.epsilon, self.delta, test=True)
                keys[name] = enrol(folder / name, account, coordinators=[key.public])
                silo = stack.enter_context(open_silo(folder / name))
                answering[name] = self._sometimes(name, Member(silo, folder / name).answer)
            told = Federation(experiment=experiment, post=Within(answering), key=key, silos=keys, wait=0.0)
            done = run(plan, population, "", folder / "runs", base=folder, federation=told)
        return (done.folder / "model.safetensors").read_bytes(), [said(claim) for claim in done.claims]

    def _sometimes(self, name: str, answering: Answering) -> Answering:
        def answer(letter: Letter) -> Letter:
            if letter.action == "train" and name not in self.present.get(letter.number("round"), self.places.sites):
                return Letter("silent")
            return answering(letter)

        return answer
