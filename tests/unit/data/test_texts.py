"""Texts before they are tokens, and examples with a target per token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data import Examples, FederatedData, Message, Texts, partitions, train_test
from sordino.data.examples import IGNORE

TWO = Texts(
    records=("good", (Message("user", "Ay?"), Message("assistant", "No."))),
    y=np.array([1, 0]),
    classes=2,
    client=np.array(["a", "b"]),
)
TOKENS = Examples(
    x=np.arange(24).reshape(12, 2),
    y=np.where(np.arange(24).reshape(12, 2) % 3 == 0, IGNORE, np.arange(24).reshape(12, 2)),
    classes=30,
    vocabulary=30,
    group=np.array(["strict", "open"] * 6),
    padding=0,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": ()}, "holds no records"),
        ({"records": ("good", "  ")}, "record 1 is an empty text"),
        ({"records": ("good", ())}, "record 1 has no messages"),
        ({"records": ("good", (Message("asistant", "x"),))}, "record 1, message 0 has role 'asistant'; did you mean"),
        ({"records": ("good", (Message("user", "\n"),))}, "record 1, message 0 is empty"),
        ({"y": None}, "labels or classes, but not both"),
        ({"classes": None}, "labels or classes, but not both"),
        ({"y": np.array([0, 2])}, "record 1 has label 2, outside the 2 classes"),
        ({"y": np.array([0, -1])}, "record 1 has label -1"),
        ({"y": np.array([0.0, 1.0])}, "labels of type float64"),
        ({"client": np.array(["a"])}, "1 rows of client but 2 records"),
        ({"group": np.array(["a"] * 3)}, "3 rows of group but 2 records"),
    ],
)
def test_what_is_wrong_is_said(change, message):
    """The record, the message and the rule."""
    assert TWO.validated("mine") is TWO

    with pytest.raises(ConfigError, match=f"mine: .*{message}"):
        replace(TWO, **change).validated("mine")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(TOKENS.y == 7, 30, TOKENS.y), "row 3 has target 30 at place 1, outside the 30 tokens"),
        (np.where(TOKENS.y == 7, -1, TOKENS.y), "row 3 has target -1 at place 1"),
        (TOKENS.y[:, :1], "targets of shape .1,. for tokens of shape .2,."),
    ],
)
def test_targets_are_tokens_or_ignored(y, message):
    """One target per token, in the vocabulary or IGNORE."""
    assert TOKENS.validated("mine") is TOKENS

    with pytest.raises(ConfigError, match=message):
        replace(TOKENS, y=y).validated("mine")


def test_a_label_is_never_ignored():
    """IGNORE is for targets: a record without a label is an error."""
    with pytest.raises(ConfigError, match="row 0 has label -100"):
        Examples(np.zeros((1, 2), np.float32), np.array([IGNORE]), classes=2).validated("mine")


def test_budget_groups_follow_their_records():
    """Into parts and silos."""
    silo = FederatedData(TOKENS, ("all",), (np.array([4, 1]),)).silo(0)

    assert TOKENS.take(np.array([4, 1])).group.tolist() == ["strict", "open"] == silo.group.tolist()
    assert TOKENS.take(np.array([4, 1])).padding == 0


def test_texts_without_labels_are_split_at_random():
    """Every silo's share, no record twice; another seed, other records."""
    data = FederatedData(TOKENS, ("a", "b"), (np.arange(8), np.arange(8, 12)))

    train, test = train_test(data, 0.25, seed=1)

    assert (train.sizes, test.sizes) == ((6, 3), (2, 1))
    assert np.array_equal(np.sort(np.concatenate([*train.rows, *test.rows])), np.arange(12))
    assert {tuple(train_test(data, 0.25, seed=seed)[1].rows[0]) for seed in range(9)} != {tuple(test.rows[0])}


@pytest.mark.parametrize("name", ["dirichlet", "shards"])
def test_what_has_no_label_is_not_cut_by_label(name):
    """Partitions by label say so; the others work."""
    with pytest.raises(ConfigError, match="cuts by label"):
        partitions.example(name).split(TOKENS, 0)

    assert sum(partitions.build("iid", {"clients": 2}).split(TOKENS, 0).sizes) == len(TOKENS)
