"""Every unit, place of noise, cohort sampling and mechanism: it runs end to end, or one line says why not."""

from __future__ import annotations

import itertools
import json

import pytest
from whole_runs import one_line, sordino

from sordino.ledger import verify

SAMPLERS = {
    "all": "{}",
    "round_robin": "{ size = 3 }",
    "buffered": "{ size = 3, per_client = 2, concurrency = 5 }",
    "poisson": "{ rate = 0.5 }",
    "truncated_poisson": "{ rate = 0.5, cap = 5 }",
    "fixed_size": "{ size = 3 }",
}
COMBINATIONS = list(
    itertools.product(("record", "user", "client"), ("silo", "sum", "coordinator"), SAMPLERS, ("gaussian", "laplace"))
)


def sound(unit: str, noise_at: str, sampler: str, mechanism: str) -> bool:
    """Which combinations have a guarantee that is worth something: the rules of the design, written anew."""
    everyone_sees_who = sampler in ("all", "round_robin", "buffered")
    if sampler == "buffered" and noise_at == "sum":  # a sum needs one model for all
        return False
    if unit != "client":
        return noise_at in ("silo", "sum") and everyone_sees_who and mechanism == "gaussian"
    if noise_at == "silo":
        return everyone_sees_who
    return noise_at == "coordinator" and (
        mechanism == "gaussian" or sampler in ("all", "round_robin", "buffered", "poisson")
    )


@pytest.mark.parametrize(("unit", "noise_at", "sampler", "mechanism"), COMBINATIONS)
def test_a_combination_runs_or_is_refused_with_one_line(table, capsys, unit, noise_at, sampler, mechanism):
    """
    A sound combination trains, claims an epsilon and leaves a ledger that verifies; any other leaves nothing.
    """
    terms = [
        f"privacy.unit={unit}",
        f"privacy.noise_at={noise_at}",
        f"privacy.mechanism={mechanism}",
        f"sampling.{sampler}={SAMPLERS[sampler]}",
        f"simulation.secure_sum={'true' if noise_at == 'sum' else 'false'}",
    ]
    if unit == "client":
        terms.append(f"stages=[{{ clip{'_l1' if mechanism == 'laplace' else ''} = {{ norm = 0.1 }} }}]")
    else:
        terms.append("local.clip=0.5")
    runs = table.parent / "runs"

    code, out, error = sordino(
        capsys, "run", table, "--runs", runs, "--json", *itertools.chain(*(("--set", term) for term in terms))
    )

    if not sound(unit, noise_at, sampler, mechanism):
        assert code == 2
        assert out == ""
        one_line(error)
        assert not runs.exists()
        return
    assert code == 0, error
    summary = json.loads(out)
    assert (summary["unit"], summary["noise_at"], summary["mechanism"]) == (unit, noise_at, mechanism)
    assert summary["epsilon"] > 0
    (folder,) = runs.iterdir()
    assert verify(folder / "ledger.db").ok
