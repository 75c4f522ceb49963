"""C01, C02, C03: how far one unit moves a release, whatever its weight and whoever else answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import How, attempt
from sordino.audit.conformance.measure import ENOUGH, Bench, Ratio, dense, spike
from sordino.audit.conformance.protocol import Adaptive, NotApplicable, Tensors
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.core.types import Adjacency

HUGE = 1e6


@check("C01", "one unit moves a release by at most what its noise is for")
def equal_weights(bench: Bench) -> Iterator[Outcome]:
    """Large single coordinates of either sign, and a dense update, against the claimed multiplier."""
    victims = {f"spike({HUGE:g})": spike(HUGE), f"spike({-HUGE:g})": spike(-HUGE), f"dense({HUGE:g})": dense(HUGE)}
    found = {how: bench.ratio(bench.others(), victim) for how, victim in victims.items()}
    worst = min(found, key=lambda how: found[how].multiplier)
    yield _judged(bench, "equal weights", found[worst], bench.claimed, f"bench.ratio(bench.others(), {worst})")


@check("C02", "a unit's weight does not widen its influence")
def weights(bench: Bench) -> Iterator[Outcome]:
    """One unit reports most of the examples, or an absurd number of them."""
    others = bench.others()
    for case, share in (("90 % of the weight", 9.0 * len(others)), ("reports a weight of 1e9", 1e9)):
        yield _tried(
            bench,
            case,
            others,
            spike(HUGE),
            [1.0] * len(others) + [share],
            f"bench.ratio(bench.others(), spike({HUGE:g}), [1.0] * {len(others)} + [{share:g}])",
        )


@check("C03", "units that do not answer do not widen the others' influence")
def replies(bench: Bench) -> Iterator[Outcome]:
    """Half of the cohort answers; one less answers while all others agree."""
    half = bench.claim.cohort // 2
    if half < 1:
        raise NotApplicable("a release is of a single unit")
    few = bench.others()[: half - 1]
    yield _tried(
        bench,
        "half of the cohort answers",
        few,
        spike(HUGE),
        None,
        f"bench.ratio(bench.others()[:{half - 1}], spike({HUGE:g}))",
    )
    if bench.claim.adjacency is not Adjacency.ADD_REMOVE or isinstance(bench.target, Adaptive):
        return
    agreed = [spike(HUGE)] * (bench.claim.cohort - 1)
    yield _tried(
        bench,
        "one answer less, the others agree",
        agreed,
        spike(-HUGE),
        None,
        f"bench.ratio([spike({HUGE:g})] * {len(agreed)}, spike({-HUGE:g}))",
    )


def _tried(
    bench: Bench, case: str, others: Sequence[Tensors], victim: Tensors, weight: Sequence[float] | None, shows: str
) -> Outcome:
    """The measured multiplier, or what the framework says instead.

    It is held against the one with equal weights and everybody there, if that is too small already.
    """
    claimed = min(bench.claimed, bench.ratio(bench.others(), spike(HUGE)).multiplier)
    tried = attempt(lambda: bench.ratio(others, victim, weight), limit_s=60)
    if tried.value is not None:
        return _judged(bench, case, tried.value, claimed, shows)
    if tried.how is How.INAPPLICABLE:
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence=tried.says)
    if tried.how is How.ENDLESS:
        return Outcome(result=Result.CRASH, case=case, evidence=tried.says, shows=shows)
    return Outcome(result=Result.REFUSED, case=case, evidence=tried.says, numbers={"claimed": claimed})


def _judged(bench: Bench, case: str, ratio: Ratio, least: float, shows: str) -> Outcome:
    held = ratio.multiplier >= ENOUGH * least
    return Outcome(
        result=Result.PASS if held else Result.FAIL,
        case=case,
        evidence=f"noise multiplier {ratio.multiplier:.3f} in force, {bench.claimed:.4g} claimed",
        numbers={**ratio.numbers, "claimed": bench.claimed},
        shows=f"print({shows}, bench.claimed)",
    )
