"""C10, C13: who takes part is who was accounted; and the claim as a whole holds against canaries in one run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import quietly
from sordino.audit.conformance.measure import Bench
from sordino.audit.conformance.protocol import NotApplicable, Trains
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.audit.promise import Promise
from sordino.audit.sensor import sampling
from sordino.audit.stats.curve_test import claim_test
from sordino.core.seeds import stream
from sordino.privacy import events

ALPHA = 1e-3
UNITS, STEPS = 200, 120
WHISPER = 0.02
"""A noise multiplier at which each unit's share of a step is read off without error."""

CANARIES, AUDITED = 600, 60
AUDIT_ALPHA = 1e-3
MU = 0.27
"""Makes the tested claim about ε = 1 at δ = 1e-5: canaries refute small claims best, and the noise is ours to set."""


@check("C10", "who takes part is who was accounted")
def who(bench: Bench) -> Iterator[Outcome]:
    """Each unit's gradient is a coordinate of its own: with a whisper of noise every step shows who joined."""
    target = _trainer(bench)
    updates = (10 * bench.claim.clip * np.eye(UNITS)).astype(np.float32)
    with quietly():
        shares = target.train(updates, STEPS, WHISPER, 3) / bench.claim.clip
    joined = np.abs(shares) > 0.5
    rates = np.full(UNITS, bench.claim.rate)
    shows = (
        f"updates = ({10 * bench.claim.clip:g} * np.eye({UNITS})).astype('f')\n"
        f"joined = abs(target.train(updates, {STEPS}, {WHISPER}, 3)) > {bench.claim.clip / 2:g}\n"
        "print(joined.sum(0).var() / len(joined), joined.sum(1).var() / joined.shape[1])"
    )
    if bench.claim.sampling == "all":
        yield Outcome(
            result=Result.PASS if joined.all() else Result.FAIL,
            case="everybody takes part",
            evidence=f"{joined.mean():.4f} of all shares are there",
            shows=shows,
        )
        return
    found = [*sampling.rate(joined, rates), *sampling.participation(joined, rates), *sampling.batch_size(joined, rates)]
    for name in dict.fromkeys(measured.name for measured in found):
        ones = [measured for measured in found if measured.name == name]
        worst = min(ones, key=lambda measured: measured.p)
        level = min(1.0, worst.p * len(found))
        yield Outcome(
            result=Result.PASS if level > ALPHA else Result.FAIL,
            case=name,
            evidence=f"{worst.says}; p = {level:.2g}",
            numbers={"p": level},
            shows=shows,
        )


@check("C13", "one run's canaries do not contradict the whole claim")
def claim(bench: Bench) -> Iterator[Outcome]:
    """Canaries in or out by coins, guessed from all iterates; tested against the accountant's whole curve."""
    target = _trainer(bench)
    rate = bench.claim.rate
    multiplier = rate * AUDITED**0.5 / MU
    coins = stream(7, "coins").random(CANARIES) < 0.5
    updates = (10 * bench.claim.clip * np.eye(CANARIES)).astype(np.float32)[coins]
    with quietly():
        steps = target.train(updates, AUDITED, multiplier, 8)
    event = events.gaussian(multiplier)
    sequence = [(event if rate == 1 else events.poisson(rate, event), AUDITED)]
    promise = Promise.declared(sequence, 1e-5, by=bench.claim.by)
    whole = steps.sum(0)
    fresh = np.abs(np.diff(steps, axis=0)).sum(0) if len(steps) > 1 else whole
    tested = claim_test({"sum": whole, "changes": fresh}, coins, promise, alpha=AUDIT_ALPHA)
    yield Outcome(
        result=Result.FAIL if tested.rejected else Result.PASS,
        case="canaries",
        evidence=f"{CANARIES} canaries against epsilon {promise.epsilon:.2f}: {tested.tally.correct} of "
        f"{tested.tally.guesses} guessed, p = {tested.p_value:.2g}",
        numbers={"p": tested.p_value, "epsilon": promise.epsilon},
        shows="from sordino.audit.conformance.checks.sampling import claim\nprint(*claim(bench))",
    )


def _trainer(bench: Bench) -> Trains:
    if not isinstance(bench.target, Trains):
        raise NotApplicable("it draws nobody by itself")
    return bench.target
