"""Processes that are killed at every step of the protocol: the study `benchmarks/ledger_kills.py`, shortened."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from sordino.ledger import Ledger, charging

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def kills():
    path = Path(__file__).parents[3] / "benchmarks" / "ledger_kills.py"
    spec = importlib.util.spec_from_file_location("ledger_kills", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger_kills"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request):
    """A new ledger's place for each wave."""
    if request.param == "sqlite":
        return lambda folder: folder / "ledger.db"
    server = request.getfixturevalue("postgresql_server")
    return lambda _: server.fresh()


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_no_kill_overspends_or_publishes_what_was_not_committed(kills, place, tmp_path, count):
    """I1, I2, I3, I7: eight writers, twenty kills (one thousand in the benchmark): every invariant holds."""
    found = kills.study(count, tmp_path, place, seed=1)

    assert found.problems == []
    assert found.kills >= count
    assert found.releases > 0
    assert found.looks > 0


def twin(kills, tmp_path, step, **changes):
    """The problems of a broken product whose three writers are all killed at one step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kills, "STEPS", (step,))
        patch.setattr(kills, "MINED", 1.0)
        for name, value in changes.items():
            patch.setattr(Ledger, name, value)
        return kills.study(4, tmp_path, lambda folder: folder / "ledger.db", processes=3, seed=2).problems


def refunding(ledger, run):
    """Broken: what a crash left reserved is given back, as if nothing had been drawn."""
    with ledger._store.write() as db:
        for charge in ledger.charges(run):
            if charge.state == "reserved":
                charging.settle(db, charge.txid, run, "aborted", {})


def test_a_refund_after_the_draw_is_found(kills, tmp_path):
    """The study can fail: a crash between draw and commit would have cost nothing."""
    problems = twin(kills, tmp_path, "after draw", forfeit_open=refunding)
    assert any("drawn and not paid" in problem for problem in problems)


def test_a_second_draw_is_found(kills, tmp_path):
    """The study can fail: a product that draws a forfeited release again."""
    sound = Ledger.reserve

    def again(ledger, txid, *arguments):
        return sound(ledger, f"{txid}/again" if ledger.state(txid) else txid, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "charges", lambda *_: [])  # a coordinator that forgot what it had done
        problems = twin(kills, tmp_path, "after draw", reserve=again)
    assert any("drawn twice" in problem for problem in problems)


def test_bytes_drawn_anew_are_found(kills, tmp_path):
    """The study can fail: a restart that publishes other bytes than were committed."""
    sound = Ledger.artefact

    def other(ledger, txid):
        payload = sound(ledger, txid)
        return None if payload is None else payload[::-1]

    problems = twin(kills, tmp_path, "after commit", artefact=other)
    assert any("published and not committed" in problem for problem in problems)
