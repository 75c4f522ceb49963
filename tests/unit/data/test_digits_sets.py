"""The digits of scikit-learn, and the ten thousand of npm from small JSON files."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from published_formats import write

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets


def json_files(per_digit=3):
    """Image k of digit d is filled with d / 10 + k / 100."""
    pixels = {d: np.repeat(d / 10 + np.arange(per_digit) / 100, 784).tolist() for d in range(10)}
    return {f"src/digits/{d}.json": json.dumps({"data": values}).encode() for d, values in pixels.items()}


def test_scikit_learn_digits():
    """1,797 images with pixels that fill [0, 1]."""
    pytest.importorskip("sklearn")
    examples = datasets.build("digits", {}).load()

    assert examples.x.shape == (1797, 1, 8, 8)
    assert (examples.x.min(), examples.x.max()) == (0, 1)
    assert set(examples.y.tolist()) == set(range(10))


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)

    with pytest.raises(ConfigError, match=r"pip install 'sordino\[digits\]'"):
        datasets.build("digits", {}).load()


def test_ten_thousand_digits_keep_the_documented_order(tmp_path):
    """Digits in turn, one frozen permutation, four fifths to train."""
    folder = str(write(tmp_path, json_files()))
    train, test = (datasets.build("digits10k", {"path": folder, "part": part}).load() for part in ("train", "test"))
    order = np.random.RandomState(0).permutation(30)

    assert [*train.y, *test.y] == (order // 3).tolist()
    assert (len(train), len(test)) == (24, 6)
    expected = np.float32(order[0] // 3 / 10 + order[0] % 3 / 100)
    assert train.x[0] == pytest.approx(np.full((1, 28, 28), expected))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "lacks the file '7.json'"),
        (b"{", "file='7.json' is not"),
        (b'{"data": [1, 2]}', "784 numbers an image"),
        (b"[]", "file='7.json' is not"),
        (b'{"data": [' + b"NaN, " * (3 * 784 - 1) + b"1]}", "not finite"),
    ],
)
def test_faults_of_the_json_files(tmp_path, content, message):
    """Missing, broken, misshapen or with gaps."""
    files = {**json_files(), "src/digits/7.json": content}
    write(tmp_path, {name: body for name, body in files.items() if body is not None})

    with pytest.raises(ConfigError, match=message):
        datasets.build("digits10k", {"path": str(tmp_path)}).load()
