"""The sensor audit kills broken steps and lets sound ones pass, conservative ones too; its checks keep their level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sensor_reference import CONSERVATIVE, NAMED, NEW, SECOND, Reference, clipping, flat_clip, l1_clip, scaled

from sordino.audit.sensor.full import audit
from sordino.audit.sensor.start import start
from sordino.audit.sensor.world import Declared
from sordino.core.seeds import stream
from sordino.core.types import Adjacency

EXPECTED = {
    "noise x0.97": "noise scale",
    "noise frozen": "freshness",
    "noise one scalar": "independent coordinates",
    "noise same in all layers": "independent groups",
    "noise skipped every 10th step": "every release noised",
    "noise uniform": "noise law",
    "half the coordinates un-noised": "every coordinate noised",
    "one group un-noised": "every group noised",
    "coarse grid": "noise lattice",
    "clip 1.1C": "clip bound",
    "clip before weight": "equal weights",
    "realised denominator": "denominators",
    "rate 1.2q": "sampling rate",
    "shuffled": "participation law",
    "fixed size": "batch-size law",
    "noise dropped on small batches": "empty batch",
    "not finite: poisons all": "non-finite input",
    "seed reuse between silos": "independent silos",
    "noise not re-drawn after a restart": "noise after a restart",
}
"""Which check must be among those that see a fault: every check has a mutant of its own."""


def test_the_lists_are_those_of_the_design():
    """
    22 named, those of the second list that are faults, and more than six new ones.
    """
    assert len(NAMED) == 22
    assert len(SECOND) == 12
    assert len(NEW) >= 6


@pytest.mark.parametrize("name", [*NAMED, *SECOND, *NEW])
def test_a_mutant_is_killed(name):
    """
    A broken step fails, and where one check is meant for the fault, that check sees it.
    """
    failed = [check.name for check in audit((NAMED | SECOND | NEW)[name], seed=3).failed]

    assert failed
    assert EXPECTED.get(name, failed[0]) in failed


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_more_protection_than_declared_passes(name):
    """
    More noise and shorter contributions cost accuracy, not privacy: they are noted, and do not fail.
    """
    report = audit(CONSERVATIVE[name], seed=3)

    assert not report.failed
    assert any(check.note for check in report.checks)


def test_twice_the_noise_for_a_replaced_record_passes():
    """
    A multiplier that is declared over twice the bound needs twice the noise, and with it the step is sound.
    """
    step = replace(scaled(2.0), declared=Declared(adjacency=Adjacency.REPLACE_ONE))

    assert not audit(step, seed=3).failed


def test_a_step_on_another_rate_passes_only_as_declared():
    """
    The rate is compared with what is declared, not with what is usual.
    """
    assert not audit(Reference(rate=0.5, declared=Declared(rates=(0.5,))), seed=1).failed
    assert audit(Reference(rate=0.5, declared=Declared(rates=(0.4,))), seed=1).failed


def test_groups_with_shares_of_their_own_are_held_to_them():
    """
    Canaries of a group with half a share must be clipped to it.
    """

    def to_half(gradients, rng):
        return flat_clip(2 * gradients, rng) / 2

    assert audit(Reference(declared=Declared(shares=(1.0, 0.5))), seed=2).failed
    assert not audit(Reference(clip=to_half, declared=Declared(shares=(0.5,))), seed=2).failed


def worlds(count: int) -> tuple[int, dict[str, np.ndarray]]:
    """How many of so many sound audits failed, and every check's p-values."""
    failed, levels = 0, {}
    for seed in range(count):
        report = audit(Reference(), seed=1000 + 10 * seed)
        failed += bool(report.failed)
        for check in report.checks:
            levels.setdefault(check.name, []).append(check.p)
    return failed, {name: np.array(values) for name, values in levels.items()}


def test_no_false_alarms_in_a_hundred_sound_worlds():
    """
    At 0.1 % a sound step does not fail, and no check says "p < 0.05" more often than it may.
    """
    failed, levels = worlds(100)

    assert failed == 0
    limit = stats.binom.ppf(1 - 1e-3 / len(levels), 100, 0.05)
    assert {name: int((p < 0.05).sum()) for name, p in levels.items() if (p < 0.05).sum() > limit} == {}


def test_the_level_is_lost_by_an_invalid_check():
    """
    Negative control: a chi-square that counts every draw twice is found by the same limit.
    """
    draws = stream(1, "a hundred worlds").normal(size=(100, 50))
    wrong = stats.chi2.sf(4 * np.square(draws[:, :25]).sum(1), 100)

    assert (wrong < 0.05).sum() > stats.binom.ppf(0.999, 100, 0.05)


@pytest.mark.slow
def test_no_false_alarms_in_a_thousand_sound_worlds():
    """
    The same, longer: one failure in a thousand may be chance, five are not.
    """
    failed, levels = worlds(1000)

    assert failed < 5
    limit = stats.binom.ppf(1 - 1e-3 / len(levels), 1000, 0.01)
    assert {name: int((p < 0.01).sum()) for name, p in levels.items() if (p < 0.01).sum() > limit} == {}


@pytest.mark.parametrize("rate", [0.2, 0.5, 1.0])
def test_the_short_form_keeps_far_from_its_threshold(rate):
    """
    In 150 sound worlds no check comes near the share at which it stops a run.
    """
    step = Reference(rate=rate, declared=Declared("all" if rate == 1 else "poisson", (rate,)))
    levels = [check.p for seed in range(150) for check in start(step, 1.0, seed=10 * seed).checks]

    assert min(levels) > 1e-5


def test_l1_clipping_survives_and_is_noted():
    """
    The one survivor of the design's lists: it is shorter than it must be.
    """
    notes = " ".join(check.note for check in audit(clipping(l1_clip), seed=5).checks)

    assert "contributions are only 0.7" in notes
