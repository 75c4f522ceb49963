"""Checked records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data.examples import Examples

GOOD = Examples(
    x=np.ones((3, 2), np.float32),
    y=np.array([0, 1, 1]),
    classes=2,
    client=np.array(["a", "b", "b"]),
    user=np.array([7, 8, 9]),
    features=("age", "dose"),
)


def test_good_examples_pass_unchanged():
    """The check gives back the very same value."""
    assert GOOD.validated("mine") is GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.array([[1, 2], [1, np.nan], [1, 2]], np.float32)}, "1 values that are not finite.*row 1.*'dose'"),
        ({"x": np.array([[1, 2], [1, np.inf], [1, 2]], np.float32)}, "not finite"),
        ({"x": np.ones((2, 2), np.float32)}, "2 rows of x but 3 labels"),
        ({"x": np.ones((3, 5), np.float32)}, "shape .5,. but 2 feature names"),
        ({"x": np.ones((3, 2))}, "x of type float64; use float32"),
        ({"y": np.array([0, 1, 2])}, "row 2 has label 2, outside the 2 classes"),
        ({"y": np.array([0, -1, 1])}, "row 1 has label -1"),
        ({"client": np.array(["a"])}, "1 rows of client"),
        ({"user": np.array(["a"])}, "1 rows of user"),
        ({"y": np.empty(0, np.int64), "x": np.empty((0, 2), np.float32)}, "holds no records"),
    ],
)
def test_every_fault_is_one_clear_line(change, message):
    """A ConfigError names the data set, the place and the rule, in one line."""
    with pytest.raises(ConfigError, match=message) as caught:
        replace(GOOD, **change).validated("dataset.mine")

    assert str(caught.value).startswith("dataset.mine: ")
    assert "\n" not in str(caught.value)


def test_a_token_outside_the_vocabulary_is_refused():
    """Text must stay within its public vocabulary."""
    text = Examples(np.array([[0, 80]]), np.array([1]), classes=80, vocabulary=80)

    with pytest.raises(ConfigError, match="token outside the vocabulary of 80"):
        text.validated("mine")


def test_take_keeps_what_is_known_about_each_record():
    """Clients and users follow their rows."""
    part = GOOD.take(np.array([2, 0]))

    assert part.client.tolist() == ["b", "a"]
    assert part.user.tolist() == [9, 7]
    assert part.features == GOOD.features
