"""Processes that are killed at every step of the protocol: the study `benchmarks/ledger_kills.py`, shortened."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from sordino.ledger import Ledger, charging

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def study_of(name):
    path = Path(__file__).parents[3] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kills():
    return study_of("ledger_kills")


@pytest.fixture(scope="module")
def silos(kills):
    """Each run's silo keeps a ledger too."""
    assert sys.modules["ledger_kills"] is kills
    return study_of("ledger_kills_silos")


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


@pytest.mark.parametrize("count", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_no_kill_parts_the_ledgers_of_coordinator_and_silos(kills, silos, place, tmp_path, count):
    """A silo that draws and hands over, in the order of many machines: what it holds is found, and all else is lost."""
    found = kills.study(count, tmp_path, place, processes=2, seed=1, kind=silos.Silos)

    assert found.problems == []
    assert found.kills >= count
    assert found.releases > 0


def silo_twin(kills, silos, tmp_path, step, owner, **changes):
    """The problems of a broken product whose processes are all killed at one step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(silos.Silos, "steps", (step,))
        patch.setattr(kills, "MINED", 1.0)
        for name, value in changes.items():
            patch.setattr(owner, name, value)
        place = lambda folder: folder / "ledger.db"  # noqa: E731 - as short as it is
        return kills.study(3, tmp_path, place, processes=2, seed=2, kind=silos.Silos).problems


def test_a_silo_that_refunds_after_its_draw_is_found(kills, silos, tmp_path):
    """The study can fail: the silo gives back what was open, and the coordinator too."""
    problems = silo_twin(kills, silos, tmp_path, "after draw", Ledger, forfeit_open=refunding)
    assert any("drawn and not paid by its silo" in problem for problem in problems)


def test_other_bytes_than_the_silo_handed_over_are_found(kills, silos, tmp_path):
    """The study can fail: a restart that finds something else."""
    sound = Ledger.found

    def other(ledger, txid, artefact, *rest):
        return sound(ledger, txid, artefact[::-1], *rest)

    problems = silo_twin(kills, silos, tmp_path, "after hand-over", Ledger, found=other)
    assert any("not handed over by its silo" in problem for problem in problems)
