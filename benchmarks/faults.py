"""Kills in a federation of real processes: SIGKILL for a trainer, a node, the server or the command, at random moments.

    python benchmarks/faults.py [--kills 8] [--seed 0] [--json]

Four sites of the heart data and their coordinator, TLS and node keys on loopback. Each repetition is a run of its own;
what was killed starts again, and the same command is given until it ends. Then all five ledgers are verified and
compared: nothing may be over a limit, released without a commit, or told of otherwise elsewhere.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sordino.core.seeds import stream
from sordino.experiment.deploy import local
from sordino.ledger import Ledger, verify
from sordino.ledger.keys import SigningKey
from sordino.ledger.witnesses import read as seen_by

SITES = ("cleveland", "hungary", "switzerland", "va-long-beach")
VICTIMS = ("trainer", "node", "server", "command")
SORDINO = [sys.executable, "-m", "sordino.cli"]
ROUNDS, TIMEOUT_S, TRIES = 5, 30, 5
EXPERIMENT = f"""
name = "kills"
rounds = {ROUNDS}
ledger = "federation.db"
[budget]
epsilon = 1000.0
delta = 1e-2
[data.heart]
[model.logistic]
[privacy]
epsilon = 1.0
delta = 1e-5
silos_per_person = 1
[local]
clip = 0.3
noise_walk = 0.9
[strategy.fedavg]
"""


def federation(home: Path) -> Path:
    """A federation's folders, with ports that are free."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 + len(SITES))]
    port, inside, *ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    sites = "".join(
        f"[sites.{name}]\nepsilon = 1000\ndelta = 1e-2\nport = {number}\n"
        for name, number in zip(SITES, ports, strict=True)
    )
    (home / "federation.toml").write_text(f"[coordinator]\nport = {port}\ninside = {inside}\n{sites}")
    (home / "kills.toml").write_text(EXPERIMENT)
    subprocess.run([*SORDINO, "deploy", "init", home / "fed", "--config", home / "federation.toml"], check=True)
    return home / "fed"


def command(fed: Path, number: int) -> list[str]:
    """One run; its seed makes it a plan of its own."""
    options = ["--engine", "flower", "--federation", fed / "coordinator", "--timeout", TIMEOUT_S, "--json"]
    options += ["--runs", fed.parent / "runs", "--set", f"seed={number}"]
    return [*SORDINO, "run", str(fed.parent / "kills.toml"), *map(str, options)]


def revive(fed: Path) -> None:
    """Start what has ended, as a service manager does: Flower refuses a node while the last one may still live."""
    for _ in range(6):
        ended = [part.name for part in local.parts(fed) if not part.alive]
        for name in ended:
            local.again(fed, name)
        if not ended:
            return
        time.sleep(20)


def repetition(fed: Path, number: int, victim: str, after: float) -> dict[str, Any]:
    """One run with one kill; how often the command had to be given, and what is wrong afterwards."""
    site = SITES[number % len(SITES)]
    name = {"trainer": f"{site} trainer", "node": f"{site} node", "server": "coordinator"}.get(victim, "")
    tries, quiet, begun = 1, {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}, time.monotonic()
    with subprocess.Popen(command(fed, number), **quiet) as first:
        time.sleep(after)
        ended = first.poll() is not None
        if name:
            local.again(fed, name)
        else:
            first.kill()
        words = [first.communicate()[1].decode()]
    code = first.returncode
    while code and tries < TRIES:
        tries += 1
        revive(fed)
        done = subprocess.run(command(fed, number), **quiet, check=False)
        code, words = done.returncode, [*words, done.stderr.decode()]
    problems = [] if code == 0 else [f"did not end: {words[-1].strip()}"]
    took = round(time.monotonic() - begun, 1)
    return {"victim": victim, "after_s": round(after, 1), "too_late": ended, "commands": tries, "seconds": took} | {
        "problems": problems + wrong(fed, f"seed={number}")
    }


def wrong(fed: Path, which: str) -> list[str]:
    """What the ledgers say against each other, themselves, or a limit."""
    own, folders = fed.parent / "federation.db", {name: fed / "sites" / name for name in SITES}
    keys = [SigningKey.load(folder / "key.pem").public for folder in folders.values()]
    notes = [note for folder in folders.values() for note in seen_by(folder / "witness.jsonl")]
    owner = SigningKey.load(fed / "coordinator" / "coordinator.pem").public
    found = list(verify(own, keys=[owner], silos=keys, witnesses=notes).problems)
    with Ledger(own, read_only=True) as ledger:
        runs = ledger.runs()
        mine = {(run, claim.account): claim for run in runs for claim in ledger.claims(run)}
        fates = {charge.txid: charge.state for run in runs for charge in ledger.charges(run)}
    gone = away(fed)
    for name, folder in folders.items():
        found += verify(folder / "ledger.db").problems
        with Ledger(folder / "ledger.db", read_only=True) as ledger:
            if ledger.balance(name).epsilon_left < 0:
                found.append(f"{name} is over its limit")
            for run in ledger.runs():
                for claim in ledger.claims(run):
                    other = mine.get((run, name))
                    alike = other is not None and (claim.epsilon, claim.events) == (other.epsilon, other.events)
                    if not alike and (run[:14], name) not in gone:
                        found.append(f"{name} and the coordinator differ on {run}")
                found += [f"{c.txid} is unknown to the coordinator" for c in ledger.charges(run) if c.txid not in fates]
    return [f"{which}: {problem}" for problem in found]


def away(fed: Path) -> set[tuple[str, str]]:
    """Which sites a run ended without, as its summary says: their ledgers have less than the coordinator charged."""
    found = set()
    for file in (fed.parent / "runs").glob("*/summary.json"):
        found |= {(file.parent.name, name) for name in json.loads(file.read_text())["silos_away"]}
    return found


def study(kills: int, seed: int, home: Path) -> dict[str, Any]:
    """All repetitions, and the sums."""
    fed, random = federation(home), stream(seed, "kills")
    subprocess.run([*SORDINO, "deploy", "up", "--local", "--detach", fed, "--wait", "300"], check=True)
    try:
        runs = [
            repetition(fed, number, VICTIMS[number % len(VICTIMS)], float(random.uniform(3.0, 30.0)))
            for number in range(kills)
        ]
    finally:
        subprocess.run([*SORDINO, "deploy", "down", fed], check=True)
    with Ledger(home / "federation.db", read_only=True) as ledger:
        states = Counter(charge.state for run in ledger.runs() for charge in ledger.charges(run))
    problems = [problem for run in runs for problem in run["problems"]]
    without = len(away(fed))
    return {"kills": kills, "rounds": dict(states), "ended_without": without, "problems": problems, "runs": runs}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        found = study(wanted.kills, wanted.seed, Path(home))
    if wanted.json:
        print(json.dumps(found, indent=2))
        return
    for run in found["runs"]:
        print(f"{run['victim']:>8} after {run['after_s']:>4} s: {run['commands']} commands, {run['seconds']} s")
    print(f"rounds: {found['rounds']}; sites away at the end: {found['ended_without']}")
    print(f"problems: {found['problems'] or 'none'}")


if __name__ == "__main__":
    main()
