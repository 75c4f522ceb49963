"""Kill writers of a ledger at every step of the protocol, and audit what is left behind.

Eight processes spend one account together, each for a run of its own. Most carry a mine: they die by SIGKILL at the
step that chance chose for them. The others are shot from outside, at any moment. A run whose process died is taken over
by a new process, which forfeits what it finds reserved, publishes what it finds committed, and goes on.

    take over → reserve → draw → commit → publish → note it        (before, in, and after each)

Each process notes a draw, and what it publishes, in append-only files, before anything else can happen. A watcher
compares balances with limits all the time, and when the last process of a wave has ended:

    never overspent          spent + held ≤ limit, at every look and at the end
    charged before drawn     every draw stands in the ledger, and counts as spent
    drawn once               no release is drawn a second time
    published is committed   and its bytes are those whose digest was committed
    balances are the replay  `verify` agrees, and the owner's signatures cover the history

    python benchmarks/ledger_kills.py --kills 1000 --database sqlite
    python benchmarks/ledger_kills.py --kills 1000 --database postgresql
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

from sordino.core.errors import BudgetRefused
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, history, schema, transaction, verify
from sordino.ledger.keys import SigningKey
from sordino.ledger.stores import Place
from sordino.privacy import accounting, events
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line

STEP = events.gaussian(4.0)
KEY = events.key(STEP)
ORDER, DELTA = 8.0, 1e-5
ROUNDS = 8
SHARE = 0.75
"""Of the releases that the runs want, so many does their common account pay."""

OWNER, EVERY = SigningKey.generate("coordinator"), 10
MINED, DOOMED, SHOT_WITHIN_S = 0.7, 0.95, 0.5
"""Shares of lives that end by a mine, and by a mine or a shot; a shot comes in so many seconds."""

STEPS = (
    "in take-over",
    "before reserve",
    "in reserve",
    "after reserve",
    "after draw",
    "in commit",
    "after commit",
    "before publish",
    "after publish",
    "in noting it",
)


@dataclass(frozen=True)
class World:
    """Where one wave of processes works."""

    place: Place
    folder: Path
    processes: int

    def note(self, file: str, line: str) -> None:
        """One append that a kill cannot tear."""
        handle = os.open(self.folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, f"{line}\n".encode())
        os.close(handle)

    def notes(self, file: str) -> list[list[str]]:
        """What was noted."""
        path = self.folder / file
        return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def steps(self) -> tuple[str, ...]:
        """Where a process may die."""
        return STEPS

    def live(self, run: str, step: str | None, passes: int) -> None:
        """One life of a process."""
        coordinate(self, run, step, passes)

    def audit(self) -> Iterator[str]:
        """What else is wrong when all have ended."""
        yield from ()

    @property
    def runs(self) -> list[str]:
        """One run for each process."""
        return [f"run{n}" for n in range(self.processes)]

    def open(self) -> Ledger:
        """The ledger, signed every few events."""
        # A busy machine is no finding: whoever waits too long gives up, and its run is not taken over here.
        return Ledger(self.place, key=OWNER, checkpoint_every=EVERY, busy_s=300.0)

    def prepare(self) -> None:
        """One live account that all spend, which cannot pay for everything; a frozen plan for each run."""
        cost = accounting.rdp_units(STEP, ORDER, Adjacency.ADD_REMOVE)
        room = accounting.rdp_to_epsilon((int(SHARE * self.processes * ROUNDS) + 0.5) * cost, ORDER, DELTA)
        shared: dict[str, Any] = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": DELTA}
        with self.open() as ledger:
            ledger.open_account(Account("pool", epsilon=room, currency="rdp", order=ORDER, **shared))
            for run in self.runs:
                ledger.open_account(Account(run, epsilon=8.0, **shared))
                ledger.admit(run, "digest", {run: [(STEP, ROUNDS)]}, DELTA, noise_at="silo")  # type: ignore[arg-type]


@dataclass
class Mine:
    """Kills its own process at one step of the protocol, when it is reached for the n-th time; or never."""

    world: World
    step: str | None
    passes: int
    inside: str = "in take-over"

    def at(self, step: str) -> None:
        """A step of the protocol is reached."""
        if step == self.step:
            self.passes -= 1
            if self.passes == 0:
                self.world.note("mines", step)
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def within(self, step: str) -> Iterator[None]:
        """Transactions of this block belong to a step."""
        before, self.inside = self.inside, step
        yield
        self.inside = before

    def lay(self, ledger: Ledger) -> None:
        """Inside every transaction: before and after its event of the history, and just before COMMIT."""
        append = history.append

        def torn(*arguments: Any, **named: Any) -> str:
            self.at(self.inside)
            answer = append(*arguments, **named)
            self.at(self.inside)
            return answer

        history.append = torn
        event.listen(ledger._store.engine, "commit", lambda _: self.at(self.inside))  # noqa: SLF001 - the study's seam


def coordinate(world: World, run: str, step: str | None, passes: int) -> None:
    """One life of a coordinator: take the run over, settle what the last life left, go on."""
    mine = Mine(world, step, passes)
    ledger = world.open()
    mine.lay(ledger)
    ledger.open_run(run)
    ledger.forfeit_open(run)
    for charge in ledger.charges(run):
        publish(world, ledger, charge.txid, mine)
    for number in range(len(ledger.charges(run)), ROUNDS):
        txid = transaction(run, number, "train", "digest")
        mine.at("before reserve")
        try:
            with mine.within("in reserve"):
                lines = [Line(name, Unit.RECORD, KEY, 1) for name in ("pool", run)]
                reservation = ledger.reserve(txid, run, number, "train", lines)
        except BudgetRefused:
            break
        mine.at("after reserve")
        noise = SystemNoise().normal(reservation.take(["pool", run], KEY), 1.0, 2)
        world.note("drawn", txid)
        mine.at("after draw")
        with mine.within("in commit"):
            ledger.commit(reservation, noise.tobytes())
        mine.at("after commit")
        publish(world, ledger, txid, mine)
    ledger.close()


def publish(world: World, ledger: Ledger, txid: str, mine: Mine) -> None:
    """Send the committed bytes, if they are still there."""
    payload = ledger.artefact(txid)
    if payload is not None:
        mine.at("before publish")
        world.note("published", f"{txid} {hashlib.sha256(payload).hexdigest()}")
        mine.at("after publish")
        with mine.within("in noting it"):
            ledger.published(txid)


def watch(world: World) -> None:
    """Compare every balance with its limit, over and over, as another process sees it."""
    table = schema.account
    columns = (table.c.name, table.c.spent_units, table.c.held_units, table.c.limit_units)
    ledger = Ledger(world.place, read_only=True)
    while not (world.folder / "over").exists():
        with ledger._store.read() as db:  # noqa: SLF001 - the study looks at the rows
            rows = db.execute(select(*columns)).all()
        world.note("looks", str(len(rows)))
        for name, spent, held, limit in rows:
            if spent + held > limit:
                world.note("overspent", name)
        time.sleep(0.02)
    ledger.close()


@dataclass
class Found:
    """What the study saw."""

    kills: int = 0
    lives: int = 0
    releases: int = 0
    waves: int = 0
    looks: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass
class Life:
    """A running coordinator, and when it is shot, if it is."""

    process: BaseProcess
    shot_at: float | None


def born(world: World, run: str, dice: random.Random, *, doomed: bool) -> Life:
    """Start a coordinator whose end chance has chosen: a mine, a shot, or its last release."""
    fate = dice.random() if doomed else 1.0
    step = dice.choice(world.steps) if fate < MINED else None
    process = multiprocessing.get_context("fork").Process(target=world.live, args=(run, step, dice.randint(1, 4)))
    process.start()
    return Life(process, time.monotonic() + dice.uniform(0.0, SHOT_WITHIN_S) if MINED <= fate < DOOMED else None)


def wave(world: World, kills: int, dice: random.Random, found: Found) -> None:
    """Let every run end, killing up to `kills` processes on the way; then audit."""
    world.prepare()
    watcher = multiprocessing.get_context("fork").Process(target=watch, args=(world,))
    watcher.start()
    killed, living = 0, {run: born(world, run, dice, doomed=True) for run in world.runs}
    found.lives += len(living)
    while living:
        time.sleep(0.005)
        for run, life in list(living.items()):
            if life.shot_at is not None and time.monotonic() > life.shot_at:
                life.process.kill()  # our own child
                life.shot_at = None
            if life.process.exitcode is None:
                continue
            if life.process.exitcode == -signal.SIGKILL:
                killed += 1
                living[run] = born(world, run, dice, doomed=killed + len(living) <= kills)
                found.lives += 1
                continue
            found.problems += [] if life.process.exitcode == 0 else [f"{run} ended with {life.process.exitcode}"]
            del living[run]
    (world.folder / "over").touch()
    watcher.join(60)
    found.problems += [] if watcher.exitcode == 0 else [f"the watcher ended with {watcher.exitcode}"]
    mines = Counter(" ".join(words) for words in world.notes("mines"))
    found.steps += mines + Counter({"from outside, at any moment": killed - mines.total()})
    found.kills += killed
    found.waves += 1
    audit(world, found)


def audit(world: World, found: Found) -> None:
    """Compare the append-only files with the ledger, and the ledger with itself."""
    drawn = Counter(txid for (txid,) in world.notes("drawn"))
    published = {(txid, digest) for txid, digest in world.notes("published")}
    found.looks += len(world.notes("looks"))
    problems = [f"verify: {problem}" for problem in verify(world.place, keys=[OWNER.public]).problems]
    problems += [f"overspent: {' '.join(words)}" for words in world.notes("overspent")]
    problems += [f"drawn twice: {txid}" for txid, times in drawn.items() if times > 1]
    with Ledger(world.place, read_only=True) as ledger:
        committed = {(str(e.txid), e.body["sha256"]) for e in ledger.history() if e.kind == "committed"}
        states = {charge.txid: charge.state for run in world.runs for charge in ledger.charges(run)}
        pool = ledger.balance("pool")
    problems += [f"published and not committed: {txid}" for txid, _ in published - committed]
    problems += [f"drawn and not paid: {txid}" for txid in drawn if states.get(txid) not in ("committed", "forfeited")]
    if pool.held or len(drawn) > pool.committed + pool.forfeited:
        problems.append("the common account does not count every draw")
    if pool.epsilon_used > pool.epsilon_limit or pool.committed + pool.forfeited > SHARE * world.processes * ROUNDS:
        problems.append("the common account is overspent")
    problems += world.audit()
    found.releases += len(committed)
    found.states += Counter(states.values())
    found.problems += problems


def study(
    kills: int,
    folder: Path,
    place: Callable[[Path], Place],
    *,
    processes: int = 8,
    seed: int = 0,
    waves: Callable[[int], None] = lambda _: None,
    kind: type[World] = World,
) -> Found:
    """Waves of processes until so many have been killed.

    Args:
        kills: How many in all.
        folder: For notes, and files of ledgers.
        place: A new ledger's place for each wave.
        processes: Writers at a time.
        seed: Of the choices of chance.
        waves: Called with the kills so far, after every wave.
        kind: What they do.
    """
    dice, found = random.Random(seed), Found()
    while found.kills < kills and not found.problems:
        inside = folder / f"wave{found.waves}"
        inside.mkdir()
        wave(kind(place(inside), inside, processes), kills - found.kills, dice, found)
        waves(found.kills)
    return found


def main(arguments: list[str] | None = None, kind: type[World] = World) -> None:
    """Print the study, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    terms: dict[str, Any] = {"processes": options.processes, "seed": options.seed, "kind": kind}
    if not options.json:
        terms["waves"] = lambda kills: print(f"{kills} of {options.kills} kills", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name:
        if options.database == "sqlite":
            found = study(options.kills, Path(name), lambda inside: inside / "ledger.db", **terms)
        else:
            from private_postgresql import server

            with server() as database:
                found = study(options.kills, Path(name), lambda _: database.fresh(), **terms)
    figures = {
        "database": options.database,
        "kind": kind.__name__,
        "processes": options.processes,
        "kills": found.kills,
        "at": {step: found.steps[step] for step in sorted(found.steps)},
        "lives": found.lives,
        "waves": found.waves,
        "releases": found.releases,
        "charges": dict(found.states),
        "looks_at_balances": found.looks,
        "wall_s": round(time.monotonic() - begun, 1),
        "problems": found.problems,
        "ok": not found.problems,
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        said = "all invariants hold" if not found.problems else "PROBLEMS"
        print(f"{options.database}: {found.kills} kills of {found.lives} processes: {said}")
        for step, count in figures["at"].items():
            print(f"  {count:>5} {step}")
        print(f"  {found.releases} releases committed; charges {dict(found.states)}; {found.looks} looks at balances")
        for problem in found.problems:
            print(f"  {problem}")
    sys.exit(0 if not found.problems else 1)


if __name__ == "__main__":
    main()
