"""C16, C17: on any torch model, every tensor that changes is bounded and noised, and records do not meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import How, attempt
from sordino.audit.conformance.measure import Bench
from sordino.audit.conformance.protocol import NotApplicable, Partial, Steps
from sordino.audit.conformance.verdicts import Outcome, Result

if TYPE_CHECKING:
    from torch import nn

    from sordino.audit.conformance.zoo import Case

SLACK = 1.01
State = Mapping[str, Any]


@check("C16", "every trained tensor is bounded and noised, or refused")
def covered(bench: Bench) -> Iterator[Outcome]:
    """LoRA alone, with heads, biases, embeddings and norms."""
    target = _stepping(bench)
    from sordino.audit.conformance.zoo import COVERED

    yield from (_tried(bench, target, case, "COVERED") for case in COVERED)
    if isinstance(target, Partial):
        yield _left_over(target, COVERED[-1])


@check("C17", "records influence a step only through their own bounded gradients")
def coupled(bench: Bench) -> Iterator[Outcome]:
    """Models in which records of a batch meet; records that ruin a step."""
    target = _stepping(bench)
    from sordino.audit.conformance.zoo import COUPLED

    yield from (_tried(bench, target, case, "COUPLED") for case in COUPLED)


def _stepping(bench: Bench) -> Steps:
    if not isinstance(bench.target, Steps):
        raise NotApplicable("it takes no steps on records")
    return bench.target


def built(case: Case) -> nn.Module:
    """The case's module, always with the same parameters."""
    import torch

    with torch.random.fork_rng():
        torch.random.manual_seed(0)  # layers' own starts
        return case.build()


def step(target: Steps, case: Case, without: int | None = None, seed: int = 1) -> State:
    """The exported state after one step, with one record left out."""
    x, y = case.batch()
    rows = [i for i in range(len(x)) if i != without]
    return target.step(built(case), case.loss, (x[rows], y[rows]), seed)


def _tried(bench: Bench, target: Steps, case: Case, zoo: str) -> Outcome:
    from sordino.audit.conformance import zoo as models

    number = getattr(models, zoo).index(case)
    shows = (
        f"from sordino.audit.conformance.zoo import {zoo}\nfrom sordino.audit.conformance.checks.modules import step\n"
        f"case = {zoo}[{number}]\nwhole = step(target, case)\n"
        "for record in range(4):\n    part = step(target, case, record)\n"
        "    print(sum(((whole[name] - part[name]) ** 2).sum() for name in whole) ** 0.5, bench.claim.clip)"
    )
    whole = attempt(lambda: step(target, case), limit_s=60)  # the first one may import a whole library
    if whole.value is None:
        result = {How.INAPPLICABLE: Result.NOT_APPLICABLE, How.ENDLESS: Result.CRASH}.get(whole.how, Result.REFUSED)
        if case.hostile and whole.how is How.RAISED:
            result = Result.CRASH
        return Outcome(result=result, case=case.name, evidence=whole.says, shows=shows)
    broken = [name for name, value in whole.value.items() if not np.isfinite(np.asarray(value, np.float64)).all()]
    if broken:
        evidence = f"{len(broken)} of {len(whole.value)} tensors are not finite after the step"
        return Outcome(result=Result.FAIL, case=case.name, evidence=evidence, shows=shows)
    return _measured(bench, target, case, whole.value, shows)


def _left_over(target: Partial, case: Case) -> Outcome:
    """What gradients are left where only a part is trained: without noise they must not lie about."""
    asked, trained = "gradients of what is not trained", ["score.weight", "score.bias"]

    def gradients(seed: int) -> State:
        return target.gradients(built(case), case.loss, case.batch(), trained, seed)

    tried = attempt(lambda: (gradients(1), gradients(2)), limit_s=60)
    if tried.value is None:
        return Outcome(result=Result.REFUSED, case=asked, evidence=tried.says)
    one, other = tried.value
    bare = [name for name in one if name not in trained and np.any(one[name]) and not _changed(one[name], other[name])]
    evidence = f"{len(bare)} tensors keep a gradient without noise, such as {bare[0]}" if bare else "none is left"
    # Nothing of it is released, but whoever sends `.grad` sends it.
    return Outcome(result=Result.NOTE if bare else Result.PASS, case=asked, evidence=evidence)


def _measured(bench: Bench, target: Steps, case: Case, whole: State, shows: str) -> Outcome:
    """How far a record moves the exported state, and whether all that changed is noised."""
    parts = [attempt(lambda i=i: step(target, case, i)) for i in range(len(case.batch()[0]))]  # type: ignore[misc]
    failed = [part.says for part in parts if part.value is None]
    if failed:
        return Outcome(result=Result.CRASH, case=case.name, evidence=f"without a record: {failed[0]}", shows=shows)
    moved = max((_distance(whole, part.value) for part in parts if part.value is not None), default=0.0)
    again = step(target, case, seed=2)
    start = {name: np.asarray(value.detach()) for name, value in built(case).state_dict().items()}
    bare = [name for name in whole if _changed(start.get(name), whole[name]) and not _changed(whole[name], again[name])]
    numbers = {"moved": moved, "clip": bench.claim.clip, "without_noise": float(len(bare))}
    excess = moved / bench.claim.clip
    if bare:
        evidence = f"leaves without noise: {', '.join(bare[:3])}; a record moves the state by {excess:.3f} of the clip"
        return Outcome(result=Result.FAIL, case=case.name, evidence=evidence, numbers=numbers, shows=shows)
    return Outcome(
        result=Result.PASS if excess <= SLACK else Result.FAIL,
        case=case.name,
        evidence=f"a record moves the state by {excess:.3f} of the clip",
        numbers=numbers,
        shows=shows,
    )


def _distance(one: State, other: State) -> float:
    parts = [np.asarray(one[name], np.float64) - np.asarray(other[name], np.float64) for name in one]
    return float(np.sqrt(sum(np.sum(part**2) for part in parts)))


def _changed(before: Any, after: Any) -> bool:
    return before is not None and not np.array_equal(np.asarray(before), np.asarray(after))
