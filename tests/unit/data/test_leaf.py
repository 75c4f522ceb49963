"""LEAF's JSON from small files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from published_formats import leaf, write

from sordino.core.errors import ConfigError
from sordino.data.characters import ALPHABET
from sordino.data.datasets import datasets
from sordino.data.partitions import Natural

IMAGE = [0.5] * 784


def load(folder, kind="images", **options):
    return datasets.build("leaf", {"path": str(folder), "kind": kind, **options}).load()


def test_users_become_clients_across_files(tmp_path):
    """FEMNIST's form: 784 numbers an image, 62 classes, many files."""
    first = leaf({"f0001_41": ([IMAGE, IMAGE], [61, 0]), "f0002_12": ([IMAGE], [3])})
    write(tmp_path, {"all_data_0.json": first, "all_data_1.json": leaf({"f0003_07": ([IMAGE], [5])})})
    examples = load(tmp_path)

    assert examples.x.shape == (4, 1, 28, 28)
    assert examples.x[0, 0, 0, 0] == 0.5
    assert (examples.classes, examples.y.tolist()) == (62, [61, 0, 3, 5])
    assert Natural().split(examples, 0).names == ("f0001_41", "f0002_12", "f0003_07")


def test_characters_follow_the_alphabet(tmp_path):
    """Shakespeare's form: 80 characters and the next; what the alphabet lacks reads as a space."""
    text = "To be, or not" + "#" * 67
    write(tmp_path, {"a.json": leaf({"THE_TRAGEDY_HAMLET": ([text, text], [" ", "t"])})})
    examples = load(tmp_path / "a.json", "characters")

    assert examples.x.shape == (2, 80)
    assert "".join(ALPHABET[i] for i in examples.x[0]) == text.replace("#", " ")
    assert [ALPHABET[i] for i in examples.y] == [" ", "t"]
    assert (examples.classes, examples.vocabulary) == (80, 80)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("images", b"{}", "is not LEAF's JSON"),
        ("images", b"[1", "is not LEAF's JSON"),
        ("images", leaf({"ann": ([], [])}), "user='ann' holds no samples"),
        ("images", leaf({"ann": ([IMAGE], [1, 2])}), "1 inputs and 2 labels where num_samples says 2"),
        ("images", leaf({"ann": ([IMAGE[:-1]], [1])}), "not 784 numbers each"),
        ("images", leaf({"ann": ([IMAGE], [62])}), "label 62, outside the 62 classes"),
        ("images", leaf({"ann": ([[float("nan")] * 784], [1])}), "not finite"),
        ("characters", leaf({"ann": (["ab", "abc"], ["a", "b"])}), "unequal length"),
        ("characters", leaf({"ann": (["ab"], ["#"])}), "not one character of LEAF's alphabet"),
        ("characters", leaf({"ann": ([IMAGE], [1])}), "inputs that are no texts"),
    ],
)
def test_every_fault_is_one_clear_line(tmp_path, kind, content, message):
    """The error names the file or the user."""
    write(tmp_path, {"a.json": content})

    with pytest.raises(ConfigError, match=rf"dataset\.leaf: .*{message}"):
        load(tmp_path, kind)


def test_a_user_that_is_listed_but_absent_is_an_error(tmp_path):
    """`users` and `user_data` must agree."""
    content = json.loads(leaf({"ann": ([IMAGE], [1])}))
    content["users"], content["num_samples"] = ["ann", "bob"], [1, 1]
    write(tmp_path, {"a.json": json.dumps(content).encode()})

    with pytest.raises(ConfigError, match="is not LEAF's JSON"):
        load(tmp_path)


def test_an_empty_folder_is_an_error(tmp_path):
    """A folder without JSON files is probably the wrong one."""
    with pytest.raises(ConfigError, match=r"holds no \.json file"):
        load(tmp_path)


def test_classes_can_be_stated(tmp_path):
    """For sets in LEAF's form with other labels."""
    write(tmp_path, {"a.json": leaf({"ann": ([IMAGE], [1])})})

    assert load(tmp_path, classes=10).classes == 10
    assert np.isfinite(load(tmp_path).x).all()
