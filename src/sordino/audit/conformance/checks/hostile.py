"""C04, C05: one client may send any values; types and names are public, so they may be refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import Attempt, How, attempt
from sordino.audit.conformance.measure import TINY, Bench, Named, dense, flat, spike, zeros
from sordino.audit.conformance.protocol import Tensors
from sordino.audit.conformance.verdicts import Outcome, Result

SLACK = 1.03
SMALL: Named = {"layer.weight": np.zeros((40, 40), np.float32), "layer.bias": np.zeros(400, np.float32)}


@check("C04", "whatever values one unit sends, it changes only its bounded share")
def values(bench: Bench) -> Iterator[Outcome]:
    """Zero, not-a-number, infinite, overflowing and empty updates, against the round without the unit."""
    bench = bench.on(SMALL)
    for case, code in VALUES.items():
        victim = eval(code, {"np": np, "spike": spike, "dense": dense, "zeros": zeros, "SMALL": SMALL})  # noqa: S307 - our own constants, which the reproduction prints
        yield _valued(bench, case, victim, code)


VALUES = {
    "a zero update": "zeros(SMALL)",
    "one NaN": "{**dense(0.1, SMALL), 'layer.bias': np.append(np.zeros(399, 'f'), np.nan).astype('f')}",
    "one +Inf": "spike(np.inf, SMALL)",
    "one -Inf": "spike(-np.inf, SMALL)",
    "all NaN": "{name: np.full_like(value, np.nan) for name, value in SMALL.items()}",
    "a norm that overflows float32": "{name: np.full_like(value, 3e38) for name, value in SMALL.items()}",
    "1e308 in float64": "{name: np.full(value.shape, 1e308) for name, value in SMALL.items()}",
}


def _valued(bench: Bench, case: str, victim: Named, code: str) -> Outcome:
    shows = (
        f"bench = bench.on(SMALL)\nfor update in (spike(TINY, SMALL), {code}):\n"
        "    print(bench.vector([*bench.others(), update]))"
    )
    others = bench.others()
    absent = bench.vector([*others, spike(TINY, SMALL)])
    tried = attempt(lambda: bench.vector([*others, victim]), limit_s=5)
    if tried.value is None:
        return _ended(case, tried, shows)
    broken = int(np.sum(~np.isfinite(tried.value)))
    if broken:
        return Outcome(
            result=Result.FAIL,
            case=case,
            evidence=f"{broken} of {tried.value.size} released numbers are not finite",
            numbers={"not_finite": broken, "of": tried.value.size},
            shows=shows,
        )
    if bench.claim.noise_multiplier is None:
        return Outcome(result=Result.PASS, case=case, evidence="the release stays finite; it claims no bound")
    moved, bound = bench.moved(tried.value, absent), bench.bound
    held = moved <= bound * SLACK
    return Outcome(
        result=Result.PASS if held else Result.FAIL,
        case=case,
        evidence=f"moves the release by {moved / bound:.3g} of what the claim allows",
        numbers={"moved": moved, "bound": bound},
        shows=shows,
    )


def _ended(case: str, tried: Attempt[Any], shows: str) -> Outcome:
    """One unit's values ended the round, or the structure was turned away."""
    results = {How.REFUSED: Result.REFUSED, How.INAPPLICABLE: Result.NOT_APPLICABLE}
    return Outcome(result=results.get(tried.how, Result.CRASH), case=case, evidence=tried.says, shows=shows)


@dataclass(frozen=True)
class Structure:
    """A model with one unusual tensor, and what a hostile unit puts into it."""

    case: str
    model: str
    victim: str
    """Both as code, which the reproduction prints."""


STRUCTURES = (
    Structure("a 0-d parameter", "{'w': np.zeros(2000, 'f'), 'x': np.zeros((), 'f')}", "np.array(1000, 'f')"),
    Structure(
        "an int64 buffer", "{'w': np.zeros(2000, 'f'), 'x': np.zeros(4, np.int64)}", "np.full(4, 1000, np.int64)"
    ),
    Structure(
        "a float16 tensor", "{'w': np.zeros(2000, 'f'), 'x': np.zeros(400, 'e')}", "np.full(400, 6e4).astype('e')"
    ),
    Structure("a bfloat16 tensor", "{'w': np.zeros(2000, 'f'), 'x': bfloat16(400, 0.0)}", "bfloat16(400, 1e30)"),
    Structure("an empty tensor", "{'w': np.zeros(2000, 'f'), 'x': np.zeros(0, 'f')}", "np.zeros(0, 'f')"),
)


def bfloat16(size: int, value: float) -> object:
    """A tensor of the type that numpy lacks.

    Raises:
        NotApplicable: torch is not installed here.
    """
    from sordino.audit.conformance.protocol import NotApplicable

    try:
        import torch
    except ImportError:
        raise NotApplicable("bfloat16 needs torch") from None
    return torch.full((size,), value, dtype=torch.bfloat16)


@check("C05", "unusual tensors and names are bounded and noised, or refused")
def structures(bench: Bench) -> Iterator[Outcome]:
    """Types that arithmetic treats unlike floats; the same tensors in another order, missing, extra, or another's."""
    for structure in STRUCTURES:
        yield _structured(bench, structure)
    yield from _names(bench)


def _structured(bench: Bench, structure: Structure) -> Outcome:
    names = {"np": np, "bfloat16": bfloat16}
    made = attempt(lambda: (eval(structure.model, names), eval(structure.victim, names)))  # noqa: S307 - as above
    if made.value is None:
        return Outcome(result=Result.NOT_APPLICABLE, case=structure.case, evidence=made.says)
    model, value = made.value
    calm = {**dense(TINY, {"w": model["w"]}), "x": model["x"]}
    victim = {**dense(2 * bench.claim.clip, {"w": model["w"]}), "x": value}
    bench = bench.on(model)
    others = [calm] * (bench.claim.cohort - 1)
    shows = (
        f"model, value = {structure.model}, {structure.victim}\nbench = bench.on(model)\n"
        f"w = {{'w': model['w']}}\ncalm = {{**dense(TINY, w), 'x': model['x']}}\n"
        f"victim = {{**dense({2 * bench.claim.clip:g}, w), 'x': value}}\n"
        f"for update in (calm, victim):\n    print(bench.release([calm] * {len(others)} + [update])['x'])"
    )
    benign = attempt(lambda: bench.release([*others, calm]))
    tried = attempt(lambda: bench.release([*others, victim]))
    if benign.value is None:
        # It fails whatever the data are: closed, on something public.
        result = Result.NOT_APPLICABLE if benign.how is How.INAPPLICABLE else Result.REFUSED
        return Outcome(result=result, case=structure.case, evidence=benign.says)
    if tried.value is None:
        return _ended(structure.case, tried, shows)
    if "x" not in tried.value:
        return Outcome(result=Result.REFUSED, case=structure.case, evidence="the tensor does not leave")
    return _bounded(bench, structure.case, benign.value, tried.value, shows, [*others, calm])


def _bounded(bench: Bench, case: str, calm: Tensors, moved: Tensors, shows: str, updates: list[Named]) -> Outcome:
    if not np.isfinite(flat(moved)).all():
        return Outcome(result=Result.FAIL, case=case, evidence="what is released is not finite", shows=shows)
    again = bench.release(updates, seed=2)
    special, repeated, sent = (np.asarray(part["x"], np.float64) for part in (calm, again, moved))
    # A few entries of a coarse type repeat by chance.
    if special.size and np.mean((special == repeated) & (special != sent)) > 0.02:
        evidence = f"leaves without noise: {np.ravel(sent)[0]:g} where the unit sends it, {np.ravel(special)[0]:g} else"
        return Outcome(result=Result.FAIL, case=case, evidence=evidence, shows=shows)
    if bench.claim.noise_multiplier is None:
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="it states no noise multiplier")
    distance = bench.moved(flat(calm), flat(moved))
    allowed = bench.bound * SLACK
    untouched = float(np.mean(special == repeated)) if special.size else 0.0
    numbers = {"moved": distance, "bound": bench.bound, "without_noise": untouched}
    if distance > allowed:
        evidence = f"one unit moves the release by {distance / bench.bound:.4g} times what the claim allows"
        return Outcome(result=Result.FAIL, case=case, evidence=evidence, numbers=numbers, shows=shows)
    if untouched > 0.05:
        evidence = f"{untouched:.0%} of the tensor's entries carry no noise"
        return Outcome(result=Result.FAIL, case=case, evidence=evidence, numbers=numbers, shows=shows)
    return Outcome(result=Result.PASS, case=case, evidence="bounded and noised like the others", numbers=numbers)


PAIR = "{'a': np.zeros(600, 'f'), 'b': np.full(600, 8, 'f')}"
NAMES = {
    "the same tensors in another order": "{'b': victim['b'], 'a': victim['a']}",
    "a tensor is missing": "{'a': victim['a']}",
    "an extra tensor": "{**victim, 'c': np.full(600, 1000, 'f')}",
    "a tensor of another shape": "{**victim, 'b': np.full((600, 1), 1000, 'f')}",
}


def _names(bench: Bench) -> Iterator[Outcome]:
    # The second tensor of the model is not zero: who takes tensors by position subtracts the wrong one.
    model = {"a": np.zeros(600, np.float32), "b": np.full(600, 8, np.float32)}
    bench = bench.on(model)
    victim = {"a": np.zeros(600, np.float32), "b": np.full(600, bench.claim.clip / 100, np.float32)}
    others = bench.others()
    honest = attempt(lambda: bench.release([*others, victim]))
    if bench.claim.cohort == 1:
        reason = "a unit that noises its own update has its own model"
        yield Outcome(result=Result.NOT_APPLICABLE, case="names", evidence=reason)
        return
    for case, code in NAMES.items():
        sent = eval(code, {"np": np, "victim": victim})  # noqa: S307 - as above
        shows = (
            f"bench = bench.on({PAIR})\nvictim = {{'a': np.zeros(600, 'f'), "
            f"'b': np.full(600, {bench.claim.clip / 100:g}, 'f')}}\n"
            f"for sent in (victim, {code}):\n    print(bench.release([*bench.others(), sent]))"
        )
        tried = attempt(lambda sent=sent: bench.release([*others, sent]))  # type: ignore[misc]
        if tried.value is None or honest.value is None:
            result = Result.NOT_APPLICABLE if tried.how is How.INAPPLICABLE else Result.REFUSED
            result = Result.CRASH if tried.how is How.ENDLESS else result
            yield Outcome(result=result, case=case, evidence=tried.says or honest.says, shows=shows)
        elif (left := _shapes(tried.value)) != _shapes(model):
            yield Outcome(result=Result.FAIL, case=case, evidence=f"one unit changes what leaves: {left}", shows=shows)
        else:
            yield _placed(bench, case, honest.value, tried.value, shows, reordered=case.startswith("the same"))


def _shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(tensors[name]) for name in sorted(tensors)}


def _placed(bench: Bench, case: str, honest: Tensors, sent: Tensors, shows: str, *, reordered: bool) -> Outcome:
    distance = bench.moved(flat(honest), flat(sent))
    if reordered:
        # The same numbers under the same names: the release must be the same one.
        held = bool(distance <= 1e-3 * np.linalg.norm(flat(honest)))
        evidence = "taken by name" if held else f"taken by position: the release differs by {distance:.3g}"
    elif bench.claim.noise_multiplier is None:
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="it states no noise multiplier")
    else:
        held = distance <= 2 * bench.bound * SLACK
        evidence = f"accepted; moves the release by {distance / bench.bound:.3g} of what the claim allows"
    result = Result.PASS if held else Result.FAIL
    return Outcome(result=result, case=case, evidence=evidence, numbers={"moved": distance}, shows=shows)
