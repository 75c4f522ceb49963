"""Kill a run again and again, at random moments, and audit what is left behind each time.

Every attempt is a process of its own (forked, so that no time is lost on imports) that dies by SIGKILL. It notes each
draw of noise in an append-only file before anyone can see it. After every kill:

    charged before drawn   every drawn release stands in the ledger
    drawn once             no release is drawn a second time, whatever happened in between
    bytes never change     the digest that was committed for a release stays what it was
    spent never falls      neither the ledger's balance nor the fate of a charge goes back
    verified               the ledger's history agrees with its balances
    published is committed the checkpoint holds no round whose release is not settled in the ledger

and after the last attempt of a run: its epsilon is that of an unbroken run, or more.

    python benchmarks/crash.py --kills 100 --json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.core import tables
from sordino.experiment import build as building
from sordino.experiment.books import LedgerBooks
from sordino.experiment.config import Experiment
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.render import plan_json
from sordino.experiment.run import run
from sordino.ledger import Ledger, verify
from sordino.privacy.noise import Floats, SystemNoise
from sordino.privacy.permits import Line, Permit, Reservation, mint_reservation

RECORDS = """
name = "crash"
rounds = 20
average = 0.5
data = { heart = {} }
model = { logistic = {} }
privacy = { unit = "record", noise_at = "silo", epsilon = 2.0, delta = 1e-5, silos_per_person = 1 }
local = { clip = 0.3, noise_walk = 0.9 }
sampling = { all = {} }
strategy = { fedavg = {} }
"""
CLIENTS = """
name = "crash"
rounds = 20
data = { heart = {} }
partition = { iid = { clients = 60 } }
model = { logistic = {} }
privacy = { unit = "client", noise_at = "coordinator", epsilon = 8.0, delta = 1e-5 }
stages = [{ adaptive_clip = { norm = 0.1 } }]
local = { lr = 1.0 }
sampling = { poisson = { rate = 0.5 } }
strategy = { momentum = { lr = 1.0 } }
"""


UNBROKEN = 1_000_000
"""Seeds from here on are those of runs that nobody kills, to learn how long one takes."""


class Watched(SystemNoise):
    """The system's noise, with a line in an append-only file for every draw."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log

    def normal(self, permit: Permit, std: float, size: int) -> Floats:
        drawn = super().normal(permit, std, size)
        if permit.txid.startswith("rehearsal/"):  # of the sensor at the start: on made-up records, on nobody's account
            return drawn
        line = f"{permit.txid} {permit.serial} {hashlib.sha256(drawn.tobytes()).hexdigest()}\n"
        with self.log.open("a", encoding="utf-8") as file:
            file.write(line)
        return drawn


class Redrawing(LedgerBooks):
    """A broken twin: what was reserved when the run died is simply drawn again. For the study's own test."""

    def earlier(self, txid: str) -> bytes | bool | None:
        found = super().earlier(txid)
        return None if found is True else found

    def reserve(self, txid: str, round: int, lines: list[Line]) -> Reservation | None:  # noqa: A002 - the noun
        if self.ledger.state(txid) == "forfeited":
            return mint_reservation(txid, lines, test=False)
        return super().reserve(txid, round, lines)

    def commit(self, reservation: Reservation | None, artefact: bytes) -> None:
        if reservation is not None and self.ledger.state(reservation.txid) != "forfeited":
            super().commit(reservation, artefact)

    def published(self, txid: str) -> None:
        if self.ledger.state(txid) != "forfeited":
            super().published(txid)


@dataclass
class Case:
    """One run that is killed until it ends, and everything that was seen of it from outside."""

    plan: Plan
    population: Population
    runs: Path
    twin: bool = False
    digests: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self.runs / f"{self.plan.experiment.name}-{self.plan.digest[:8]}")

    @property
    def drawn(self) -> Path:
        """The append-only file of draws."""
        return self.runs / f"{self.plan.digest[:8]}.drawn"

    def attempt(self, delay_s: float | None) -> bool:
        """Run in a child until it ends or is killed after `delay_s`. True if it was killed."""
        child = os.fork()
        if child == 0:
            self._child()
        if delay_s is not None:
            time.sleep(delay_s)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return True
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"an attempt failed; see {self.runs / 'errors.log'}")
        return False

    def _child(self) -> None:
        code = 1
        try:
            setattr(building, "source_of", lambda _: Watched(self.drawn))  # noqa: B010 - a double for this process
            if self.twin:
                from sordino.experiment import books

                books.LedgerBooks = Redrawing  # type: ignore[misc]
            run(self.plan, self.population, "", self.runs)
            code = 0
        except BaseException:  # noqa: BLE001 - the parent must hear of it, whatever it is
            import traceback

            (self.runs / "errors.log").write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(code)

    def audit(self) -> list[str]:
        """What is wrong with what the last attempt left behind."""
        if not self.folder.ledger.exists():
            return ["drawn without a ledger"] if self.drawn.exists() else []
        if self._unmade():
            return []
        report = verify(self.folder.ledger)
        problems = [f"verify: {problem}" for problem in report.problems]
        with Ledger(self.folder.ledger, read_only=True) as ledger:
            states = {c.txid: c.state for run_ in ledger.runs() for c in ledger.charges(run_)}
            digests = _digests(ledger)
            used = {a.name: ledger.balance(a.name).epsilon_used for a in ledger.accounts()}
        problems += self._draws(states)
        problems += self._memory(states, digests, used)
        problems += self._checkpoint(states)
        return problems

    def _unmade(self) -> bool:
        """Whether the kill hit the making of the ledger's file: then nothing can have been charged, or drawn."""
        with closing(sqlite3.connect(self.folder.ledger)) as db:
            tables_ = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return tables_ == 0 and not self.drawn.exists()

    def _draws(self, states: dict[str, str]) -> list[str]:
        if not self.drawn.exists():
            return []
        draws = [line.split() for line in self.drawn.read_text(encoding="utf-8").splitlines()]
        twice = [key for key, n in Counter((txid, serial) for txid, serial, _ in draws).items() if n > 1]
        same = [noise for noise, n in Counter(noise for _, _, noise in draws).items() if n > 1]
        return (
            [f"drawn twice: {key}" for key in twice]
            + [f"the same noise twice: {noise[:16]}" for noise in same]
            + [f"drawn but not charged: {txid}" for txid in {txid for txid, _, _ in draws} - set(states)]
        )

    def _memory(self, states: dict[str, str], digests: dict[str, str], used: dict[str, float]) -> list[str]:
        problems = [f"bytes changed: {t}" for t, d in self.digests.items() if digests.get(t) != d]
        problems += [
            f"fate changed: {t} was {s} and is {states.get(t)}"
            for t, s in self.states.items()
            if states.get(t) != s and not (s == "reserved" and states.get(t) in ("committed", "forfeited"))
        ]
        problems += [f"spent fell: {a}" for a, e in self.used.items() if used.get(a, 0.0) < e]
        self.digests, self.states, self.used = digests, states, used
        return problems

    def _checkpoint(self, states: dict[str, str]) -> list[str]:
        state = self.folder.load()
        settled = sum(s in ("committed", "forfeited") for s in states.values())
        return [] if state is None or state.round <= settled else ["published more than is settled"]

    def ended(self) -> list[str]:
        """What is wrong with the finished run's claim."""
        summary = self.folder.read("summary.json")
        with Ledger(self.folder.ledger, read_only=True) as ledger:
            claims = [claim for run_ in ledger.runs() for claim in ledger.claims(run_)]
        problems = [] if summary["epsilon"] >= self.plan.epsilon else ["the summary claims less than an unbroken run"]
        if max(claim.epsilon for claim in claims) < self.plan.epsilon:
            problems.append("the ledger claims less than an unbroken run")
        if not all(claim.complete for claim in claims):
            problems.append("not every planned release was charged")
        return problems


def _digests(ledger: Ledger) -> dict[str, str]:
    """The digest of every committed release, from the history."""
    entries = [entry for entry in ledger.history() if entry.kind == "committed"]
    return {str(entry.txid): str(entry.body["sha256"]) for entry in entries}


def cases(runs: Path, *, rounds: int | None = None, twin: bool = False) -> Callable[[int], Case]:
    """The n-th run of the study: records at silos and clients at a coordinator in turn, each with its own seed."""

    def case(number: int) -> Case:
        table = tomllib.loads((RECORDS, CLIENTS)[number % 2]) | {"seed": number}
        experiment = tables.build(Experiment, table | ({"rounds": rounds} if rounds else {}), "crash")
        population = load(experiment)
        plan = make_plan(experiment, population)
        plan_json(plan)  # prices the table here once, so that no attempt has to
        return Case(plan, population, runs, twin)

    return case


def study(kills: int, runs: Path, *, seed: int = 0, rounds: int | None = None, twin: bool = False) -> dict[str, Any]:
    """Kill until `kills` processes have died, audit after each, and finish every run that was begun."""
    moments, case_of = random.Random(seed), cases(runs, rounds=rounds, twin=twin)
    problems: list[str] = []
    fates: Counter[str] = Counter()
    died = finished = attempts = 0
    whole = _unbroken_s(case_of(UNBROKEN), case_of(UNBROKEN + 1))
    while died < kills:
        case = case_of(finished)
        while True:
            attempts += 1
            killed = case.attempt(moments.uniform(0.0, whole) if died < kills else None)
            died += killed
            problems += case.audit()
            if killed:
                fates[_fate(case)] += 1
                continue
            problems += case.ended()
            finished += 1
            break
    return {
        "kills": died,
        "runs": finished,
        "attempts": attempts,
        "unbroken_run_s": round(whole, 3),
        "killed": dict(fates),
        "problems": problems,
        "ok": not problems,
    }


def _unbroken_s(*examples: Case) -> float:
    shortest = float("inf")
    for case in examples:
        building.build(case.plan, case.population)  # imports torch here, so that no attempt has to
        begun = time.monotonic()
        case.attempt(None)
        shortest = min(shortest, time.monotonic() - begun)
    return shortest


def _fate(case: Case) -> str:
    """What the kill interrupted, as far as the ledger shows."""
    states = Counter(case.states.values())
    if not states:
        return "before the first charge"
    if states["reserved"]:
        return "between charge and commit"
    done = sum(states.values())
    if done == case.plan.experiment.count:
        return "after the last commit"
    return "between two rounds, or before publishing"


def main(arguments: list[str] | None = None) -> None:
    """Print the study, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="Of the moments of the kills.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = study(options.kills, Path(folder), seed=options.seed)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['kills']} kills of {found['runs']} runs: {'all checks hold' if found['ok'] else 'PROBLEMS'}")
        for what, count in found["killed"].items():
            print(f"  {count:>4} {what}")
        for problem in found["problems"]:
            print(f"  {problem}")
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
