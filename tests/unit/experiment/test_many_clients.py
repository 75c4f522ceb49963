"""What is asked for each of very many clients is worked out once for all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sordino.core.types import Adjacency, Unit
from sordino.experiment.plan import make_plan
from sordino.federation.sampling.scheduled import RoundRobin
from sordino.ledger import Account, Ledger, blocks, verify


@pytest.fixture(scope="module")
def scale():
    """The benchmark, whose own folder is on the path as for any script."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
    try:
        import scale as module
    finally:
        sys.path.pop(0)
    return module


def test_a_schedule_is_read_once_for_all_accounts(scale, monkeypatch):
    """Once per client, it would take the square of their number."""
    asked, read = [], RoundRobin.participations
    monkeypatch.setattr(RoundRobin, "participations", lambda *given: asked.append(given) or read(*given))
    case = scale.Case(500, 50, 7, "each")
    experiment = case.experiment()
    plan = make_plan(experiment, case.population(experiment), check_learning=False)
    assert len(plan.accounts) == 500
    assert len(asked) < 5


def test_opening_accounts_looks_at_blocks_only(tmp_path, monkeypatch):
    """So does verifying them; every account looked at each other one before."""
    looked, windows = [], blocks._windows
    monkeypatch.setattr(blocks, "_windows", lambda given: looked.extend(found := list(given)) or windows(found))
    terms = {"unit": Unit.CLIENT, "adjacency": Adjacency.REPLACE_ONE, "epsilon": 1.0, "delta": 1e-5}
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open_accounts([Account(f"c{number}", **terms) for number in range(100)])
    assert verify(tmp_path / "ledger.db").ok
    assert not looked


def test_made_up_clients_learn_in_a_real_run(scale, tmp_path):
    """The study of docs/explanation/scale.md, small: real plan, ledger and loop; one account a client pays its line."""
    found = scale.Case(200, 20, 2, "each").measure(tmp_path)
    assert found["ledger_lines_per_round"] == 20
    assert found["epsilon"] <= 4.0
    assert found["model_bytes_per_client"] == 84
    assert min(found["learnt"]) > 0.2  # the two features that matter, of a vector of length 1
