"""C11, C12: noise that is set from ε, and what accountants say of releases."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import How, attempt
from sordino.audit.conformance.measure import Bench, dense
from sordino.audit.conformance.protocol import Accounts, Budgeted, Filters, NotApplicable, Restores
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.core.types import Adjacency
from sordino.privacy import accounting, events, gaussian

DELTA = 1e-5
SLACK = 1.02
HUGE = 1e6


@check("C11", "noise set from a budget keeps the budget")
def budget(bench: Bench) -> Iterator[Outcome]:
    """The ε that the noise really gives, from its scale and the measured distance; budgets of nothing."""
    if not isinstance(bench.target, Budgeted):
        raise NotApplicable("its noise is not set from ε")
    for epsilon in (1.0, 10.0, 50.0):
        yield _kept(bench.target, epsilon)
    for epsilon, delta in ((0.0, DELTA), (-1.0, DELTA), (1.0, 0.0), (1.0, -1e-5)):
        yield _nothing(bench.target, epsilon, delta)


def _kept(target: Budgeted, epsilon: float) -> Outcome:
    case = f"epsilon {epsilon:g}"
    shows = f"bench = Bench(target.with_budget({epsilon:g}, {DELTA}))\nvictim = dense({HUGE:g})\n"
    made = attempt(lambda: target.with_budget(epsilon, DELTA))
    if made.value is None:
        return Outcome(result=Result.REFUSED, case=case, evidence=made.says)
    bench = Bench(made.value)
    ratio = bench.ratio(bench.others(), dense(HUGE))
    if bench.claim.law == "laplace":
        real = 1 / ratio.multiplier
    else:
        real = gaussian.epsilon_of(1 / ratio.multiplier, DELTA) if ratio.multiplier > 0 else math.inf
    held = real <= epsilon * SLACK
    return Outcome(
        result=Result.PASS if held else Result.FAIL,
        case=case,
        evidence=f"the noise gives epsilon {real:.4g} at delta {DELTA:g} ({bench.claim.adjacency})",
        numbers={"epsilon": real, "asked": epsilon, **ratio.numbers},
        shows=f"{shows}print(bench.ratio(bench.others(), victim).multiplier)",
    )


def _nothing(target: Budgeted, epsilon: float, delta: float) -> Outcome:
    case = f"epsilon {epsilon:g}, delta {delta:g} is refused"

    def release() -> bool:
        bench = Bench(target.with_budget(epsilon, delta))
        bench.vector([*bench.others(), dense(1.0)])
        return bench.claim.law == "laplace" and delta <= 0  # pure DP has no δ

    tried = attempt(release, limit_s=3)
    if tried.how is How.ENDLESS:
        return Outcome(result=Result.NOTE, case=case, evidence=f"{tried.says}; nothing is released, nobody is told")
    if tried.how is How.RETURNED and not tried.value:
        shows = f"bench = Bench(target.with_budget({epsilon:g}, {delta:g}))\nprint(bench.vector([dense(1.0)]))"
        return Outcome(result=Result.FAIL, case=case, evidence="accepted, and something is released", shows=shows)
    if tried.value:
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="its law has no delta")
    return Outcome(result=Result.REFUSED, case=case, evidence=tried.says)


@check("C12", "the accountant never says less than the releases cost")
def accountant(bench: Bench) -> Iterator[Outcome]:
    """Against exact composition and a second accountant; directions; what it cannot price; restarts; limits."""
    target = bench.target
    if not isinstance(target, Accounts):
        raise NotApplicable("it accounts for nothing")
    yield _exact(target)
    yield _sampled(target)
    yield _directions(target)
    yield from _unpriceable(target)
    if isinstance(target, Restores):
        yield _restart(target)
    if isinstance(target, Filters):
        yield _limit(target)


def _exact(target: Accounts) -> Outcome:
    """Unsampled Gaussians compose exactly: μ = √T / z."""
    found = {}
    for z, steps in ((1.0, 1), (1.0, 100), (2.0, 100), (8.0, 1000)):
        exact = gaussian.epsilon_of(math.sqrt(steps) / z, DELTA)
        said = attempt(functools.partial(target.price, z, 1.0, steps, DELTA), limit_s=60)
        if said.how is How.RAISED:
            return Outcome(result=Result.REFUSED, case="unsampled releases", evidence=said.says)
        found[f"{steps} releases at z = {z:g}"] = (said.value or 0.0, exact)
    return _compared("unsampled releases", found, "exactly")


def _sampled(target: Accounts) -> Outcome:
    """Poisson sampling, against a certified upper bound that is tight to half a per cent."""
    found = {}
    for z, rate, steps in ((1.0, 0.01, 1000), (0.8, 0.1, 200), (2.0, 0.1, 200)):
        sequence = [(events.poisson(rate, events.gaussian(z)), steps)]
        ours = accounting.best_epsilon(sequence, DELTA, adjacency=Adjacency.ADD_REMOVE).epsilon
        said = attempt(functools.partial(target.price, z, rate, steps, DELTA), limit_s=60)
        if said.value is None:
            result = Result.NOT_APPLICABLE if said.how is How.INAPPLICABLE else Result.REFUSED
            return Outcome(result=result, case="Poisson-sampled releases", evidence=said.says)
        found[f"{steps} releases at z = {z:g}, q = {rate:g}"] = (said.value, ours)
    return _compared("Poisson-sampled releases", found, "by a privacy loss distribution")


def _compared(case: str, found: dict[str, tuple[float, float]], how: str) -> Outcome:
    worst = min(found, key=lambda name: found[name][0] / found[name][1])
    said, true = found[worst]
    held = said >= true * 0.99
    return Outcome(
        result=Result.PASS if held else Result.FAIL,
        case=case,
        evidence=f"{worst}: epsilon {said:.3f}, {how} {true:.3f}",
        numbers={
            f"{name}: {part}": value
            for name, pair in found.items()
            for part, value in zip(("said", how), pair, strict=True)
        },
        shows="print(target.price(0.8, 0.1, 200, 1e-5), target.price(1.0, 1.0, 100, 1e-5))",
    )


def _directions(target: Accounts) -> Outcome:
    """More releases, more sampling and less noise never cost less; T releases never more than T times one."""
    rate = 0.1 if attempt(lambda: target.price(1.0, 0.1, 100, DELTA), limit_s=60).value is not None else 1.0
    base = target.price(1.0, rate, 100, DELTA)
    said = {
        "more releases": target.price(1.0, rate, 200, DELTA) - base,
        "less noise": target.price(0.9, rate, 100, DELTA) - base,
        "fewer releases": base - target.price(1.0, rate, 50, DELTA),
        "sub-additive": 2 * target.price(1.0, rate, 50, DELTA / 2) - base,
    }
    if rate < 1:
        said["more sampling"] = target.price(1.0, 0.2, 100, DELTA) - base
    wrong = [name for name, difference in said.items() if difference < -1e-6]
    return Outcome(
        result=Result.FAIL if wrong else Result.PASS,
        case="directions",
        evidence=f"wrong way: {', '.join(wrong)}" if wrong else "more releases, more sampling and less noise cost more",
        numbers=said,
        shows="print([target.price(1.0, 0.1, steps, 1e-5) for steps in (50, 100, 200)])",
    )


def _unpriceable(target: Accounts) -> Iterator[Outcome]:
    """Releases without noise, impossible rates and δ must be refused or priced as infinite."""
    for case, arguments in {
        "no noise": (0.0, 1.0, 1, DELTA),
        "a sampling rate above 1": (1.0, 1.5, 10, DELTA),
        "delta 0": (1.0, 1.0, 10, 0.0),
    }.items():
        tried = attempt(functools.partial(target.price, *arguments), limit_s=60)
        if tried.how is How.INAPPLICABLE:
            yield Outcome(result=Result.NOT_APPLICABLE, case=f"{case} is not priced", evidence=tried.says)
            continue
        finite = tried.value is not None and math.isfinite(tried.value)
        said = tried.says if tried.value is None else f"priced at epsilon {tried.value:g}"
        yield Outcome(
            result=Result.FAIL if finite else Result.REFUSED,
            case=f"{case} is not priced",
            evidence=said,
            shows=f"print(target.price{arguments})",
        )


def _restart(target: Restores) -> Outcome:
    """What was spent before a restart stays spent."""
    whole, resumed = (target.restored(1.0, before, after, DELTA) for before, after in ((0, 20), (10, 10)))
    held = resumed >= whole * 0.999
    return Outcome(
        result=Result.PASS if held else Result.FAIL,
        case="a restart forgets nothing",
        evidence=f"20 releases cost {whole:.3f}; with a restart after 10 it says {resumed:.3f}",
        numbers={"whole": whole, "resumed": resumed},
        shows="print(target.restored(1.0, 0, 20, 1e-5), target.restored(1.0, 10, 10, 1e-5))",
    )


def _limit(target: Filters) -> Outcome:
    """The last release that comes out still fits the limit, and the next would not."""
    limit = 20.0
    count = target.releases_within(1.0, limit, DELTA, 100)
    spent = gaussian.epsilon_of(math.sqrt(count), DELTA) if count else 0.0
    return Outcome(
        result=Result.PASS if spent <= limit and count < 100 else Result.FAIL,
        case="a limit stops before the release",
        evidence=f"{count} releases came out, worth epsilon {spent:.3f} of {limit:g}",
        numbers={"releases": count, "epsilon": spent, "limit": limit},
        shows=f"print(target.releases_within(1.0, {limit:g}, 1e-5, 100))",
    )
