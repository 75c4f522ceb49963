"""The noise, the bound and the divisor of whole runs are those of the plan; broken twins of the code fail each check.

Noise is seeded, so that a run can be repeated with other noise on the same data; everything is then marked TEST.
Each statistical check gives a false alarm on a sound run with probability below 2e-6 per call; with fixed seeds it
either always passes or never.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from whole_runs import model, planned, ran

from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.pipeline import Pipeline
from sordino.local.clipping import Clipped
from sordino.local.clipping.auto import Auto
from sordino.privacy.kernel import certify

ALARM = 1e-6
SEEDS = range(10)
CLIENTS = (
    "privacy.unit=client",
    "privacy.noise_at=coordinator",
    "privacy.epsilon=8.0",
    "partition={ iid = { clients = 20 } }",
    "stages=[{ clip = { norm = 0.1 } }]",
    "local={ lr = 1.0 }",
)


def repeated(file: Path, *overrides: str, seeds: Iterable[int] = SEEDS) -> np.ndarray[Any, Any]:
    """Models of one round of the same experiment under different noise, shape (seeds, d)."""
    own = ("rounds=1", *overrides)
    return np.stack([model(ran(file, *own, f"simulation.noise_seed={seed}")) for seed in seeds])


def noise_is_as_planned(models: np.ndarray[Any, Any], std: float) -> bool:
    """Whether models scatter like independent N(0, std²): in all, and in every coordinate."""
    n, d = models.shape
    rest = (models - models.mean(axis=0)) / std
    squares = (rest**2).sum(axis=0)
    whole = _two_sided(stats.chi2(d * (n - 1)).cdf(squares.sum()))
    each = min(_two_sided(p) for p in stats.chi2(n - 1).cdf(squares)) * d
    return bool(min(whole, each) > ALARM)


def _two_sided(p: float) -> float:
    return 2 * min(p, 1 - p)


def silo_std(file: Path) -> float:
    """Noise of one round's model, computed anew from the plan's public numbers."""
    plan, population = planned(file, "rounds=1")
    local = plan.experiment.local
    parts = [
        weight * local.step_size * account.noise_multiplier * local.clip / units
        for weight, account, units in zip(plan.weights, plan.accounts, population.units, strict=True)
    ]
    return float(np.linalg.norm(parts))


def client_std(file: Path) -> float:
    """The same for clients at the coordinator: clip 0.1, 20 clients."""
    plan, _ = planned(file, "rounds=1", *CLIENTS)
    return plan.accounts[0].noise_multiplier * 0.1 / 20


def test_records_at_silos_get_the_planned_noise(heart):
    """
    The model of a round scatters as the plan's noise multipliers, weights and divisors say.
    """
    assert noise_is_as_planned(repeated(heart), silo_std(heart))


def test_clients_at_the_coordinator_get_the_planned_noise(heart):
    """
    The same for whole clients.
    """
    assert noise_is_as_planned(repeated(heart, *CLIENTS), client_std(heart))


def halved(monkeypatch):
    """The noise has half its scale."""
    sound = Gaussian.scale
    monkeypatch.setattr(Gaussian, "scale", lambda self, l2, l1: sound(self, l2, l1) / 2)


def clamped(monkeypatch):
    """Noise is kept within one standard deviation."""
    sound = Gaussian.draw

    def draw(self, source, permit, scale, size):
        return np.clip(sound(self, source, permit, scale, size), -scale, scale)

    monkeypatch.setattr(Gaussian, "draw", draw)


def one_tensor_left_out(monkeypatch):
    """One parameter of the model gets no noise."""
    sound = Gaussian.draw

    def draw(self, source, permit, scale, size):
        noise = sound(self, source, permit, scale, size)
        noise[-1] = 0.0
        return noise

    monkeypatch.setattr(Gaussian, "draw", draw)


@pytest.mark.parametrize("break_it", [halved, clamped, one_tensor_left_out])
@pytest.mark.parametrize("setting", ["records", "clients"])
def test_broken_noise_is_found(heart, monkeypatch, unwatched, break_it, setting):
    """
    Negative controls: each broken twin of the noise fails the check that the sound code passes.
    """
    std, own = (silo_std(heart), ()) if setting == "records" else (client_std(heart), CLIENTS)
    break_it(monkeypatch)

    assert not noise_is_as_planned(repeated(heart, *own), std)


RATE = 12.5 / 32
"""Two silos of 16 training records: 12.5 records are expected in the two batches together."""


@pytest.fixture
def alike(tmp_path: Path) -> Path:
    """Two silos of 20 equal records: every clipped gradient is the same vector of length 0.1."""
    rows = "".join(f"0.5,1,h{i % 2}\n" for i in range(40))
    (tmp_path / "alike.csv").write_text(f"a,ill,hospital\n{rows}", encoding="utf-8")
    file = tmp_path / "alike.toml"
    file.write_text(
        f"""
name = "alike"
rounds = 1
weights = "uniform"
[data.table]
path = '{tmp_path / "alike.csv"}'
label = "ill"
client = "hospital"
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
noise_multiplier = 0.05
silos_per_person = 1
[local]
lr = 1.0
clip = 0.1
batch = {RATE}
[strategy.fedavg]
""",
        encoding="utf-8",
    )
    return file


def batches_are_whole_numbers(models: np.ndarray[Any, Any]) -> bool:
    """Whether the released means, times the public divisor, count whole records; and not always the same number."""
    counts = np.linalg.norm(models, axis=1) * 12.5 / 0.1
    return bool(np.abs(counts - np.rint(counts)).mean() < 0.2 and len(set(np.rint(counts))) > 1)


def test_means_are_divided_by_a_public_constant(alike):
    """
    With equal records and little noise, a mean times the expected batch is the number of records in the batch.
    """
    assert batches_are_whole_numbers(repeated(alike, seeds=range(3)))


def test_a_realised_denominator_is_found(alike, monkeypatch, unwatched):
    """
    Negative control: divided by the batch that was drawn, the mean no longer depends on who was in it.
    """
    sound = Auto.clipped_sum

    def realised(self, model, loss, batch, *terms):
        clipped = sound(self, model, loss, batch, *terms)
        return Clipped(clipped.total.scaled(12.5 / 2 / max(1, len(batch[1]))), clipped.nonfinite)

    monkeypatch.setattr(Auto, "clipped_sum", realised)

    assert not batches_are_whole_numbers(repeated(alike, seeds=range(3)))


CLIENTS_ALIKE = (
    "privacy={ unit = 'client', noise_at = 'coordinator', noise_multiplier = 0.05 }",
    "partition={ iid = { clients = 20 } }",
    "stages=[{ clip = { norm = 0.1 } }]",
    "local={ lr = 10.0 }",
    "sampling={ poisson = { rate = 0.625 } }",
)
"""20 clients of two equal records, all longer than the clip: 12.5 clients are expected in a cohort."""


def test_updates_are_divided_by_a_public_constant(alike):
    """
    The same for whole clients: the divisor is the expected cohort.
    """
    assert batches_are_whole_numbers(repeated(alike, *CLIENTS_ALIKE, seeds=range(3)))


def test_a_realised_cohort_is_found(alike, monkeypatch, unwatched):
    """
    Negative control: divided by the cohort that was drawn.
    """
    sound = Pipeline.total

    def realised(self, updates, plan, size, unit):
        updates = list(updates)
        return sound(self, iter(updates), plan, size, unit).scaled(plan.expected / max(1, len(updates)))

    monkeypatch.setattr(Pipeline, "total", realised)

    assert not batches_are_whole_numbers(repeated(alike, *CLIENTS_ALIKE, seeds=range(3)))


def one_record_moves(table: Path) -> float:
    """How far the released model moves when one record becomes extreme, in units of what one record may do."""
    terms = ("rounds=1", "privacy.noise_multiplier=0.01", "local.clip=0.1", "weights=uniform", "data.table.ranges={}")
    patients = table.parent / "patients.csv"
    lines, moved = patients.read_text(encoding="utf-8").splitlines(), []
    for feature in ("0.5", "1e6"):
        lines[7] = ",".join([feature, *lines[7].split(",")[1:]])  # a record of hospital h0 that is not held out
        patients.write_text("\n".join(lines) + "\n", encoding="utf-8")
        runs = table.parent / f"runs-{feature}"
        moved.append(model(ran(table, *terms, "local.lr=1.0", "simulation.noise_seed=1", runs=runs)))
    units = planned(table, *terms)[1].units[0]
    return float(np.linalg.norm(moved[0] - moved[1]) / (2 * 0.1 / units / 6))


def test_one_record_moves_a_silos_mean_by_at_most_its_bound(table):
    """
    Two runs on neighbouring tables, with the same noise: the models lie at most two clips over the divisor apart.
    """
    assert 0.1 < one_record_moves(table) <= 1.001


def test_a_clipped_batch_mean_is_found(table, monkeypatch, unwatched):
    """
    Negative control: the mean of a batch is clipped instead of each record; one record then turns all of it.
    """

    def mean_clipped(self, model, loss, batch, clip, groups=None):
        parameters = list(model.parameters())
        mean = loss(model(batch[0]), batch[1]).mean()
        flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(mean, parameters)]).numpy().astype(np.float64)
        flat *= min(1.0, clip.norm / max(np.linalg.norm(flat), 1e-12)) * len(batch[1])
        return Clipped(certify(flat, unit=clip.unit, l2=clip.norm), 0)

    monkeypatch.setattr(Auto, "clipped_sum", mean_clipped)

    assert one_record_moves(table) > 1.5
