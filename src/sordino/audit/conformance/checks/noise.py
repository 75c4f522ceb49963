"""C06, C07, C08: everything that leaves is noised, by the declared law, anew each time, and nobody can predict it."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import attempt, in_child, quietly
from sordino.audit.conformance.measure import TINY, Bench, Named, dense, flat, quiet, spike
from sordino.audit.conformance.protocol import NotApplicable, Series, Tensors, Wire
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.audit.stats import mechanism

ALPHA = 1e-3
"""False alarms of all tests of one release series together."""

LAYERS: Named = {
    "first.weight": np.zeros((40, 30), np.float32),
    "first.bias": np.zeros(300, np.float32),
    "head": np.zeros(500, np.float32),
}
ROUNDS = 30


@check("C06", "everything that leaves is noised")
def everything(bench: Bench) -> Iterator[Outcome]:
    """Entries that do not change with the noise but do with the data; fields beside the tensors, likewise."""
    bench = bench.on(LAYERS)
    small = bench.claim.clip / 10
    one, other = dense(small, LAYERS, seed=11), dense(small, LAYERS, seed=12)
    others = quiet(bench.claim.cohort - 1, LAYERS, small)
    exposed = {}
    releases = [[bench.release([*others, update], seed=seed) for seed in (1, 2, 3)] for update in (one, other)]
    for name in releases[0][0]:
        a, b = (np.array([np.asarray(r[name], np.float64) for r in each]) for each in releases)
        fixed = (a == a[:1]).all(0) & (b == b[:1]).all(0) & (a[0] != b[0])
        exposed[name] = float(np.mean(fixed)) if fixed.size else 0.0
    worst = max(exposed, key=lambda name: exposed[name])
    shows = (
        "bench = bench.on(LAYERS)\none, other = dense(0.1, LAYERS, seed=11), dense(0.1, LAYERS, seed=12)\n"
        f"for update in (one, other):\n    for seed in (1, 2):\n"
        f"        print(bench.release([*bench.others(0.1), update], seed=seed)[{worst!r}])"
    )
    yield Outcome(
        result=Result.FAIL if exposed[worst] > 0 else Result.PASS,
        case="tensors",
        evidence=f"{exposed[worst]:.0%} of {worst} is a function of the data alone"
        if exposed[worst] > 0
        else f"every entry of {len(exposed)} tensors changes with the noise",
        numbers=exposed,
        shows=shows,
    )
    if isinstance(bench.target, Wire):
        yield from _fields(bench, bench.target, [*others, one], [*others, other])


def _fields(bench: Bench, target: Wire, one: Sequence[Tensors], other: Sequence[Tensors]) -> Iterator[Outcome]:
    """Whether a field beside the tensors is a function of the data alone."""
    with quietly():
        a, again, b = (target.wire(bench.model, updates, seed) for updates, seed in ((one, 1), (one, 2), (other, 1)))
    for field in sorted(a.keys() | b.keys()):
        values = [np.asarray(part.get(field, np.nan), np.float64) for part in (a, again, b)]
        exposed = np.array_equal(values[0], values[1]) and not np.array_equal(values[0], values[2])
        yield Outcome(
            result=Result.FAIL if exposed else Result.PASS,
            case=field,
            evidence="leaves without noise and depends on the data" if exposed else "does not tell the data",
            numbers={"with": float(np.ravel(values[0])[0]), "instead": float(np.ravel(values[2])[0])},
            shows="for seed in (11, 12):\n    update = dense(0.1, LAYERS, seed=seed)\n    bench = bench.on(LAYERS)\n"
            f"    print(target.wire(LAYERS, [*bench.others(0.1), update], 1)[{field!r}])",
        )


@check("C07", "noise of the declared law and scale, fresh and independent")
def law(bench: Bench) -> Iterator[Outcome]:
    """Statistical tests of the noise of a series of releases; a false alarm in 1,000."""
    bench = bench.on(LAYERS)
    claimed, others = bench.claimed, bench.others()
    updates = [*others, spike(TINY, LAYERS)]
    moved = max(bench.ratio(others, victim).moved for victim in (spike(1e6, LAYERS), dense(1e6, LAYERS, seed=3)))
    scale = claimed * moved
    if isinstance(bench.target, Series):
        with quietly():
            series = bench.target.series(LAYERS, updates, ROUNDS, 5)
    else:
        series = [bench.release(updates, seed=5 if t == 0 else None) for t in range(ROUNDS)]
    named = [{name: np.asarray(each[name], np.float64).reshape(-1) for name in sorted(each)} for each in series]
    levels = _levels(bench, named, scale)
    least = min(levels, key=lambda name: levels[name])
    level = mechanism.together(list(levels.values()))
    ratio = float(np.sqrt(np.mean([np.mean(flat(each) ** 2) for each in series]))) / scale
    yield Outcome(
        result=Result.PASS if level > ALPHA else Result.FAIL,
        case="a series of releases",
        evidence=f"{len(levels)} tests of {ROUNDS} releases, the least likely ({least}) at p = {level:.2g}",
        numbers={**levels, "noise over declared": ratio},
        shows="from sordino.audit.conformance.checks.noise import law\nprint(*law(bench))",
    )


def _levels(bench: Bench, named: list[Named], scale: float) -> dict[str, float]:
    """The p-value of each test."""
    whole = np.array([np.concatenate(list(each.values())) for each in named])
    tensors = [np.array([each[name] for each in named]) for name in named[0]]
    laplace = bench.claim.law == "laplace"
    std = scale * (2**0.5 if laplace else 1)
    return {
        # The measured sensitivity is exact, but float32 may round it up by a millionth.
        "scale": _laplace_scale(whole, scale) if laplace else mechanism.scale(whole, std * (1 - 1e-5)),
        "law": float(stats.kstest(whole.ravel(), "laplace", (0, scale)).pvalue)
        if laplace
        else mechanism.law(whole, float(whole.std())),
        "every release": 1.0 if laplace else mechanism.smallest_step(whole, std * (1 - 1e-5)),
        "freshness": mechanism.freshness(whole),
        "no two alike": mechanism.repeated(list(whole)),
        "coordinates": mechanism.blocks(whole),
        "tensors": mechanism.crossed(tensors),
        "lattice": mechanism.lattice(whole, std),
    }


def _laplace_scale(values: NDArray[np.float64], scale: float) -> float:
    """Whether there is as much noise as declared: Σ|z|/b follows Γ(n), exactly; lower tail."""
    return float(stats.gamma.cdf(np.abs(values).sum() / scale, values.size))


@check("C08", "noise that nobody can predict or repeat")
def source(bench: Bench) -> Iterator[Outcome]:
    """After seeding the ordinary generators; in a forked worker; in a new process."""
    bench = bench.on(LAYERS)
    updates = [*bench.others(), spike(TINY, LAYERS)]

    def seeded() -> NDArray[np.float64]:
        _seed_everything(0)
        return bench.vector(updates, seed=None)

    with _generators_kept():
        repeats = np.array_equal(seeded(), seeded())
        exposed = np.array_equal(bench.vector(updates, seed=1), bench.vector(updates, seed=2))
        if exposed:
            raise NotApplicable("it adds no noise")
        yield Outcome(
            result=Result.FAIL if repeats else Result.PASS,
            case="seeding the ordinary generators",
            evidence="numpy's, Python's and torch's seeds fix the noise"
            if repeats
            else "numpy's, Python's and torch's seeds do not touch it",
            shows="from sordino.audit.conformance.checks.noise import _seed_everything\nfor _ in range(2):\n"
            "    _seed_everything(0)\n    print(bench.vector([*bench.others(), spike(TINY)], seed=None)[:4])",
        )
        yield _forked(bench, updates)
    if bench.spec:
        yield _restarted(bench)


def _restarted(bench: Bench) -> Outcome:
    """Whether a new process draws the noise of the one before."""
    case, name = "a restart", bench.target.name
    (first, _), (second, said) = ((found.get(name), error) for found, error in (_fresh(bench.spec, i) for i in (1, 2)))
    if first is None or second is None:
        evidence = f"a process of its own did not answer: {said}"
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence=evidence)
    return Outcome(
        result=Result.FAIL if first == second else Result.PASS,
        case=case,
        evidence="two processes draw the same noise" if first == second else "two processes draw different noise",
        shows="# run this twice\nprint(bench.vector([*bench.others(), spike(TINY)], seed=None)[:4])",
    )


_START = """
import sys
from sordino.audit.conformance import Bench, load
from sordino.audit.conformance.checks.noise import LAYERS
from sordino.audit.conformance.limits import attempt
from sordino.audit.conformance.measure import TINY, spike
for name, target in load(sys.argv[1]).items():
    bench = Bench(target).on(LAYERS)
    first = attempt(lambda: bench.vector([*bench.others(), spike(TINY, LAYERS)], seed=None)).value
    if first is not None:
        print(name, first[:4].tobytes().hex(), sep="\\t")
"""


@functools.cache
def _fresh(spec: str, start: int) -> tuple[dict[str, str], str]:
    """The first release of every target behind a name, in a new process, and the last line of what went wrong.

    Processes are told apart by `start`.
    """
    del start
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    call = [sys.executable, "-c", _START, spec]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603 - our own interpreter and words
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    return {name: noise for name, tab, noise in lines if tab}, (done.stderr.strip().splitlines() or [""])[-1]


def _forked(bench: Bench, updates: list[Named]) -> Outcome:
    """Whether a forked worker draws its parent's noise."""
    case = "a forked worker"
    if not hasattr(os, "fork"):
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence="there is no fork here")
    bench.vector(updates, seed=None)
    child = attempt(lambda: in_child(lambda: bench.vector(updates, seed=None)), limit_s=30)
    if child.value is None:
        return Outcome(result=Result.NOT_APPLICABLE, case=case, evidence=f"the worker did not answer: {child.says}")
    same = np.array_equal(child.value, bench.vector(updates, seed=None))
    return Outcome(
        result=Result.FAIL if same else Result.PASS,
        case=case,
        evidence="parent and worker draw the same noise" if same else "parent and worker draw different noise",
        shows="from sordino.audit.conformance.checks.noise import _forked\n"
        "print(_forked(bench, [*bench.others(), spike(TINY)]))",
    )


def _seed_everything(seed: int) -> None:
    """What users do for reproducibility, and what must not touch noise."""
    random.seed(seed)  # noqa: TID251 - the question is what this does to others' noise
    np.random.seed(seed)  # noqa: NPY002, TID251 - as above
    if (torch := sys.modules.get("torch")) is not None:
        torch.random.manual_seed(seed)


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """The ordinary generators as they were, afterwards."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), torch and torch.random.get_rng_state()  # noqa: NPY002 - as above
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002 - as above
        if torch is not None:
            torch.random.set_rng_state(states[2])
