"""Fashion-MNIST: 60,000 + 10,000 pieces of clothing, in IDX files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located
from sordino.data.idx import Part, images_and_labels


@datasets.register("fashion-mnist")
@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28 x 28 pixels, no natural clients.

    Args:
        path: A folder with the four IDX files, plain or gzipped, or an archive that holds them.
        part: "train", "test" or "all".
    """

    example: ClassVar[dict[str, Any]] = {"part": "test"}
    source: ClassVar[str] = "Xiao, Rasul and Vollgraf (2017), Fashion-MNIST, arXiv:1708.07747; Debian"
    licence: ClassVar[str] = "MIT"
    fetch: ClassVar[Archive | None] = Archive(
        kind="debian",
        package="dataset-fashion-mnist",
        version="0.0~git20200523.55506a9-1",
        file="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        size_bytes=30_900_652,
        members=("./usr/share/datasets/fashion-mnist/*-ubyte.gz",),
    )
    path: str | None = None
    part: Part = "train"

    def load(self) -> Examples:
        """Images of shape (n, 1, 28, 28) in [0, 1]."""
        path = located("fashion-mnist", self.path, self.fetch)
        x, y = images_and_labels("dataset.fashion-mnist", path, self.part)
        examples = Examples(x, y, classes=10, public=True, source=self.source, licence=self.licence)
        return examples.validated("dataset.fashion-mnist")
