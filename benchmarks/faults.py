"""Kills in a federation of real processes: SIGKILL for a trainer, a node, a site, the server or the command.

    python benchmarks/faults.py [--kills 20] [--seed 0] [--json]

Four sites of the heart data and their coordinator, TLS and node keys on loopback, noise seeded. Each repetition is a
run of its own with one kill; three of four fall while a site has a message in hand, or soon after. `deploy up --local`
starts again what was killed; when all of it is back, the same command is given until it ends.

Then it is checked (`faults_checks.py`) that nothing left a process without being committed there, byte for byte, that
nothing left in two versions, that no ledger is over a limit, that all five agree, and that model and claims are those
of the same plan undisturbed: in one process, where silos are silent whose updates a kill has cost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from faults_checks import Places, Undisturbed, agreement, arrived, crossed, ledgers, publications
from federations import SORDINO, folders

from sordino.core.seeds import stream
from sordino.experiment.deploy import local
from sordino.experiment.site.member import said
from sordino.ledger import Ledger

SITES = ("cleveland", "hungary", "switzerland", "va-long-beach")
VICTIMS = ("trainer", "node", "site", "server", "command")
"""`site`: trainer and node at once, as a machine that fails. The server and its guard are one process."""

ROUNDS, TIMEOUT_S, TRIES, EPSILON, DELTA = 8, 90, 6, 1000.0, 1e-2
EXPERIMENT = f"""
name = "kills"
rounds = {ROUNDS}
ledger = "federation.db"
[budget]
epsilon = {EPSILON}
delta = {DELTA}
[simulation]
noise_seed = 1
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
    (home / "kills.toml").write_text(EXPERIMENT)
    (home / "witness").mkdir()
    return folders(home, SITES, f"epsilon = {EPSILON}\ndelta = {DELTA}\ntest = true\n")


def watched(home: Path) -> dict[str, str]:
    """The environment of processes that write down what they send and get."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent / "witness"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "SORDINO_WITNESS": str(home / "witness")}


def command(fed: Path, number: int) -> list[str]:
    """One run; its seed makes it a plan of its own."""
    options = ["--engine", "flower", "--federation", fed / "coordinator", "--timeout", TIMEOUT_S, "--json"]
    options += ["--runs", fed.parent / "runs", "--set", f"seed={number}"]
    return [*SORDINO, "run", str(fed.parent / "kills.toml"), *map(str, options)]


def back(fed: Path, patience_s: float = 240.0) -> float:
    """Wait until all that was killed runs again and every node is online; how long that took."""
    begun = time.monotonic()
    while time.monotonic() - begun < patience_s:
        status = local.status(fed)
        online = all(status.nodes.get(name) == "online" for name in SITES)
        if online and all(part.alive for part in status.parts):
            return round(time.monotonic() - begun, 1)
        time.sleep(0.5)
    raise SystemExit(f"not back after {patience_s:g} s: {local.status(fed).words}")


def victims(victim: str, site: str) -> list[str]:
    """The processes of a federation that are killed; none of them is the command."""
    return {"trainer": [f"{site} trainer"], "node": [f"{site} node"], "server": ["coordinator"]}.get(
        victim, [f"{site} node", f"{site} trainer"] if victim == "site" else []
    )


def moment(fed: Path, first: subprocess.Popen[bytes], site: str, random: np.random.Generator) -> str:
    """Wait for the moment of a kill; what it was, in words."""
    if random.random() < 0.25:
        time.sleep(after := float(random.uniform(1.0, 25.0)))
        return f"after {after:.1f} s"
    number, late, before = int(random.integers(ROUNDS)), float(random.uniform(0.0, 0.7)), time.time()
    while first.poll() is None:
        asked = [line for line in crossed(fed.parent / "witness") if line.by == site and line.at > before]
        if any(line.way == "got" and line.round >= number for line in asked):
            break
        time.sleep(0.02)
    time.sleep(late)
    return f"round {number + 1}, {late:.2f} s after the letter"


def repetition(fed: Path, number: int, victim: str, random: np.random.Generator) -> dict[str, Any]:
    """One run with one kill; how often the command had to be given, and what is wrong afterwards."""
    site = SITES[number % len(SITES)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": watched(fed.parent)}
    begun, tries = time.monotonic(), 1
    with subprocess.Popen(command(fed, number), **quiet) as first, ended(first):
        when = moment(fed, first, site, random)
        late = first.poll() is not None
        for name in victims(victim, site):
            local.kill(fed, name)
        if victim == "command":
            first.send_signal(signal.SIGKILL)
        words = [first.communicate()[1].decode()]
    code = first.returncode
    while code and tries < TRIES:
        tries += 1
        back(fed)
        done = subprocess.run(command(fed, number), **quiet, check=False)
        code, words = done.returncode, [*words, done.stderr.decode()]
    took = round(time.monotonic() - begun, 1)
    told = {"victim": victim, "site": site, "when": when, "too_late": late, "commands": tries, "seconds": took}
    told |= {"back_s": back(fed), "words": [line for text in words for line in text.splitlines()]}
    return told | {"problems": [] if code == 0 else ["it did not end"], **outcome(fed, number)}


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no command behind where the study is interrupted."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def outcome(fed: Path, number: int) -> dict[str, Any]:
    """What a run came to, against the same one undisturbed."""
    places = Places(fed.parent, SITES)
    plan = places.plan(f"seed={number}")
    folder = fed.parent / "runs" / f"kills-{plan.digest[:8]}"
    if not (folder / "summary.json").exists():
        return {}
    summary = json.loads((folder / "summary.json").read_text())
    present = arrived(places, plan.digest)
    lost = ROUNDS * len(SITES) - sum(map(len, present.values()))
    model, claims = Undisturbed(places, EPSILON, DELTA, present).model((f"seed={number}",))
    with Ledger(places.own, read_only=True) as ledger:
        same = [said(claim) for claim in ledger.claims(plan.run)] == claims
    alike = (folder / "model.safetensors").read_bytes() == model
    return {"updates_lost": lost, "away": summary["silos_away"], "same_model": alike, "same_claims": same}


def problems(fed: Path, runs: list[dict[str, Any]]) -> Iterator[str]:
    """What is wrong after all of them."""
    places = Places(fed.parent, SITES)
    plans = [places.plan(f"seed={number}") for number in range(len(runs))]
    away = {(plan.run, name) for plan, one in zip(plans, runs, strict=True) for name in one.get("away", ())}
    for number, one in enumerate(runs):
        yield from (f"seed={number}: {words}" for words in one["problems"])
        for name in ("same_model", "same_claims"):
            if one.get(name) is False:
                yield f"seed={number}: not the {name.partition('_')[2]} of the undisturbed run"
    yield from ledgers(places)
    yield from agreement(places, away)
    yield from publications(places, {plan.digest for plan, one in zip(plans, runs, strict=True) if "away" in one})


def study(kills: int, seed: int, home: Path) -> dict[str, Any]:
    """All repetitions, and the sums."""
    fed, random = federation(home), stream(seed, "kills")
    up = [*SORDINO, "deploy", "up", "--local", "--detach", fed, "--wait", "300"]
    subprocess.run(up, check=True, env=watched(home))
    runs: list[dict[str, Any]] = []
    try:
        for number in range(kills):
            runs.append(repetition(fed, number, VICTIMS[number % len(VICTIMS)], random))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
        keeper = (fed / "logs" / "keeper.log").read_text().splitlines()
    finally:
        subprocess.run([*SORDINO, "deploy", "down", fed], check=True)
    with Ledger(home / "federation.db", read_only=True) as ledger:
        states = Counter(charge.state for run in ledger.runs() for charge in ledger.charges(run))
    lines = crossed(home / "witness")
    counts = {"letters": len(lines), "updates_sent": sum(bool(line.grant) and line.way == "sent" for line in lines)}
    starts = sum(": start " in line for line in keeper)
    told = {"kills": kills, "rounds": dict(states), **counts, "started_again": starts}
    return {**told, "problems": [*problems(fed, runs)], "runs": runs}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="A new folder for all of it; left out, a temporary one.")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = wanted.keep or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        found = study(wanted.kills, wanted.seed, home)
    if wanted.json:
        print(json.dumps(found, indent=2))
        return
    for run in found["runs"]:
        print(f"{run['victim']:>8}, {run['when']}: {run['commands']} commands, {run['seconds']} s, {run}")
    print(f"rounds: {found['rounds']}; started again: {found['started_again']}")
    print(f"problems: {found['problems'] or 'none'}")


if __name__ == "__main__":
    main()
