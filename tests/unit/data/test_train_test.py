"""Held-out records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.data.split import holdout, train_test


def federation(sizes, classes=3):
    n = sum(sizes)
    examples = Examples(np.zeros((n, 1), np.float32), np.arange(n) * 7 % classes, classes)
    cuts = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    return FederatedData(examples, tuple(f"silo-{i}" for i in range(len(sizes))), tuple(cuts))


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6).filter(lambda sizes: max(sizes) > 1),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_parts_are_disjoint_complete_and_stratified(sizes, share, seed):
    """Each silo is cut in two, with every label's share kept to within one record."""
    whole = federation(sizes)
    train, test = train_test(whole, share, seed)

    for i, name in enumerate(whole.names):
        kept = train.rows[i]
        out = test.rows[test.index(name)] if name in test.names else np.empty(0, np.int64)
        assert sorted([*kept, *out]) == whole.rows[i].tolist()
        assert len(kept) >= 1
        assert (len(out) >= 1) == (sizes[i] >= 2)
        of_all, of_out = (np.bincount(whole.examples.y[rows], minlength=3) for rows in (whole.rows[i], out))
        assert (abs(of_out - of_all * len(out) / sizes[i]) < 1 + 1e-9).all()


def test_equal_seeds_give_equal_parts_and_others_do_not():
    """The split is a function of the silos and the seed."""
    parts = [train_test(federation([50]), 0.3, seed)[1].rows[0].tolist() for seed in (1, 1, 2)]

    assert parts[0] == parts[1] != parts[2]


def test_every_record_is_held_out_at_the_same_rate():
    """Over many seeds no position is favoured: 400 draws of 30 %, five standard deviations wide."""
    hits = np.zeros(20)
    for seed in range(400):
        hits[train_test(federation([20]), 0.3, seed)[1].rows[0]] += 1

    assert abs(hits / 400 - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 400)


def test_nothing_to_test_on_is_an_error():
    """Clients of one record each cannot be split."""
    with pytest.raises(ConfigError, match="every client has one record"):
        train_test(federation([1, 1]), 0.5, 0)


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_the_share_lies_strictly_between_nothing_and_all(share):
    """A part cannot be everything."""
    with pytest.raises(ConfigError, match="test_fraction"):
        train_test(federation([4]), share, 0)


def test_holdout_sets_aside_a_stratified_sample():
    """The two parts share no record and have the sizes asked for."""
    examples = Examples(np.arange(30, dtype=np.float32)[:, None], np.arange(30) % 3, classes=3)
    rest, out = holdout(examples, 9, seed=5)

    assert np.bincount(out.y).tolist() == [3, 3, 3]
    assert sorted([*rest.x[:, 0], *out.x[:, 0]]) == list(range(30))
    with pytest.raises(ConfigError, match="count=30 must be below the 30 records"):
        holdout(examples, 30, seed=5)
