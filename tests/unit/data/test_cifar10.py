"""CIFAR-10 from small batches in its two published formats."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from published_formats import cifar_binary, cifar_pickle, cifar_python2_pickle, tar, write

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets

# Red, green and blue planes in turn; image i has planes 3i, 3i + 1, 3i + 2.
PIXELS = np.repeat(np.arange(6, dtype=np.uint8), 1024).reshape(2, 3072)
NAMES = [f"data_batch_{i}" for i in range(1, 6)]
WRITERS = {"binary": cifar_binary, "python 3": cifar_pickle, "python 2": cifar_python2_pickle}


def batches(form="binary", **changes):
    suffix = ".bin" if form == "binary" else ""
    files = {f"batches/{name}{suffix}": WRITERS[form](PIXELS, [i, 9]) for i, name in enumerate(NAMES)}
    return files | {f"batches/{name}{suffix}": content for name, content in changes.items()}


@pytest.mark.parametrize("form", WRITERS)
def test_every_published_form_gives_the_same_images(tmp_path, form):
    """Binary records and pickles, of Python 2 as published and of Python 3 as copied."""
    examples = datasets.build("cifar10", {"path": str(write(tmp_path, batches(form)))}).load()

    assert examples.x.shape == (10, 3, 32, 32)
    assert (examples.x[1, :, 5, 5] * 255).round().tolist() == [3, 4, 5]
    assert examples.y.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]


def test_the_archive_need_not_be_unpacked(tmp_path):
    """The .tar.gz as it comes, and its test part."""
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(tar({"cifar-10-batches-py/test_batch": cifar_pickle(PIXELS, [3, 4])}))

    assert datasets.build("cifar10", {"path": str(path), "part": "test"}).load().y.tolist() == [3, 4]


class Attack:
    """Would create a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    """The named function is not called."""
    witness = tmp_path / "witness"
    content = pickle.dumps({"data": Attack(witness), "labels": []}, protocol=2)
    write(tmp_path, batches("python 3", data_batch_3=content))

    with pytest.raises(ConfigError, match="which a CIFAR-10 batch never does; do not use it"):
        datasets.build("cifar10", {"path": str(tmp_path)}).load()

    assert not witness.exists()


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("binary", b"123", "has 3 bytes, not a multiple of 3073"),
        ("binary", b"", "not a multiple of 3073"),
        ("binary", cifar_binary(PIXELS, [10, 0]), "has label 10, outside the 10 classes"),
        ("python 3", b"\x80\x02broken", "is no CIFAR-10 batch"),
        ("python 3", pickle.dumps({"labels": []}, protocol=2), "is no CIFAR-10 batch"),
        ("python 3", cifar_pickle(PIXELS[:, :1024], [1, 2]), "data of shape .2, 1024. and 2 labels"),
        ("python 3", cifar_pickle(PIXELS, [1]), "and 1 labels"),
    ],
)
def test_faults_of_a_batch(tmp_path, form, content, message):
    """Cut, foreign, misshapen and mislabelled batches are told apart."""
    write(tmp_path, batches(form, data_batch_2=content))

    with pytest.raises(ConfigError, match=f"dataset.cifar10: .*{message}"):
        datasets.build("cifar10", {"path": str(tmp_path)}).load()


def test_a_missing_batch_and_two_versions_are_errors(tmp_path):
    """Training on a part, or on everything twice, must not pass unnoticed."""
    files = batches()
    write(tmp_path / "one", {name: body for name, body in files.items() if "batch_4" not in name})
    write(tmp_path / "two", files | {f"py/{name}": cifar_pickle(PIXELS, [0, 1]) for name in NAMES})

    with pytest.raises(ConfigError, match="lacks the file 'data_batch_4'"):
        datasets.build("cifar10", {"path": str(tmp_path / "one")}).load()
    with pytest.raises(ConfigError, match="holds 'data_batch_1' in 'batches/' and in 'py/'"):
        datasets.build("cifar10", {"path": str(tmp_path / "two")}).load()
