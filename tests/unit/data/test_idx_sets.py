"""MNIST, Fashion-MNIST and MNIST by writer from small IDX files."""

from __future__ import annotations

import numpy as np
import pytest
from published_formats import deb, idx, mnist_files, tar, write

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("form", ["plain", "gzipped", "tgz", "deb"])
def test_images_and_labels_from_every_container(tmp_path, name, form):
    """Pixels are the file's bytes over 255; labels keep their order."""
    path = tmp_path / f"archive.{form}"
    if form in ("plain", "gzipped"):
        path = write(tmp_path / "raw", mnist_files(), zipped=form == "gzipped")
    else:
        path.write_bytes((deb if form == "deb" else tar)(mnist_files()))

    examples = datasets.build(name, {"path": str(path)}).load()

    assert examples.x.shape == (12, 1, 28, 28)
    assert examples.x.dtype == np.float32
    assert examples.x[11, 0, 0, 0] == np.float32(11 / 255)
    assert examples.y.tolist() == [*range(10), 0, 1]


def test_parts_are_train_test_and_both(tmp_path):
    """`all` is train, then test."""
    folder = str(write(tmp_path, mnist_files(12, 5)))
    sizes = {part: len(datasets.build("mnist", {"path": folder, "part": part}).load()) for part in ("test", "all")}

    assert sizes == {"test": 5, "all": 17}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", None, "lacks the file 'train-images-idx3-ubyte'"),
        ("train-images-idx3-ubyte", b"<html>not found</html>", "is no IDX file of bytes"),
        ("train-images-idx3-ubyte", idx(np.zeros((12, 28, 28)))[:-1], "has 9407 bytes of data where.*9408"),
        ("train-images-idx3-ubyte", idx(np.zeros((12, 32, 32))), "images of shape .32, 32."),
        ("train-labels-idx1-ubyte", idx(np.zeros(11)), "12 images but labels of shape .11,."),
        ("train-labels-idx1-ubyte", idx(np.full(12, 10)), "row 0 has label 10, outside the 10 classes"),
        ("train-labels-idx1-ubyte", b"\x1f\x8bbroken", "is broken"),
    ],
)
def test_every_fault_of_the_files_is_one_clear_line(tmp_path, name, content, message):
    """Missing, foreign, cut, misshapen and mislabelled files are told apart."""
    files = {**mnist_files(), name: content}
    folder = write(tmp_path, {key: value for key, value in files.items() if value is not None})

    with pytest.raises(ConfigError, match=f"dataset.mnist: .*{message}"):
        datasets.build("mnist", {"path": str(folder)}).load()


@pytest.fixture
def writers(tmp_path):
    """The writers of the twelve training images and five test images."""
    path = tmp_path / "writers.npz"
    series = np.array([0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4])
    np.savez(path, train_writer=np.arange(12) // 4 + 100, test_writer=np.arange(5), train_series=series)
    return str(path)


def test_writers_are_clients(tmp_path, writers):
    """Each image belongs to the person who wrote it."""
    folder = str(write(tmp_path / "raw", mnist_files()))
    examples = datasets.build("mnist-writers", {"writers": writers, "path": folder}).load()

    assert examples.client.tolist() == [100] * 4 + [101] * 4 + [102] * 4
    assert examples.user.tolist() == examples.client.tolist()


def test_series_are_clients_and_writers_their_people(tmp_path, writers):
    """Two silos of people, for privacy per person."""
    folder = str(write(tmp_path / "raw", mnist_files()))
    examples = datasets.build("mnist-writers", {"writers": writers, "path": folder, "by": "series"}).load()

    assert examples.client.tolist() == ["employees"] * 4 + ["students"] * 8
    assert set(examples.user.tolist()) == {100, 101, 102}


def test_faults_of_the_writers_file(tmp_path, writers):
    """No file named, a file that is none, an array that is not there, another length."""
    folder = str(write(tmp_path / "raw", mnist_files(train=11)))
    (tmp_path / "text.npz").write_text("no arrays")
    (tmp_path / "empty.npz").write_bytes(b"")
    cases = [
        ({"path": folder}, "lacks the key 'writers'"),
        ({"path": folder, "writers": str(tmp_path / "text.npz")}, "is no .npz file"),
        ({"path": folder, "writers": str(tmp_path / "empty.npz")}, "is no .npz file"),
        ({"path": folder, "writers": writers, "part": "test", "by": "series"}, "no array 'test_series'; did you mean"),
        ({"path": folder, "writers": writers}, "12 rows of client but 11 labels"),
    ]
    for table, message in cases:
        with pytest.raises(ConfigError, match=message):
            datasets.build("mnist-writers", table).load()
