"""Every private run drives its own step before anything is charged, and a broken one does not start."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from whole_runs import model, planned, ran, sordino

from sordino.audit.sensor.finding import finding
from sordino.audit.sensor.full import audit
from sordino.audit.sensor.report import Measured, Report
from sordino.audit.sensor.start import ALPHA, require
from sordino.core.errors import BreakerOpen, PrivacyError
from sordino.experiment import released_metrics
from sordino.experiment.audits.opening import open_run
from sordino.experiment.audits.sensor import RunStep, at_start, found, noises_of
from sordino.experiment.build import build
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.federation.mechanisms.laplace import Laplace
from sordino.federation.pipeline import Pipeline
from sordino.local.clipping import Clip, Clipped, bookkeeping
from sordino.local.clipping.auto import Auto
from sordino.local.trainers import _data, _pools, zeroth
from sordino.privacy.kernel import certify
from sordino.privacy.noise import SystemNoise

CLIENT = ('privacy={unit="client",noise_at="coordinator",noise_multiplier=1.0,delta=0.01}', "local={lr=0.5}")
CLIPPED = ("stages=[{clip={norm=0.3}}]",)
PERSONS = ('privacy.unit="user"', "local.clip=0.3", "local.batch=0.5")
SETTINGS = {
    "records": ("local.clip=0.3",),
    "rare records": ("local.clip=0.3", "local.batch=0.01", "local.steps=3", "local.momentum=0.5"),
    "per layer": ("local.clip=0.3", 'local.clipping="per_layer"', 'local.engine="opacus"'),
    "side by side": ("local.clip=0.3", 'simulation.cohort="stacked"', "local.batch=0.3"),
    "at the sum": ("local.clip=0.3", 'privacy.noise_at="sum"', "simulation.secure_sum=true", "local.batch=0.5"),
    "persons": PERSONS,
    "persons by records": (*PERSONS, 'local.people="records"', "local.records_per_person=3"),
    "zeroth order": ("local.clip=0.3", 'local.method="zeroth_order"', "local.directions=4", "local.batch=0.5"),
    "zeroth order, laplace": ("local.clip=0.3", 'local.method="zeroth_order"', 'privacy.mechanism="laplace"'),
    "clients": (*CLIENT, *CLIPPED, "sampling={poisson={rate=0.5}}"),
    "weighted clients": (*CLIENT, "stages=[{weight={cap=10}},{clip={norm=0.3}}]"),
    "adaptive": (*CLIENT, "stages=[{adaptive_clip={norm=0.3}}]", "local={lr=0.5,steps=20,momentum=0.5}"),
    "in turns": (*CLIENT, *CLIPPED, "sampling={round_robin={size=3}}"),
    "as they arrive": (*CLIENT, *CLIPPED, "sampling={buffered={size=3,per_client=3,concurrency=5}}"),
    "fixed size": (*CLIENT, *CLIPPED, "sampling={fixed_size={size=3}}"),
    "clients, laplace": (*CLIENT, 'privacy.mechanism="laplace"', "stages=[{clip_l1={norm=0.3}}]"),
    "clients at their silo": (*CLIENT, *CLIPPED, 'privacy.noise_at="silo"', "sampling={round_robin={size=3}}"),
}


def setup(table, name):
    """The parts of a run of one kind."""
    plan, population = planned(table, *SETTINGS[name])
    return build(plan, population).setup


@pytest.mark.parametrize("name", SETTINGS)
def test_a_sound_run_may_start(table, name):
    """
    Every setting passes its own sensor, in less than half a CPU second; with the system's noise, unseeded.
    """
    report = at_start(setup(table, name))

    assert report.failed == ()
    assert report.alpha == ALPHA == 1e-6
    assert report.cpu_seconds < 1.0


@pytest.fixture
def tiered(table):
    """The small table, with records of two public groups."""
    csv = table.parent / "patients.csv"
    first, *rows = csv.read_text(encoding="utf-8").split()
    tiers = (f"{row},{'strict' if i % 3 else 'open'}\n" for i, row in enumerate(rows))
    csv.write_text(f"{first},tier\n" + "".join(tiers), encoding="utf-8")
    text = table.read_text(encoding="utf-8").replace("noise_multiplier = 1.0", "epsilon = 4.0")
    table.write_text(text + "[groups.open]\nepsilon = 4.0\n[groups.strict]\nepsilon = 2.0\n", encoding="utf-8")
    return table


def test_groups_are_held_to_shares_of_their_own(tiered, monkeypatch):
    """
    A sound run with groups may start; one that clips all of them alike is refused by its own door on made-up records.
    """
    own = ('data.table.group="tier"', "local.clip=0.3", "local.batch=0.4", 'local.individual="scale"')
    plan, population = planned(tiered, *own)
    parts = build(plan, population).setup

    assert len(set(RunStep(parts).declared.shares)) == 2
    assert at_start(parts).failed == ()

    monkeypatch.setattr(_pools, "Clip", lambda norm, unit, rule: Clip(0.3, unit, rule))
    with pytest.raises(PrivacyError, match="is not the noise that is charged"):
        at_start(parts)


OWN = ("records", "side by side", "zeroth order", "clients at their silo")


def with_noises(table, name, noises):
    """A run whose silos have noises of their own, as budgets of their own make them."""
    own = setup(table, name)
    accounts = tuple(
        replace(account, noise_multiplier=noises[i % len(noises)]) for i, account in enumerate(own.plan.accounts)
    )
    return replace(own, plan=replace(own.plan, accounts=accounts))


@pytest.mark.parametrize("name", OWN)
def test_every_noise_of_silos_with_budgets_of_their_own_is_driven(table, monkeypatch, name):
    """
    Sound silos pass; where those with the least noise, or those with the most, draw half of it, the run is stopped.
    """
    own, sound = with_noises(table, name, [1.5, 0.8]), Gaussian.draw
    assert at_start(own).failed == ()

    for faulty in (0.8, 1.5):

        def draw(self, source, permit, scale, size, faulty=faulty):
            wrong = np.isclose(self.noise_multiplier, faulty)
            return sound(self, source, permit, scale, size) / (2 if wrong else 1)

        monkeypatch.setattr(Gaussian, "draw", draw)
        assert any("noise" in check.name for check in at_start(own).failed)


def test_more_noises_than_can_be_driven_are_driven_from_end_to_end(table):
    """
    Hundreds of silos with budgets of their own: the smallest and the largest are always there.
    """
    own = setup(table, "records")
    accounts = tuple(replace(own.plan.accounts[0], noise_multiplier=1.0 + i) for i in range(100))
    noises = noises_of(replace(own, plan=replace(own.plan, accounts=accounts)))

    assert (len(noises), noises[0], noises[-1]) == (8, 1.0, 100.0)


FIGURES = {
    "laplace": "evaluation.release={ epsilon = 0.5, loss = 3.0 }",
    "gaussian": "evaluation.release={ noise_multiplier = 2.0, loss = 3.0 }",
    "accuracy alone": "evaluation.release={ epsilon = 0.5 }",
}


def half_of_figures_noise(patch):
    sound = Laplace.scale
    patch.setattr(Laplace, "scale", lambda self, l2, l1: sound(self, l2, l1) / 2)


def figures_drawn_once(patch):
    sound, kept = released_metrics.drawn, {}

    def drawn(setup, asked, model, charge):
        return kept.setdefault(str((asked, charge.txid)), sound(setup, asked, model, charge))

    patch.setattr(released_metrics, "drawn", drawn)


def figures_without_a_bound(patch):
    def bounded(rows, unit, asked):
        l1, l2 = released_metrics.bounds(asked)
        return certify(3 * rows.sum(0), unit=unit, l2=l2, l1=l1)

    patch.setattr(released_metrics, "bounded", bounded)


@pytest.mark.parametrize("name", FIGURES)
def test_the_release_of_figures_is_driven(table, name):
    """
    A sound release passes; nothing else changes what the report holds.
    """
    plan, population = planned(table, "local.clip=0.3", FIGURES[name])
    report = at_start(build(plan, population).setup)

    assert report.failed == ()


@pytest.mark.parametrize("name", ["laplace", "accuracy alone"])
@pytest.mark.parametrize("fault", [half_of_figures_noise, figures_drawn_once, figures_without_a_bound])
def test_a_broken_release_of_figures_stops_the_run(table, monkeypatch, fault, name):
    """
    Steps have Gaussian noise here, so that what fails is the figures' own.
    """
    plan, population = planned(table, "local.clip=0.3", FIGURES[name])
    own = build(plan, population).setup
    fault(monkeypatch)

    assert any("of released figures" in check.says for check in at_start(own).failed)


def test_nothing_private_nothing_driven(table):
    """
    A run without privacy has nothing to be compared with.
    """
    plan, population = planned(table, "privacy={non_private=true}")

    assert at_start(build(plan, population).setup) is None


def half_the_noise(patch):
    sound = Gaussian.scale
    patch.setattr(Gaussian, "scale", lambda self, l2, l1: sound(self, l2, l1) / 2)


def one_group_without(patch):
    sound = Gaussian.draw

    def draw(self, source, permit, scale, size):
        drawn = sound(self, source, permit, scale, size)
        drawn[-size // 3 :] = 0
        return drawn

    patch.setattr(Gaussian, "draw", draw)


def noise_used_again(patch):
    sound, kept = Gaussian.draw, {}

    def draw(self, source, permit, scale, size):
        return kept.setdefault((scale, size), sound(self, source, permit, scale, size))

    patch.setattr(Gaussian, "draw", draw)


def clip_doubled(patch):
    sound = Auto.clipped_sum

    def clipped_sum(self, model, loss, batch, *terms):
        made = sound(self, model, loss, batch, *terms)
        return Clipped(certify(2 * _vector(made.total), unit=made.total.unit, l2=made.total.l2), made.nonfinite)

    patch.setattr(Auto, "clipped_sum", clipped_sum)


def clip_of_the_mean(patch):
    """Every record is scaled by the factor that clips the batch's mean."""
    sound = bookkeeping.factors

    def factors(squares, layers, norm, rule):
        mean = squares.sum(1, keepdim=True) / squares.shape[1] ** 2
        return sound(mean.expand(squares.shape), layers, norm, rule)

    patch.setattr(bookkeeping, "factors", factors)


def everybody_always(patch):
    patch.setattr(_data, "coins", lambda source, rate, size: np.arange(size))


def client_sums_doubled(patch):
    sound = Pipeline.plain_total
    patch.setattr(Pipeline, "plain_total", lambda self, *arguments: 2 * sound(self, *arguments))


def slopes_unclipped(patch):
    sound = zeroth._bounded

    def bounded(slopes, groups, plan):
        total = sound(slopes.nan_to_num(), groups, plan)
        return certify(slopes.nan_to_num().sum(0).numpy(), unit=total.unit, l2=total.l2, l1=total.l1)

    patch.setattr(zeroth, "_bounded", bounded)


def _vector(total):
    return total._BoundedSum__vector


FAULTS = {
    ("records", half_the_noise),
    ("records", one_group_without),
    ("records", noise_used_again),
    ("records", clip_doubled),
    ("records", clip_of_the_mean),
    ("rare records", everybody_always),
    ("persons", half_the_noise),
    ("persons", clip_doubled),
    ("at the sum", half_the_noise),
    ("at the sum", noise_used_again),
    ("side by side", noise_used_again),
    ("zeroth order", half_the_noise),
    ("zeroth order", noise_used_again),
    ("zeroth order", slopes_unclipped),
    ("clients", half_the_noise),
    ("clients", one_group_without),
    ("clients", noise_used_again),
    ("clients", client_sums_doubled),
    ("adaptive", half_the_noise),
    ("clients at their silo", half_the_noise),
    ("clients at their silo", noise_used_again),
    ("clients at their silo", client_sums_doubled),
}


@pytest.mark.parametrize(
    ("name", "fault"), sorted(FAULTS, key=str), ids=lambda value: getattr(value, "__name__", value)
)
def test_a_gross_fault_is_found(table, monkeypatch, name, fault):
    """
    What is broken in the product's own code stops the run of every setting that it serves.
    """
    own = setup(table, name)
    fault(monkeypatch)

    assert at_start(own).failed


def test_a_broken_run_neither_charges_nor_leaves_a_folder(heart, monkeypatch, capsys):
    """
    The breaker opens before the ledger is: exit code 4, one line that names the check.
    """
    half_the_noise(monkeypatch)

    code, _, error = sordino(capsys, "run", heart, "--runs", heart.parent / "runs")

    assert code == 4
    assert "noise scale" in error
    assert "Nothing was charged or released" in error
    assert not (heart.parent / "runs").exists()


def test_a_run_keeps_and_shows_what_was_measured(heart, capsys):
    """
    The checks stand in the run folder, their number in the summary and on the screen.
    """
    code, out, _ = sordino(capsys, "run", heart, "--runs", heart.parent / "runs")
    (folder,) = (heart.parent / "runs").iterdir()
    kept = json.loads((folder / "sensor.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())

    assert code == 0
    assert f"sensor: {len(kept['checks'])} checks" in out
    assert kept["failed"] == []
    assert summary["sensor"] == {
        "checks": len(kept["checks"]),
        "failed": 0,
        "alpha": 1e-6,
        "cpu_seconds": kept["cpu_seconds"],
    }


def test_a_seeded_run_is_the_same_with_and_without(heart, monkeypatch):
    """
    The sensor asks none of the run's own coins: models do not change by it.
    """
    watched = model(ran(heart, "simulation.noise_seed=5", "local.batch=0.5"))
    monkeypatch.setattr("sordino.experiment.audits.sensor.at_start", lambda _: None)

    assert (
        model(ran(heart, "simulation.noise_seed=5", "local.batch=0.5", runs=heart.parent / "other")) == watched
    ).all()


def test_the_full_form_finds_three_percent_in_a_runs_own_step(heart, monkeypatch):
    """
    `sordino audit RUN` drives the run's own step in full.
    """
    plan, population = planned(heart, "simulation.noise_seed=5")
    step = RunStep(build(plan, population).setup)
    sound = Gaussian.scale

    assert not audit(step, seed=2).failed
    monkeypatch.setattr(Gaussian, "scale", lambda self, l2, l1: 0.97 * sound(self, l2, l1))
    report = audit(step, seed=2)

    assert report.failed[0].name == "noise scale"
    assert finding(report, None).verdict == "refuted"
    assert "less noise is drawn" in finding(report, None).causes[0]


def test_the_finding_of_a_finished_run(heart):
    """
    A finished run is driven in full; the finding carries what the run's ledger claims.
    """
    result = ran(heart, "simulation.noise_seed=5")

    made = found(open_run(result.folder, seed=3))

    assert (made.verdict, made.confidence) == ("holds", 0.999)
    assert made.promise is not None


def test_a_sound_report_is_a_finding_that_holds():
    """
    It says how many checks there were, and what they do not show.
    """
    made = finding(Report.of([Measured("noise scale", 0.5, "0.999")], 1e-3), None)

    assert (made.verdict, made.grade, made.confidence) == ("holds", "conformance", 0.999)


def test_what_is_not_a_number_opens_the_breaker():
    """
    A p-value that is NaN is no pass.
    """
    with pytest.raises(BreakerOpen, match="noise scale"):
        require(Report.of([Measured("noise scale", float("nan"), "no number")], ALPHA))


def test_the_systems_noise_is_what_a_real_run_drives(table):
    """
    Unseeded runs are driven with the very source that they will draw from.
    """
    own = setup(table, "records")

    assert isinstance(own.source, SystemNoise)
    assert at_start(own).failed == ()
