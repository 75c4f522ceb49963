"""Processes that are killed at random points while they reserve, draw, commit and publish against one account."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
from collections import Counter

import pytest
from sqlalchemy import event

from sordino.core.errors import BudgetRefused
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, history, transaction, verify
from sordino.privacy import accounting, events
from sordino.privacy.noise import SystemNoise
from sordino.privacy.permits import Line

STEP = events.gaussian(4.0)
KEY = events.key(STEP)
ROUNDS = 8
DELTA = 1e-5


def write(path, line):
    """One append that a kill cannot tear."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


class Fate:
    """Kills its own process at a random point of its way."""

    def __init__(self, seed, share):
        self.random, self.share = random.Random(seed), share

    def point(self):
        if self.random.random() < self.share:
            os.kill(os.getpid(), signal.SIGKILL)


def publish(ledger, folder, txid, fate):
    payload = ledger.artefact(txid)
    if payload is not None:
        write(folder / "published", f"{txid} {hashlib.sha256(payload).hexdigest()}")
        fate.point()
        ledger.published(txid)


def coordinate(folder, run, seed, share):
    """One life of a coordinator: take the run over, settle what the last life left, go on."""
    fate = Fate(seed, share)
    append = history.append

    def torn(*arguments):
        fate.point()  # inside a transaction, before its first row
        answer = append(*arguments)
        fate.point()  # and after it
        return answer

    history.append = torn
    ledger = Ledger(folder / "ledger.db")
    event.listen(ledger._store.engine, "commit", lambda _: fate.point())
    ledger.open_run(run)
    ledger.forfeit_open(run)
    for charge in ledger.charges(run):
        publish(ledger, folder, charge.txid, fate)
    for number in range(len(ledger.charges(run)), ROUNDS):
        txid = transaction(run, number, "train", "digest")
        lines = [Line(name, Unit.RECORD, KEY, 1) for name in ("pool", run)]
        try:
            reservation = ledger.reserve(txid, run, number, "train", lines)
        except BudgetRefused:
            return
        fate.point()
        noise = SystemNoise().normal(reservation.take(["pool", run], KEY), 1.0, 2)
        write(folder / "drawn", txid)
        fate.point()
        ledger.commit(reservation, noise.tobytes())
        fate.point()
        publish(ledger, folder, txid, fate)


def live(folder, processes, seed):
    """Restart every killed coordinator until all are done. Returns how many were killed."""
    context = multiprocessing.get_context("fork")
    dice, killed, waiting = random.Random(seed), 0, [f"run{n}" for n in range(processes)]
    while waiting:
        started = {run: context.Process(target=coordinate, args=(folder, run, dice.random(), 0.05)) for run in waiting}
        for process in started.values():
            process.start()
        for process in started.values():
            process.join(60)
        codes = {run: process.exitcode for run, process in started.items()}
        assert set(codes.values()) <= {0, -signal.SIGKILL}
        waiting = [run for run, code in codes.items() if code]
        killed += len(waiting)
    return killed


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("processes", "seed"), [(4, 1), *(pytest.param(8, seed, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_no_kill_overspends_or_publishes_what_was_not_committed(tmp_path, processes, seed):
    """I1, I2, I3, I7: published ⊆ committed with one digest per charge; no charge is drawn twice; whatever was
    drawn is charged; no limit is broken; the file agrees with itself.
    """
    cost = accounting.rdp_units(STEP, 8.0, Adjacency.ADD_REMOVE)
    room = accounting.rdp_to_epsilon(0.75 * processes * ROUNDS * cost, 8.0, DELTA)
    with Ledger(tmp_path / "ledger.db") as ledger:
        shared = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "delta": DELTA}
        ledger.open_account(Account("pool", epsilon=room, currency="rdp", order=8.0, **shared))
        for n in range(processes):
            ledger.open_account(Account(f"run{n}", epsilon=8.0, **shared))
            ledger.admit(f"run{n}", "digest", {f"run{n}": [(STEP, ROUNDS)]}, DELTA, noise_at="silo")

    killed = live(tmp_path, processes, seed)
    assert killed > 0

    report = verify(tmp_path / "ledger.db")
    assert report.problems == ()
    published = {tuple(line.split()) for line in (tmp_path / "published").read_text().splitlines()}
    drawn = Counter((tmp_path / "drawn").read_text().splitlines())
    assert len(published) == len(dict(published))
    assert max(drawn.values()) == 1
    with Ledger(tmp_path / "ledger.db") as ledger:
        committed = {e.txid: e.body["sha256"] for e in ledger.history() if e.kind == "committed"}
        assert published <= set(committed.items())
        assert all(ledger.state(txid) in ("committed", "forfeited") for txid in drawn)
        balance = ledger.balance("pool")
        assert balance.held == 0
        assert len(drawn) <= balance.committed + balance.forfeited <= 0.75 * processes * ROUNDS
        assert accounting.rdp_to_epsilon(len(drawn) * cost, 8.0, DELTA) <= balance.epsilon_used + 1e-9
        assert balance.epsilon_used <= balance.epsilon_limit == room
