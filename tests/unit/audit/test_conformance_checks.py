"""Every check passes an honest mechanism and catches a twin that is broken in the one way that it looks for."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import own_mechanism as own
import pytest
from own_mechanism import N

from sordino.audit.conformance import Fault, Result, answers
from sordino.audit.conformance.checks import checks

CHECKS = {one.id: one for one in checks()}

HONEST = {
    **dict.fromkeys(["C01", "C02", "C03", "C04", "C05", "C06", "C07", "C08", "C14"], own.Honest()),
    "C09": own.Follows(),
    "C10": own.Trainer(),
    "C11": own.Calibrated(),
    "C12": own.Accountant(),
    "C13": own.Trainer(),
    "C15": own.SecureSum(),
    "C18": own.OnGrid(),
    "C19": own.Follows(),
    "C20": own.Accountant(),
}

BROKEN = [
    ("C01", own.HalfTheNoise(), "equal weights", Result.FAIL),
    ("C02", own.Weighted(), "90 % of the weight", Result.FAIL),
    ("C03", own.RealisedMean(), "half of the cohort answers", Result.FAIL),
    ("C03", own.RealisedMean(), "one answer less, the others agree", Result.FAIL),
    ("C04", own.NaNPasses(), "one NaN", Result.FAIL),
    ("C04", own.ZeroDivides(), "a zero update", Result.CRASH),
    ("C05", own.ScalarsEscape(), "a 0-d parameter", Result.FAIL),
    ("C05", own.ByPosition(), "the same tensors in another order", Result.FAIL),
    ("C06", own.OneBare(), "tensors", Result.FAIL),
    ("C06", own.TellsTheLoss(), "loss", Result.FAIL),
    ("C07", own.Uniform(), "a series of releases", Result.FAIL),
    ("C07", own.DrawnOnce(), "a series of releases", Result.FAIL),
    ("C08", own.Seedable(), "seeding the ordinary generators", Result.FAIL),
    ("C08", own.Seedable(), "a forked worker", Result.FAIL),
    ("C09", own.Follows(sign=-1), "the norm rises to where updates are", Result.FAIL),
    ("C09", own.Follows(late=True, lr=1.0), "noise fits the norm that clipped this round", Result.FAIL),
    ("C09", own.Follows(count_noise=0.0), "the count of clipped units is noised, and paid for", Result.FAIL),
    ("C10", own.Trainer(shuffled=True), "participation law", Result.FAIL),
    ("C10", own.Trainer(shuffled=True), "batch-size law", Result.FAIL),
    ("C11", own.Calibrated(classic=True), "epsilon 10", Result.FAIL),
    ("C11", own.Calibrated(classic=True), "epsilon 0, delta 1e-05 is refused", Result.FAIL),
    ("C12", own.Accountant(share=0.9), "Poisson-sampled releases", Result.FAIL),
    ("C12", own.Accountant(share=0.9), "unsampled releases", Result.FAIL),
    ("C12", own.Accountant(forgets=True), "a restart forgets nothing", Result.FAIL),
    ("C12", own.Accountant(late=True), "a limit stops before the release", Result.FAIL),
    ("C12", own.Accountant(careless=True), "a sampling rate above 1 is not priced", Result.FAIL),
    ("C13", own.Trainer(real=0.25), "canaries", Result.FAIL),
    ("C13", own.Trainer(bounded_=False), "canaries", Result.FAIL),
    ("C14", own.noiseless(), "linear layer", Result.FAIL),
    ("C15", own.SecureSum(lossy=True), "everybody answers", Result.FAIL),
    ("C15", own.SecureSum(folded=True), "masks depend on the whole key", Result.FAIL),
    ("C18", own.Honest(), "a grid", Result.FAIL),
    ("C18", own.OnlyNoiseOnGrid(), "a grid", Result.FAIL),
    ("C20", own.Accountant(forgets=True), "a second run knows the first", Result.FAIL),
    ("C20", own.Accountant(last_round=True), "rounds add up", Result.FAIL),
]


def rows_of(id, target):  # noqa: A002 - the table's word
    return answers(target, CHECKS[id])


@pytest.mark.parametrize("id", sorted(HONEST))
def test_an_honest_mechanism_has_no_faults(id):  # noqa: A002 - as above
    """Every row PASS or REFUSED, and at least one thing was really looked at."""
    rows = rows_of(id, HONEST[id])

    assert [row for row in rows if row.result not in (Result.PASS, Result.REFUSED, Result.NOT_APPLICABLE)] == []
    assert any(row.result is Result.PASS for row in rows)


@pytest.mark.parametrize(("id", "target", "case", "result"), BROKEN)
def test_a_broken_twin_is_caught(id, target, case, result):  # noqa: A002 - as above
    """By its own case, with a snippet, as a violation of the claim."""
    found = {row.check.rpartition(": ")[2]: row for row in rows_of(id, target)}

    assert found[case].result is result, found[case]
    assert found[case].fault is Fault.CLAIM
    assert "print" in found[case].reproduction


@pytest.mark.parametrize(
    ("target", "case", "result"),
    [
        (own.NoisesStatistics(), "a batch norm's running statistics are no weights", Result.FAIL),
        (own.HalfNorm(), "a long update in float16 keeps its share", Result.FAIL),
        (own.Follows(least=20), "an adaptive norm for 5 units", Result.NOTE),
    ],
)
def test_what_protection_ruins_is_told_apart(target, case, result):
    """The claim stands, so it is a fault of its own kind; a cohort that is turned away is a note."""
    found = {row.check.rpartition(": ")[2]: row for row in rows_of("C19", target)}

    assert found[case].result is result, found[case]
    assert found[case].fault is (Fault.HARM if result is Result.FAIL else None)


def test_the_last_bits_of_a_sum_of_floats_tell_what_was_noised():
    """
    What the grid is for: where x is 1, a small 1 + n holds no finer bits than 1 does; where x is 0, it does.
    """
    noise = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    finer = []
    for x in (0.0, 1.0):
        seen = np.float32(x) + noise
        small = seen[np.abs(seen) < 2**-6]
        finer.append(float(np.mean(small % np.float32(2**-24) != 0)))

    assert finer[0] > 0.9
    assert finer[1] == 0.0


def test_what_never_ends_is_ended(monkeypatch):
    """
    A loop that NaN never leaves is a crash, not a hang of the suite.
    """
    from sordino.audit.conformance.checks import hostile

    quick = hostile.attempt
    monkeypatch.setattr(hostile, "attempt", lambda call, limit_s=0.2: quick(call, min(limit_s, 0.2)))
    rows = {row.check.rpartition(": ")[2]: row for row in rows_of("C04", own.WaitsForNaN())}

    assert rows["one NaN"].result is Result.CRASH
    assert "still running" in rows["one NaN"].evidence
    assert rows["a zero update"].result is Result.PASS


def test_limits_nest():
    """
    The limit of a call inside another's: afterwards the outer one still holds.
    """
    from sordino.audit.conformance.limits import Endless, How, attempt, within

    def endless():
        while True:
            pass

    def outer():
        with within(0.3):
            assert attempt(endless, 0.05).how is How.ENDLESS
            assert attempt(lambda: 1, 5).value == 1
            endless()

    with pytest.raises(Endless):
        outer()


def test_what_waits_is_ended_too():
    """
    A call that needs no CPU time is ended by the clock, much later.
    """
    from sordino.audit.conformance.limits import How, attempt

    assert attempt(lambda: time.sleep(5), 0.01).how is How.ENDLESS


def test_a_restart_that_repeats_the_noise_is_caught():
    """
    Against a control that draws from the operating system.
    """
    found = {
        spec: [
            r.result
            for r in answers(target, CHECKS["C08"], spec=f"own_mechanism:{spec}")
            if r.check.endswith("restart")
        ]
        for spec, target in {"one_start": own.one_start(), "honest": own.honest()}.items()
    }

    assert found == {"one_start": [Result.FAIL], "honest": [Result.PASS]}


def test_what_the_documentation_discloses_is_another_kind_of_fault():
    """
    The same fault, told apart: by check, and by one case of it.
    """
    whole = own.Weighted(discloses={"C02": "README, weights"})
    part = own.Weighted(discloses={"C02:90 % of the weight": "README, weights"})

    assert {row.fault for row in rows_of("C02", whole)} == {Fault.DEFAULT}
    assert [row.fault for row in rows_of("C02", part)] == [Fault.DEFAULT, Fault.CLAIM]
    assert rows_of("C02", whole)[0].disclosed == "README, weights"


@dataclass(frozen=True)
class Steps(own.Honest):
    """One private step by plain autograd, as sound as the model is; `bare` sets the last tensor from the data.

    `leaves` them: gradients of what is not trained.
    """

    bare: bool = False
    leaves: bool = False

    def gradients(self, module, loss, batch, trained, seed):
        loss(module(batch[0]), batch[1]).sum().backward()
        return {name: p.grad.numpy() for name, p in module.named_parameters() if self.leaves and p.grad is not None}

    def step(self, module, loss, batch, seed):
        import torch

        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        total = {name: np.zeros(p.shape) for name, p in trained.items()}
        each = loss(module(batch[0]), batch[1])
        for value in each:  # records share the forward pass
            grads = torch.autograd.grad(value, list(trained.values()), retain_graph=True)
            update = {name: grad.numpy() for name, grad in zip(trained, grads, strict=True)}
            for name, part in self.bounded(total, update, 1.0).items():
                total[name] = total[name] + part
        noised = self.noised(total, np.random.default_rng(seed), len(each))
        after = {name: p.detach().numpy() - N * noised[name] for name, p in trained.items()}
        if self.bare:
            after[list(after)[-1]] = np.full_like(after[list(after)[-1]], float(batch[1].sum()))
        return after


@pytest.mark.parametrize(
    ("id", "target", "case", "result"),
    [
        ("C16", Steps(), "everything trained", Result.PASS),
        ("C16", Steps(bare=True), "everything trained", Result.FAIL),
        ("C16", Steps(), "gradients of what is not trained", Result.PASS),
        ("C16", Steps(leaves=True), "gradients of what is not trained", Result.NOTE),
        ("C17", Steps(), "a plain network", Result.PASS),
        ("C17", Steps(), "one record of 1e30", Result.PASS),
        ("C17", Steps(), "one record with NaN", Result.FAIL),  # 0 · NaN reaches every record's gradient
        ("C17", Steps(), "a layer that uses the batch's mean", Result.FAIL),
        ("C17", Steps(), "frozen batch norm left in train mode", Result.FAIL),
    ],
)
def test_steps_on_modules(id, target, case, result):  # noqa: A002 - as above
    """A tensor that is set from the data leaves without noise; records that share a pass meet in some models."""
    found = {row.check.rpartition(": ")[2]: row for row in rows_of(id, target)}

    assert found[case].result is result, found[case]


def test_every_reproduction_of_a_broken_mechanism_runs(monkeypatch, capsys):
    """
    The snippet is a whole program that prints what was measured.
    """
    row = next(row for row in answers(own.targets()[1], CHECKS["C01"], spec="own_mechanism:targets") if row.faulty)

    exec(row.reproduction, {})  # noqa: S102 - what a reader does with it

    assert "moved=0.1" in capsys.readouterr().out


@pytest.mark.parametrize(("id", "target"), [(id_, target) for id_, target, _, _ in BROKEN if id_ not in {"C09", "C13"}])
def test_reproductions_are_programs(id, target):  # noqa: A002 - as above
    """They compile, whatever the check."""
    for row in rows_of(id, target):
        if row.faulty:
            compile(row.reproduction, row.check, "exec")


def test_an_update_cannot_reach_the_honest_noise():
    """
    Control of the measure itself: three times the noise is three times the multiplier.
    """
    from sordino.audit.conformance import Bench
    from sordino.audit.conformance.measure import spike

    bench = Bench(replace(own.Honest(), z=3.0))

    assert np.isclose(bench.ratio(bench.others(), spike(1e6)).multiplier, 3.0, rtol=0.02)
