"""C19: what protection must not ruin. These faults leave ε as it is; what is lost is the training.

The release may move by less than the claim allows, but not by nothing; what is no parameter must not be noised like
one; and a rule that adapts must work for few units too, because hospitals are few.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import How, attempt
from sordino.audit.conformance.measure import ENOUGH, Bench, Named, dense, spike
from sordino.audit.conformance.protocol import Adaptive, Sized
from sordino.audit.conformance.verdicts import Outcome, Result

HALF: Named = {"layer.weight": np.zeros(2000, np.float16)}
LONG = 100.0
"""Of every entry: in float16 its squares add up to more than the largest number."""

KEPT = 0.25
"""Of its share that a long update must keep. Where one is replaced by another it counts half."""

VARIANCE = 1e-3
NORM: Named = {
    "layer.weight": np.zeros(2000, np.float32),
    "norm.running_mean": np.zeros(400, np.float32),
    "norm.running_var": np.full(400, VARIANCE, np.float32),
}

FEW = 5


@check("C19", "protection does not ruin the result")
def ruins(bench: Bench) -> Iterator[Outcome]:
    """A long update in float16; a batch norm's running statistics; an adaptive norm with few units."""
    yield _long(bench)
    yield _statistics(bench)
    if isinstance(bench.target, Adaptive):
        yield _few(bench)


def _long(bench: Bench) -> Outcome:
    """Whether an update whose float16 norm overflows is clipped, or thrown away."""
    # Not smaller: in float16 its square would be zero, which some frameworks do not survive.
    case, calm = "a long update in float16 keeps its share", bench.claim.clip / 10
    others = [spike(calm, HALF)] * (bench.claim.cohort - 1)
    victim = {"layer.weight": np.full(2000, LONG, np.float16)}
    shows = (
        "from sordino.audit.conformance.checks.harm import HALF\nbench = bench.on(HALF)\n"
        f"others = [spike({calm:g}, HALF)] * {len(others)}\n"
        f"for update in (spike({calm:g}, HALF), {{'layer.weight': np.full(2000, {LONG:g}, 'e')}}):\n"
        "    print(bench.vector([*others, update]))"
    )
    bench = Bench(bench.target).on(HALF)
    away = attempt(lambda: bench.vector([*others, spike(calm, HALF)]))
    if away.value is None:
        return _not_asked(case, away.how, away.says)
    there = attempt(lambda: bench.vector([*others, victim]))
    if there.value is None:
        return Outcome(result=Result.CRASH, case=case, evidence=there.says, shows=shows)
    if bench.claim.noise_multiplier is None:
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="it states no noise multiplier")
    share = bench.moved(there.value, away.value) / bench.bound
    return Outcome(
        result=Result.PASS if share >= KEPT else Result.FAIL,
        case=case,
        evidence=f"it moves the release by {share:.3f} of what the claim allows",
        numbers={"share": share},
        shows=shows,
        harm=True,
    )


def _statistics(bench: Bench) -> Outcome:
    """Whether a variance that no gradient reaches is clipped and noised as if it were a weight."""
    case, calm = "a batch norm's running statistics are no weights", bench.claim.clip / 10
    bench = bench.on(NORM)
    updates = [_trained(calm, seed) for seed in range(bench.claim.cohort)]
    tried = attempt(lambda: bench.release(updates))
    if tried.value is None:
        return _not_asked(case, tried.how, tried.says)
    moved = tried.value.get("norm.running_var")
    if moved is None:
        return Outcome(result=Result.REFUSED, case=case, evidence="they do not leave")
    wrong = int(np.sum(VARIANCE + np.asarray(moved, np.float64) < 0))
    changed = float(np.abs(np.asarray(moved, np.float64)).max())
    return Outcome(
        result=Result.PASS if changed < VARIANCE / 2 else Result.FAIL,
        case=case,
        evidence=f"variances of {VARIANCE:g} that nobody changes move by up to {changed:.2g}; {wrong} of "
        f"{np.size(moved)} are negative afterwards",
        numbers={"moved": changed, "negative": wrong},
        shows="from sordino.audit.conformance.checks.harm import NORM, _trained\n"
        f"updates = [_trained({calm:g}, seed) for seed in range({len(updates)})]\n"
        "print(NORM['norm.running_var'] + bench.on(NORM).release(updates)['norm.running_var'])",
        harm=True,
    )


def _trained(norm: float, seed: int) -> Named:
    """An update of the weights alone."""
    still = {name: np.zeros_like(value) for name, value in NORM.items()}
    return {**still, **dense(norm, {"layer.weight": NORM["layer.weight"]}, seed=seed)}


def _few(bench: Bench) -> Outcome:
    """Whether a cohort of five is served, with the noise that it claims."""
    case, target = f"an adaptive norm for {FEW} units", bench.target
    if not isinstance(target, Sized):
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="its cohort is what it is")
    made = attempt(lambda: Bench(target.with_cohort(FEW)))
    if made.value is None:
        return _not_asked(case, made.how, made.says)
    small = made.value
    size = 50 * small.claim.clip
    tried = attempt(lambda: small.ratio(small.others(), dense(size)))
    if tried.value is None:
        return _not_asked(case, tried.how, tried.says)
    held = tried.value.multiplier >= ENOUGH * small.claimed
    return Outcome(
        result=Result.PASS if held else Result.FAIL,
        case=case,
        evidence=f"noise multiplier {tried.value.multiplier:.3f} on the update, {small.claimed:g} claimed of both",
        numbers=tried.value.numbers,
        shows=f"small = Bench(target.with_cohort({FEW}))\nprint(small.ratio(small.others(), dense({size:g})))",
    )


def _not_asked(case: str, how: How, says: str) -> Outcome:
    """It fails whatever the data are: closed, but of no use to whoever has such a model or cohort."""
    results = {How.INAPPLICABLE: Result.NOT_APPLICABLE, How.REFUSED: Result.REFUSED}
    return Outcome(result=results.get(how, Result.NOTE), case=case, evidence=says)
