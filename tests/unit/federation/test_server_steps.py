"""Server steps and tail averaging against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.core.types import RoundPlan
from sordino.federation.averaging import TailAverage, TailState
from sordino.federation.strategies.adaptive import Adaptive
from sordino.federation.strategies.fedavg import FedAvg
from sordino.federation.strategies.momentum import Momentum

ONE = np.ones(1, np.float32)


def after(strategy, rounds: int, mean: np.ndarray = ONE) -> float:
    """The model, from zero, after some rounds of one constant mean."""
    state = strategy.init(np.zeros(1, np.float32))
    for _ in range(rounds):
        state = strategy.step(state, mean)
    return float(state.model[0])


def test_fedavg_adds_the_mean():
    """lr = 1 is plain averaging; decay makes a geometric series."""
    assert after(FedAvg(), 3) == pytest.approx(3.0)
    assert after(FedAvg(lr=2.0, decay=0.5), 3) == pytest.approx(2 * (1 + 0.5 + 0.25))


def test_momentum_is_the_heavy_ball():
    """m_t = (1 − βᵗ)/(1 − β) for a constant mean, and the model is the sum of lr·m_t."""
    beta, lr, decay = 0.5, 0.1, 0.9
    expected = sum(lr * decay**t * (1 - beta ** (t + 1)) / (1 - beta) for t in range(5))
    assert after(Momentum(lr, beta, decay), 5) == pytest.approx(expected, rel=1e-5)


def test_momentum_without_memory_is_fedavg():
    """beta = 0."""
    assert after(Momentum(lr=0.3, beta=0.0), 4) == pytest.approx(after(FedAvg(lr=0.3), 4), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "second"),
    [("adam", 0.01 * 0.99 + 4 * 0.01), ("yogi", 0.01 + 0.01 * 4), ("adagrad", 0.01 + 4)],
)
def test_adaptive_takes_the_papers_first_step(kind, second):
    """Reddi et al., algorithm 2, by hand: Δ = 2, v₀ = τ² = 0.01, β₁ = 0.9, β₂ = 0.99."""
    strategy = Adaptive(kind=kind, lr=0.5, beta1=0.9, beta2=0.99, tau=0.1)
    expected = 0.5 * (0.1 * 2) / (np.sqrt(second) + 0.1)
    assert after(strategy, 1, 2 * ONE) == pytest.approx(expected, rel=1e-4)


def test_an_unknown_kind_is_refused():
    """The nearest known name is offered."""
    with pytest.raises(ConfigError, match="did you mean 'adam'"):
        Adaptive(kind="adma")  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1), rounds=st.integers(1, 30))
def test_the_tail_is_the_mean_of_the_last_iterates(share, rounds):
    """Streaming with a checkpoint in every round equals the mean of the stored iterates."""
    rng = np.random.default_rng(rounds)
    iterates = rng.normal(size=(rounds, 3)).astype(np.float32)
    averaging = TailAverage(share)
    state = averaging.init(np.zeros(3, np.float32))
    for t, model in enumerate(iterates):
        state = TailState.from_arrays(averaging.step(state, model, RoundPlan(t, rounds, (), 1.0)).to_arrays())
    kept = max(1, round(share * rounds))
    np.testing.assert_allclose(averaging.result(state), iterates[-kept:].astype(float).mean(axis=0), atol=1e-6)
    assert state.count == kept


def test_share_zero_is_the_last_iterate():
    """No averaging, to the bit; also when the run stops early."""
    averaging = TailAverage(0.0)
    state = averaging.init(np.zeros(1, np.float32))
    for t in range(3):
        state = averaging.step(state, np.array([t / 3], np.float32), RoundPlan(t, 10, (), 1.0))
    assert averaging.result(state) == np.float32(2 / 3)


def test_a_share_is_a_share():
    """Outside [0, 1] is refused."""
    with pytest.raises(ConfigError, match="share"):
        TailAverage(1.5)


def test_debiased_momentum_moves_at_full_pace_from_the_first_round():
    """A constant mean moves the model by lr/(1 − beta) in every round; without it the first moves are short."""
    mean = np.ones(3, np.float32)
    moves = {}
    for debias in (False, True):
        strategy = Momentum(lr=0.2, beta=0.8, debias=debias)
        state = strategy.init(np.zeros(3, np.float32))
        for _ in range(4):
            before, state = state.model, strategy.step(state, mean)
            moves.setdefault(debias, []).append(float((state.model - before)[0]))

    np.testing.assert_allclose(moves[True], 1.0, rtol=1e-6)
    assert moves[False][0] == pytest.approx(0.2)
