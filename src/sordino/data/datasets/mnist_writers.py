"""MNIST by writer: the digits of `mnist`, and who wrote each."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.datasets.mnist import ARCHIVE
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located
from sordino.data.idx import images_and_labels

WHERE = "dataset.mnist-writers"
SERIES = {0: "employees", 4: "students"}


@datasets.register("mnist-writers")
@dataclass(frozen=True)
class MnistWriters:
    """MNIST by writer: 539 people wrote the 60,000 training digits, 297 others the 10,000 test digits.

    The writers come from QMNIST and are given as an .npz file whose arrays follow MNIST's own order:
    `train_writer`, `test_writer`, and for `by = "series"` also `train_series`, `test_series`
    (0 = census employees, 4 = school students). Needs the images of `mnist` too.

    Args:
        writers: Path of the .npz file.
        path: Folder or archive of MNIST's IDX files; the cached archive of `mnist` where None.
        part: "train" or "test". No writer is in both.
        by: "writer", or "series": two unlike silos of many people. The writer is the user either way.
    """

    example: ClassVar[dict[str, Any]] = {"writers": "mnist_writers.npz", "part": "test"}
    source: ClassVar[str] = (
        "LeCun, Cortes and Burges (1998), MNIST; writers: Yadav and Bottou (2019), QMNIST, arXiv:1905.10498"
    )
    licence: ClassVar[str] = "writers BSD-3-Clause; MNIST: none stated by the authors"
    fetch: ClassVar[Archive | None] = ARCHIVE
    writers: str | None = None
    path: str | None = None
    part: Literal["train", "test"] = "train"
    by: Literal["writer", "series"] = "writer"

    def load(self) -> Examples:
        """Images of shape (n, 1, 28, 28) in [0, 1]; clients are writers, or the two series."""
        if self.writers is None:
            raise ConfigError.about(WHERE, "lacks the key 'writers'", "give the path of the writers' .npz file")
        owners = located("mnist-writers", self.writers)
        writer = _array(owners, f"{self.part}_writer")
        client = writer if self.by == "writer" else _series(owners, self.part)
        x, y = images_and_labels(WHERE, located("mnist-writers", self.path, self.fetch), self.part)
        return Examples(
            x=x,
            y=y,
            classes=10,
            client=client,
            user=writer,
            public=True,
            source=self.source,
            licence=self.licence,
        ).validated(WHERE)


def _series(path: Path, part: str) -> NDArray[Any]:
    """The group of people that a digit's writer belongs to, by name."""
    return np.array([SERIES.get(number, str(number)) for number in _array(path, f"{part}_series").tolist()])


def _array(path: Path, key: str) -> NDArray[np.int64]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if key not in arrays:
                raise ConfigError.about(WHERE, f"has no array {key!r}", nearest(key, arrays.files), file=path.name)
            return np.asarray(arrays[key], np.int64)
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile):
        remedy = "give the writers' file as NumPy writes it"
        raise ConfigError.about(WHERE, "is no .npz file", remedy, file=path.name) from None
